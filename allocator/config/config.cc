#include "allocator/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "allocator/config/fault.h"

namespace offcut {
namespace {

// The option of a key or of another spelling of it.
std::optional<Option> FindOption(absl::string_view key) {
#define OFFCUT_OPTION(name, ...) \
  if (key == #name) return Option::name;
#define OFFCUT_OPTION_ALIAS(alias, name) \
  if (key == #alias) return Option::name;
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
  return std::nullopt;
}

std::vector<absl::string_view> AllKeys() {
  return {
#define OFFCUT_OPTION(name, ...) #name,
#define OFFCUT_OPTION_ALIAS(alias, name) #alias,
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
  };
}

const OptionDescription& Describe(Option option) {
  return OptionDescriptions()[static_cast<size_t>(option)];
}

// Where else an option would have an effect that has none in `layout`, after "has no effect": "" if
// it has one here.
std::string WithoutEffect(OptionStatus status, LayoutKind layout) {
  const auto only_in = [layout](LayoutKind kind, const char* name, const char* option) {
    return layout == kind ? "" : absl::StrCat(" but in the ", name, " layout (", option, ")");
  };
  switch (status) {
    case OptionStatus::kWorks:
      return "";
    case OptionStatus::kSegments:
      return only_in(LayoutKind::kSegments, "segments", "expandable_segments:False");
    case OptionStatus::kAsync:
      return only_in(LayoutKind::kAsync, "async", "backend:cudaMallocAsync");
    case OptionStatus::kNotYet:
    case OptionStatus::kNoMeaning:
      break;
  }
  return " here";
}

std::optional<std::string> Environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

}  // namespace

// Reads one variable's text into a Config.
class ConfigParser {
 public:
  ConfigParser(Origin origin, absl::string_view text, Config* config)
      : origin_(origin), text_(text), tokens_(Tokenize(text)), config_(*config) {}

  // Stops at the first fault of OFFCUT_CONF; steps over those of other variables.
  absl::Status Run() {
    while (next_ < tokens_.size()) {
      const size_t entry = next_;
      if (std::optional<Fault> fault = ReadEntry(); fault.has_value()) {
        if (origin_ == Origin::kOffcutConf) return absl::InvalidArgumentError(Show(*fault));
        config_.warnings_.push_back(absl::StrCat("ignored: ", Show(*fault)));
        next_ = EndOfEntry(entry);
      }
      ++next_;  // the comma
    }
    return absl::OkStatus();
  }

  // PyTorch's two checks of one option against another, once all variables are read.
  static absl::Status CheckBounds(const ConfigTexts& texts, Config* config);

 private:
  std::string Show(const Fault& fault) const {
    return ShowFault(OriginName(origin_), text_, fault);
  }
  bool At(char separator) const { return next_ < tokens_.size() && tokens_[next_].Is(separator); }
  size_t Offset() const { return next_ < tokens_.size() ? tokens_[next_].offset : text_.size(); }

  // The next comma outside brackets, or the end.
  size_t EndOfEntry(size_t i) const {
    for (int depth = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].Is('[')) ++depth;
      if (tokens_[i].Is(']')) --depth;
      if (depth <= 0 && tokens_[i].Is(',')) break;
    }
    return i;
  }

  // key : value, where a value is a word or a list. Leaves next_ at the comma behind, or the end.
  std::optional<Fault> ReadEntry() {
    const Token& key = tokens_[next_];
    if (key.Is(',') || key.Is(':') || key.Is('[') || key.Is(']')) {
      return Fault{key.offset,
                   absl::StrCat("the name of an option must stand here, not '", key.text, "'")};
    }
    ++next_;
    const std::optional<Option> option = FindOption(key.text);
    if (!option.has_value()) {
      return Fault{key.offset, absl::StrCat("unknown option ", Quote(key.text),
                                            SuggestFor(key.text, AllKeys()))};
    }
    if (!At(':')) {
      return Fault{Offset(), absl::StrCat("':' and a value must follow ", key.text)};
    }
    ++next_;
    const size_t begin = next_;
    if (At('[')) {
      while (next_ < tokens_.size() && !At(']')) ++next_;
      if (next_ == tokens_.size()) {
        return Fault{tokens_[begin].offset,
                     absl::StrCat("the list of ", key.text, " has no closing ']'")};
      }
    } else if (next_ == tokens_.size() || At(',') || At(':') || At(']')) {
      return Fault{Offset(),
                   absl::StrCat(key.text, " has no value; it must be ", Describe(*option).allowed)};
    }
    ++next_;
    if (next_ < tokens_.size() && !At(',')) {
      return Fault{Offset(), absl::StrCat("',' must follow the value of ", key.text)};
    }
    return SetValue(*option, absl::MakeConstSpan(tokens_).subspan(begin, next_ - begin));
  }

  std::optional<Fault> SetValue(Option option, absl::Span<const Token> value) {
    Config::Source source{.origin = origin_, .offset = value[0].offset};
    for (const Token& token : value) source.text += token.text;
    size_t bad_token = 0;
    const auto fault = [&] {
      return Fault{value[bad_token].offset,
                   absl::StrCat(Describe(option).key, " must be ", Describe(option).allowed,
                                ", not ", Quote(source.text))};
    };
    switch (option) {
#define OFFCUT_OPTION(key, type, default_value, unit, allowed, is_allowed, ...) \
  case Option::key: {                                                           \
    type v{};                                                                   \
    if (!ReadValue(value, &v, &bad_token) || !(is_allowed)) return fault();     \
    config_.values_.key = v;                                                    \
    break;                                                                      \
  }
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
    }
    config_.sources_[static_cast<size_t>(option)] = std::move(source);
    return std::nullopt;
  }

  const Origin origin_;
  const absl::string_view text_;
  const std::vector<Token> tokens_;
  Config& config_;
  size_t next_ = 0;
};

absl::Status ConfigParser::CheckBounds(const ConfigTexts& texts, Config* config) {
  Config::Values& values = config->values_;
  const Mebibytes at_least = values.large_segment_size_mb;
  if (config->origin(Option::max_non_split_rounding_mb) == Origin::kDefault) {
    values.max_non_split_rounding_mb = at_least;
  }
  const std::pair<Option, Mebibytes*> bounded[] = {
      {Option::max_split_size_mb, &values.max_split_size_mb},
      {Option::max_non_split_rounding_mb, &values.max_non_split_rounding_mb}};
  for (const auto& [option, value] : bounded) {
    if (value->count >= at_least.count) continue;
    Config::Source& source = config->sources_[static_cast<size_t>(option)];
    const std::string& text =
        *(source.origin == Origin::kOffcutConf             ? texts.offcut_conf
          : source.origin == Origin::kPytorchCudaAllocConf ? texts.pytorch_cuda_alloc_conf
                                                           : texts.pytorch_alloc_conf);
    const std::string message = ShowFault(
        OriginName(source.origin), text,
        {source.offset, absl::StrCat(Describe(option).key, " must be ", Describe(option).allowed,
                                     ", which is ", at_least.count, " (",
                                     OriginName(config->origin(Option::large_segment_size_mb)),
                                     "), not '", value->count, "'")});
    if (source.origin == Origin::kOffcutConf ||
        config->origin(Option::large_segment_size_mb) == Origin::kOffcutConf) {
      return absl::InvalidArgumentError(message);
    }
    config->warnings_.push_back(absl::StrCat("ignored: ", message));
    source = {};
    *value = option == Option::max_split_size_mb ? Mebibytes::Unlimited() : at_least;
  }
  return absl::OkStatus();
}

absl::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kPytorchAllocConf:
      return "PYTORCH_ALLOC_CONF";
    case Origin::kPytorchCudaAllocConf:
      return "PYTORCH_CUDA_ALLOC_CONF";
    case Origin::kOffcutConf:
      return "OFFCUT_CONF";
  }
  return "";
}

absl::Span<const OptionDescription> OptionDescriptions() {
  static const auto& descriptions = *new std::vector<OptionDescription>{
#define OFFCUT_OPTION(key, type, default_value, unit, allowed, is_allowed, status, note, sentence) \
  {Option::key, #key,    ShowValue(static_cast<type>(default_value)),                              \
   unit,        allowed, OptionStatus::status,                                                     \
   note,        sentence},
#define OFFCUT_OPTION_ALIAS(alias, key)
#include "allocator/config/options.def"
#undef OFFCUT_OPTION
#undef OFFCUT_OPTION_ALIAS
  };
  return descriptions;
}

absl::StatusOr<Config> Config::Parse(const ConfigTexts& texts) {
  Config config;
  if (texts.pytorch_cuda_alloc_conf.has_value()) {
    ConfigParser(Origin::kPytorchCudaAllocConf, *texts.pytorch_cuda_alloc_conf, &config)
        .Run()
        .IgnoreError();  // its faults are warnings
  } else if (texts.pytorch_alloc_conf.has_value()) {
    ConfigParser(Origin::kPytorchAllocConf, *texts.pytorch_alloc_conf, &config).Run().IgnoreError();
  }
  if (texts.offcut_conf.has_value()) {
    absl::Status status = ConfigParser(Origin::kOffcutConf, *texts.offcut_conf, &config).Run();
    if (!status.ok()) return status;
  }
  absl::Status status = ConfigParser::CheckBounds(texts, &config);
  if (!status.ok()) return status;
  for (const OptionDescription& row : OptionDescriptions()) {
    if (config.origin(row.option) != Origin::kOffcutConf) continue;
    if (const std::string why = WithoutEffect(row.status, config.layout()); !why.empty()) {
      config.warnings_.push_back(
          absl::StrCat("OFFCUT_CONF: ", row.key, " has no effect", why, ". ", row.note));
    }
  }
  return config;
}

absl::StatusOr<Config> Config::FromEnvironment() {
  return Parse({.offcut_conf = Environment("OFFCUT_CONF"),
                .pytorch_cuda_alloc_conf = Environment("PYTORCH_CUDA_ALLOC_CONF"),
                .pytorch_alloc_conf = Environment("PYTORCH_ALLOC_CONF")});
}

LayoutKind Config::native_layout() const {
  return expandable_segments() ? LayoutKind::kArena : LayoutKind::kSegments;
}

LayoutKind Config::layout() const {
  return backend() == Backend::kCudaMallocAsync ? LayoutKind::kAsync : native_layout();
}

std::string Config::text(Option option) const {
  const Source& source = sources_[static_cast<size_t>(option)];
  if (source.origin != Origin::kDefault) return source.text;
  if (option == Option::max_non_split_rounding_mb) return ShowValue(max_non_split_rounding_mb());
  return Describe(option).default_text;
}

}  // namespace offcut
