#include "allocator/config/option_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace offcut {
namespace {

constexpr absl::string_view kUnlimitedWord = "unlimited";

bool IsSeparator(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }

// Digits only: SimpleAtoi alone would take a sign.
bool ReadNumber(absl::string_view text, uint64_t* value) {
  return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, value);
}

// Divisions from a list `[256:1,512:2,>:4]`, as PyTorch fills them: the first boundary also fills
// every slot below it, `>` every slot above the boundary before it.
bool ReadDivisionsList(absl::Span<const Token> tokens, Divisions* value, size_t* bad_token) {
  if (!tokens.back().Is(']')) return *bad_token = tokens.size() - 1, false;
  auto& slots = value->slots;
  size_t last_slot = 0;
  bool first_boundary = true;
  size_t i = 1;  // tokens[0] is the bracket
  while (!tokens[i].Is(']')) {
    // boundary : divisions [,]  -- a bracket ends the list, so behind any other token is one more.
    const size_t boundary_at = i;
    if (!tokens[i + 1].Is(':')) return *bad_token = i + 1, false;
    const size_t divisions_at = i + 2;
    uint64_t divisions = 0;
    if (!ReadNumber(tokens[divisions_at].text, &divisions) ||
        (divisions != 0 && !IsPowerOfTwo(divisions))) {
      return *bad_token = divisions_at, false;
    }
    if (tokens[boundary_at].text == ">") {
      std::fill(slots.begin() + last_slot + 1, slots.end(), divisions);
    } else {
      uint64_t boundary_mb = 0;
      if (!ReadNumber(tokens[boundary_at].text, &boundary_mb) || !IsPowerOfTwo(boundary_mb)) {
        return *bad_token = boundary_at, false;
      }
      last_slot = std::min<size_t>(std::countr_zero(boundary_mb), slots.size() - 1);
      if (first_boundary) std::fill(slots.begin(), slots.begin() + last_slot, divisions);
      first_boundary = false;
      slots[last_slot] = divisions;
    }
    i = divisions_at + 1;
    if (tokens[i].Is(',')) {
      ++i;
    } else if (!tokens[i].Is(']')) {
      return *bad_token = i, false;
    }
  }
  return true;
}

}  // namespace

std::vector<Token> Tokenize(absl::string_view text) {
  std::vector<Token> tokens;
  Token word;
  const auto finish_word = [&] {
    if (!word.text.empty()) tokens.push_back(std::exchange(word, Token()));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsSeparator(text[i])) {
      finish_word();
      tokens.push_back({std::string(1, text[i]), i});
    } else if (!absl::ascii_isspace(static_cast<unsigned char>(text[i]))) {
      if (word.text.empty()) word.offset = i;
      word.text.push_back(text[i]);
    }
  }
  finish_word();
  return tokens;
}

bool ReadValue(absl::Span<const Token> tokens, bool* value, size_t*) {
  *value = tokens[0].text == "True";
  return tokens.size() == 1 && (*value || tokens[0].text == "False");
}

bool ReadValue(absl::Span<const Token> tokens, uint64_t* value, size_t*) {
  return tokens.size() == 1 && ReadNumber(tokens[0].text, value);
}

bool ReadValue(absl::Span<const Token> tokens, double* value, size_t*) {
  return tokens.size() == 1 && absl::SimpleAtod(tokens[0].text, value) && std::isfinite(*value);
}

bool ReadValue(absl::Span<const Token> tokens, Mebibytes* value, size_t*) {
  if (tokens.size() == 1 && tokens[0].text == kUnlimitedWord) {
    *value = Mebibytes::Unlimited();
    return true;
  }
  return tokens.size() == 1 && ReadNumber(tokens[0].text, &value->count);
}

bool ReadValue(absl::Span<const Token> tokens, Backend* value, size_t*) {
  *value = tokens[0].text == "native" ? Backend::kNative : Backend::kCudaMallocAsync;
  return tokens.size() == 1 && tokens[0].text == ShowValue(*value);
}

bool ReadValue(absl::Span<const Token> tokens, RemapMode* value, size_t*) {
  for (const RemapMode mode : {RemapMode::kOff, RemapMode::kWait, RemapMode::kAlias}) {
    *value = mode;
    if (tokens.size() == 1 && tokens[0].text == ShowValue(mode)) return true;
  }
  return false;
}

bool ReadValue(absl::Span<const Token> tokens, Divisions* value, size_t* bad_token) {
  if (tokens[0].Is('[')) return ReadDivisionsList(tokens, value, bad_token);
  uint64_t divisions = 0;
  if (tokens.size() != 1 || !ReadNumber(tokens[0].text, &divisions) || !IsPowerOfTwo(divisions)) {
    return false;
  }
  value->slots.fill(divisions);
  return true;
}

bool ReadValue(absl::Span<const Token> tokens, Unread* value, size_t*) {
  for (const Token& token : tokens) value->text += token.text;
  return true;
}

std::string ShowValue(bool value) { return value ? "True" : "False"; }
std::string ShowValue(uint64_t value) { return absl::StrCat(value); }
std::string ShowValue(double value) { return absl::StrCat(value); }
std::string ShowValue(Mebibytes value) {
  return value.unlimited() ? std::string(kUnlimitedWord) : absl::StrCat(value.count);
}
std::string ShowValue(Backend value) {
  return value == Backend::kNative ? "native" : "cudaMallocAsync";
}
std::string ShowValue(RemapMode value) {
  switch (value) {
    case RemapMode::kOff:
      return "off";
    case RemapMode::kWait:
      return "wait";
    case RemapMode::kAlias:
      return "alias";
  }
  return "?";
}

std::string ShowValue(const Unread& value) { return value.text; }

std::string ShowValue(const Divisions& value) {
  const auto& slots = value.slots;
  if (std::all_of(slots.begin(), slots.end(), [&](uint64_t v) { return v == slots[0]; })) {
    return absl::StrCat(slots[0]);
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < slots.size(); ++i) {
    parts.push_back(absl::StrCat(uint64_t{1} << i, ":", slots[i]));
  }
  return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
}

}  // namespace offcut
