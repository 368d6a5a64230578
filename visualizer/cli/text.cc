#include "visualizer/cli/text.h"

#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace offcut {

std::string ShowBytes(Bytes bytes) {
  if (bytes < kKiB) return absl::StrCat(bytes, " B");
  constexpr absl::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / kKiB;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, kUnits[unit]);
}

std::string ShowCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped.push_back(',');
    grouped.push_back(digits[i]);
  }
  return grouped;
}

std::string ShowDuration(uint64_t ns) {
  constexpr uint64_t kMinute = 60'000'000'000;
  const double exact = static_cast<double>(ns);
  if (ns < 1'000'000) return absl::StrFormat("%.3g us", exact / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.2f ms", exact / 1e6);
  if (ns < 2 * kMinute) return absl::StrFormat("%.3f s", exact / 1e9);
  const uint64_t minutes = ns / kMinute;
  return minutes < 60 ? absl::StrFormat("%d min %02d s", minutes, ns % kMinute / 1'000'000'000)
                      : absl::StrFormat("%d h %02d min", minutes / 60, minutes % 60);
}

std::string ShowForeign(absl::string_view text) {
  std::string shown(text);
  for (char& c : shown) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return shown;
}

}  // namespace offcut
