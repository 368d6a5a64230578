#include "allocator/config/fault.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace offcut {
namespace {

constexpr size_t kLineWidth = 90;
constexpr size_t kLongestWord = 64;

std::string Printable(absl::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return result;
}

// Levenshtein's distance, by rows.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string ShowFault(absl::string_view variable, absl::string_view text, const Fault& fault) {
  const size_t begin = fault.offset < kLineWidth ? 0 : fault.offset - kLineWidth / 2;
  const absl::string_view before = begin == 0 ? "" : "...";
  const absl::string_view shown = text.substr(begin, kLineWidth);
  const absl::string_view after = begin + shown.size() < text.size() ? "..." : "";
  return absl::StrCat(variable, ", column ", fault.offset + 1, ": ", fault.message, "\n  ", before,
                      Printable(shown), after, "\n  ",
                      std::string(before.size() + fault.offset - begin, ' '), "^");
}

std::string Quote(absl::string_view word) {
  return absl::StrCat("'", Printable(word.substr(0, kLongestWord)),
                      word.size() > kLongestWord ? "..." : "", "'");
}

std::string SuggestFor(absl::string_view word, absl::Span<const absl::string_view> keys) {
  const absl::string_view nothing_near = "; `offcut options` lists all options";
  if (word.size() > kLongestWord) return std::string(nothing_near);
  const auto nearest = std::min_element(keys.begin(), keys.end(), [&](auto a, auto b) {
    return EditDistance(word, a) < EditDistance(word, b);
  });
  if (nearest == keys.end() ||
      EditDistance(word, *nearest) > std::max<size_t>(2, word.size() / 3)) {
    return std::string(nothing_near);
  }
  return absl::StrCat("; did you mean '", *nearest, "'?");
}

}  // namespace offcut
