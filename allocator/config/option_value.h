// The types that options have, and how each is read from text and shown as text.
//
// Owns no state: values, and pure functions over untrusted text that neither crash nor throw.

#ifndef OFFCUT_ALLOCATOR_CONFIG_OPTION_VALUE_H_
#define OFFCUT_ALLOCATOR_CONFIG_OPTION_VALUE_H_

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"

namespace offcut {

// A size as PyTorch's options give it: PyTorch writes "mb" and means MiB.
struct Mebibytes {
  uint64_t count = 0;

  static constexpr Mebibytes Unlimited() { return {std::numeric_limits<uint64_t>::max()}; }
  constexpr bool unlimited() const { return bytes() == std::numeric_limits<Bytes>::max(); }
  // 2^64-1 for what does not fit, as for unlimited.
  constexpr Bytes bytes() const {
    constexpr Bytes kMax = std::numeric_limits<Bytes>::max();
    return count > kMax / kMiB ? kMax : count * kMiB;
  }
  bool operator==(const Mebibytes&) const = default;
};

enum class Backend : uint8_t { kNative, kCudaMallocAsync };

// Whether and when the arena layout moves granules; see allocator/README.md.
enum class RemapMode : uint8_t { kOff, kWait, kAlias };

// Per range of sizes, into how many parts a power of two is divided for rounding; 0: no rounding.
// Slot i holds sizes from 2^i MiB up to 2^(i+1); the first also everything below, the last above.
struct Divisions {
  std::array<uint64_t, 16> slots{};
  bool operator==(const Divisions&) const = default;
};

// The value of an option that has no meaning here: one word, or a list.
struct Unread {
  std::string text;
  bool operator==(const Unread&) const = default;
};

inline constexpr bool IsPowerOfTwo(uint64_t value) { return std::has_single_bit(value); }

// A run of text without whitespace, or one of the separators `:` `,` `[` `]`.
struct Token {
  std::string text;
  size_t offset = 0;  // of its first byte in the whole text

  bool Is(char separator) const { return text.size() == 1 && text[0] == separator; }
};

// PyTorch's tokenizer: whitespace is dropped, also within a word.
std::vector<Token> Tokenize(absl::string_view text);

// Reads a whole value from its tokens (one word, or a list with its brackets). False if they do not
// have the type's form; then `*bad_token` is the index of the token at fault, unless it is the
// first.
bool ReadValue(absl::Span<const Token> tokens, bool* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, uint64_t* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, double* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, Mebibytes* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, Backend* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, RemapMode* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, Divisions* value, size_t* bad_token);
bool ReadValue(absl::Span<const Token> tokens, Unread* value, size_t* bad_token);

// Text that reads back as the value (for Divisions, with all 16 slots unless they are equal).
std::string ShowValue(bool value);
std::string ShowValue(uint64_t value);
std::string ShowValue(double value);
std::string ShowValue(Mebibytes value);
std::string ShowValue(Backend value);
std::string ShowValue(RemapMode value);
std::string ShowValue(const Divisions& value);
std::string ShowValue(const Unread& value);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CONFIG_OPTION_VALUE_H_
