#include "allocator/replay/load_program.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "allocator/base/status_macros.h"
#include "allocator/replay/csv_trace.h"
#include "allocator/replay/recorded_run.h"
#include "allocator/trace/file.h"
#include "allocator/trace/format.h"
#include "allocator/trace/reader.h"

namespace offcut {
namespace {

absl::StatusOr<bool> IsRecording(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return true;
  OFFCUT_ASSIGN_OR_RETURN(const FileDescriptor file, OpenToRead(path));
  uint8_t magic[sizeof(kFileMagic)];
  OFFCUT_ASSIGN_OR_RETURN(const size_t got, ReadAt(file, path, 0, absl::MakeSpan(magic)));
  return got == sizeof(magic) && std::memcmp(magic, &kFileMagic, sizeof(magic)) == 0;
}

}  // namespace

absl::StatusOr<Program> LoadProgram(const std::string& path) {
  constexpr size_t kNamesShown = 8;
  OFFCUT_ASSIGN_OR_RETURN(const bool is_recording, IsRecording(path));
  if (!is_recording) return LoadCsvTrace(path);
  OFFCUT_ASSIGN_OR_RETURN(std::vector<std::string> files, FindTraceFiles(path));
  if (files.size() > 1) {
    const size_t count = files.size();
    if (count > kNamesShown) {
      files.resize(kNamesShown);
      files.push_back("...");
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", count,
                     " devices were recorded here, and one is replayed; name "
                     "one of ",
                     absl::StrJoin(files, ", ")));
  }
  OFFCUT_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(files[0]));
  return LoadRecordedRun(*reader);
}

}  // namespace offcut
