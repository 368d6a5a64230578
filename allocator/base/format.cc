#include "allocator/base/format.h"

#include "absl/strings/str_format.h"

namespace offcut {

std::string FormatBytes(Bytes bytes) {
  if (bytes < kKiB) return absl::StrFormat("%d B", bytes);
  if (bytes < kMiB) return absl::StrFormat("%.2f KiB", static_cast<double>(bytes) / kKiB);
  if (bytes < kGiB) return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / kMiB);
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGiB);
}

}  // namespace offcut
