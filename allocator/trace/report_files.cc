#include "allocator/trace/report_files.h"

#include <errno.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/file.h"

namespace offcut {

absl::StatusOr<std::string> ReportFiles::Save(absl::string_view text) {
  const uint64_t number = saved_.fetch_add(1, std::memory_order_relaxed);
  const std::string stem = absl::StrCat(directory_, "/out-of-memory-");
  const std::string path =
      number < kFirst ? absl::StrCat(stem, number + 1, ".txt")
                      : absl::StrCat(stem, "latest-", (number - kFirst) % kLatest + 1, ".txt");
  const std::string partial = absl::StrCat(stem, number + 1, ".partial");
  const FileSizeSignalBlocker no_signal;
  OFFCUT_ASSIGN_OR_RETURN(const FileDescriptor file, CreateFile(partial));
  absl::Status status = WriteAt(file, partial, 0, text);
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot rename the report to ", path));
  }
  if (!status.ok()) {
    unlink(partial.c_str());
    return status;
  }
  return path;
}

}  // namespace offcut
