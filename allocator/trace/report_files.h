// ReportFiles: the reports of requests that failed, as text files in a recording's directory.
//
// Private to the user (mode 0600), and never more than kFirst + kLatest of them, however often a
// program fails: the first ones stay, and of the others the latest. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_REPORT_FILES_H_
#define OFFCUT_ALLOCATOR_TRACE_REPORT_FILES_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace offcut {

class ReportFiles {
 public:
  static constexpr uint64_t kFirst = 8;
  static constexpr uint64_t kLatest = 8;

  // `directory` exists.
  explicit ReportFiles(std::string directory) : directory_(std::move(directory)) {}

  // Writes the text to a file of its own and returns its path. A reader finds a whole file or none.
  absl::StatusOr<std::string> Save(absl::string_view text);

 private:
  const std::string directory_;
  std::atomic<uint64_t> saved_{0};
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_REPORT_FILES_H_
