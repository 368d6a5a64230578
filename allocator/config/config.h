// Config: the options in effect, each with its origin.
//
// Owns a value per row of options.def; immutable once parsed, and so safe to share between threads.
// config.cc is the only file that reads the environment for options. Nothing here acts on an
// option, and nothing here crashes, whatever bytes it is given.
//
// OFFCUT_CONF wins, per option, over PYTORCH_CUDA_ALLOC_CONF or, only if that is unset,
// PYTORCH_ALLOC_CONF, which are read as defaults. All have PyTorch's grammar:
//   key:value,key:[a:1,b:2]       whitespace is dropped; booleans are exactly True and False
// What is wrong in OFFCUT_CONF is an error. What is wrong in PyTorch's variables is a warning, and
// the option keeps its default: they were not written for us. Stricter than PyTorch, which reads
// "21abc" as 21 and stops silently at ",,": such text is wrong here.

#ifndef OFFCUT_ALLOCATOR_CONFIG_CONFIG_H_
#define OFFCUT_ALLOCATOR_CONFIG_CONFIG_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/config/option_value.h"

namespace offcut {

enum class Option : uint8_t {
#define OFFCUT_OPTION(key, ...) key,
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
};

inline constexpr size_t kOptionCount = 0
#define OFFCUT_OPTION(...) +1
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
    ;

enum class Origin : uint8_t { kDefault, kPytorchAllocConf, kPytorchCudaAllocConf, kOffcutConf };

// "default", or the name of the environment variable.
absl::string_view OriginName(Origin origin);

enum class LayoutKind : uint8_t { kArena, kSegments, kAsync };

enum class OptionStatus : uint8_t { kWorks, kSegments, kAsync, kNotYet, kNoMeaning };

// What options.def says of one option.
struct OptionDescription {
  Option option;
  absl::string_view key;
  std::string default_text;
  absl::string_view unit;
  absl::string_view allowed;
  OptionStatus status;
  absl::string_view note;
  absl::string_view sentence;
};

// All options, in the order of options.def.
absl::Span<const OptionDescription> OptionDescriptions();

// The texts of the environment variables; nullopt for one that is not set.
struct ConfigTexts {
  std::optional<std::string> offcut_conf;
  std::optional<std::string> pytorch_cuda_alloc_conf;
  std::optional<std::string> pytorch_alloc_conf;
};

class Config {
 public:
  // The defaults.
  Config() = default;

  // InvalidArgument for a fault in OFFCUT_CONF: the first line names variable, column, option and
  // what would be right; two more show the text with a mark below the place.
  static absl::StatusOr<Config> Parse(const ConfigTexts& texts);
  static absl::StatusOr<Config> FromEnvironment();

  // `config.memory_limit_mb().bytes()`, `config.per_process_memory_fraction()`, ...
#define OFFCUT_OPTION(key, type, ...) \
  const type& key() const { return values_.key; }
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS

  // The layout that the options ask for, and the one that they would without `backend`.
  LayoutKind layout() const;
  LayoutKind native_layout() const;

  Origin origin(Option option) const { return sources_[static_cast<size_t>(option)].origin; }
  // The value as it was given, without whitespace, or the default's text.
  std::string text(Option option) const;

  // What the user should be told once: each is one line or, with the place marked, three.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class ConfigParser;

  struct Values {
#define OFFCUT_OPTION(key, type, default_value, ...) type key = default_value;
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
  };
  struct Source {
    Origin origin = Origin::kDefault;
    std::string text;   // "" for a default
    size_t offset = 0;  // of the value in its variable's text
  };

  Values values_;
  std::array<Source, kOptionCount> sources_;
  std::vector<std::string> warnings_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CONFIG_CONFIG_H_
