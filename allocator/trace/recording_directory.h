// The directory that one process records into.

#ifndef OFFCUT_ALLOCATOR_TRACE_RECORDING_DIRECTORY_H_
#define OFFCUT_ALLOCATOR_TRACE_RECORDING_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace offcut {

inline constexpr char kChunkFileSuffix[] = ".offcut";
inline constexpr char kRingFileSuffix[] = ".ring";

// Who records: part of the directory's name and of every file's head.
struct RecordingProcess {
  std::string host;
  int64_t pid = 0;
  std::string command_line;

  static RecordingProcess Current();
};

// Creates `parent` if it is missing, with all its parents, and in it a new directory
// <UTC start>-<host>-<pid>, all of mode 0700; returns the path of the new one. Should that name be
// taken, "-2", "-3", ... follow it. An error names the path and the remedy.
absl::StatusOr<std::string> CreateRecordingDirectory(absl::string_view parent,
                                                     const RecordingProcess& process,
                                                     uint64_t start_unix_ns);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_RECORDING_DIRECTORY_H_
