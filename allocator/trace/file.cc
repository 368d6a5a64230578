#include "allocator/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace offcut {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<FileDescriptor> CreateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  return FileDescriptor(fd);
}

absl::StatusOr<FileDescriptor> OpenToRead(const std::string& path) {
  // Not blocking: opening a named pipe would wait for a writer.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat status;
  if (fstat(file.get(), &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot examine ", path));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return file;
}

absl::StatusOr<uint64_t> FileSize(const FileDescriptor& file, const std::string& path) {
  struct stat status;
  if (fstat(file.get(), &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot examine ", path));
  }
  return static_cast<uint64_t>(status.st_size);
}

absl::Status WriteAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                     absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    // Nothing written without an error is what some file systems do when they are full.
    if (written <= 0) {
      return absl::ErrnoToStatus(written < 0 ? errno : ENOSPC, absl::StrCat("cannot write ", path));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> ReadAt(const FileDescriptor& file, const std::string& path, uint64_t offset,
                              absl::Span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(file.get(), bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat("cannot read ", path, " at offset ", offset + done));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

FileSizeSignalBlocker::FileSizeSignalBlocker() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

FileSizeSignalBlocker::~FileSizeSignalBlocker() {
  if (!sigismember(&before_, SIGXFSZ)) {
    // Takes back the signal, if there is one, before it can be delivered.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGXFSZ);
    const timespec at_once = {};
    while (sigtimedwait(&signals, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace offcut
