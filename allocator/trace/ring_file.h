// RingFile: reads a ring from outside, while its process lives or after it died.
//
// Owns an open file and reads it with system calls: a mapping of a file that somebody cuts short
// would kill the reader. Treats the file as hostile. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_RING_FILE_H_
#define OFFCUT_ALLOCATOR_TRACE_RING_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/events/event.h"
#include "allocator/trace/file.h"

namespace offcut {

class RingFile {
 public:
  struct Position {
    uint64_t head = 0;
    uint64_t tail = 0;
    uint64_t dropped_events = 0;
  };

  // `file_header`: the first bytes of the chunk file that the ring must belong to. NotFound if
  // there is no such file.
  static absl::StatusOr<RingFile> Open(const std::string& path, absl::string_view file_header);

  absl::StatusOr<Position> ReadPosition() const;

  // Replaces `events` with those from index `first` to before `end`, at most a ring full. In a run
  // still going the writer may overwrite slots meanwhile: only events whose index is at or above a
  // tail that is read *afterwards* are what they were.
  absl::Status Read(uint64_t first, uint64_t end, std::vector<Event>* events) const;

  uint64_t capacity_events() const { return capacity_events_; }

 private:
  RingFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status ReadExactly(uint64_t offset, void* bytes, size_t size) const;

  std::string path_;
  FileDescriptor file_;
  uint64_t capacity_events_ = 0;
  uint64_t slots_offset_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_RING_FILE_H_
