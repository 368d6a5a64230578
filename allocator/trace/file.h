// The few file operations of the recording, as absl::Status that names path and cause.
//
// Promises: what is created is a new file of mode 0600, never through a symbolic link and never
// inherited by a program that this process executes; what is read is a regular file.

#ifndef OFFCUT_ALLOCATOR_TRACE_FILE_H_
#define OFFCUT_ALLOCATOR_TRACE_FILE_H_

#include <signal.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace offcut {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Fails if `path` exists.
absl::StatusOr<FileDescriptor> CreateFile(const std::string& path);

// NotFound if there is none, InvalidArgument if it is no regular file.
absl::StatusOr<FileDescriptor> OpenToRead(const std::string& path);

absl::StatusOr<uint64_t> FileSize(const FileDescriptor& file, const std::string& path);

// Writes all of `bytes` at `offset`. After an error any part of it may have been written.
absl::Status WriteAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                     absl::string_view bytes);

// Reads up to `bytes.size()` bytes at `offset` and returns how many there were: fewer only at the
// end of the file.
absl::StatusOr<size_t> ReadAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                              absl::Span<uint8_t> bytes);

// While it lives, writing beyond the process's limit on file sizes (ulimit -f) is an error of the
// call and not a signal that ends the program. For the calling thread.
class FileSizeSignalBlocker {
 public:
  FileSizeSignalBlocker();
  ~FileSizeSignalBlocker();
  FileSizeSignalBlocker(const FileSizeSignalBlocker&) = delete;
  FileSizeSignalBlocker& operator=(const FileSizeSignalBlocker&) = delete;

 private:
  sigset_t before_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_FILE_H_
