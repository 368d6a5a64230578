#include "allocator/trace/recording_directory.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

// 20260131T235959.123Z
std::string UtcName(uint64_t unix_ns) {
  const time_t seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[32];
  strftime(text, sizeof(text), "%Y%m%dT%H%M%S", &utc);
  return absl::StrFormat("%s.%03dZ", text, unix_ns / 1'000'000 % 1000);
}

// Fit for a file name.
std::string PlainName(absl::string_view host) {
  std::string name(host.substr(0, 64));
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return name.empty() ? "unknown" : name;
}

absl::Status CannotCreate(const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot create the directory ", path,
                          " for the recording (record into a directory that you may write to)"));
}

// Like mkdir -p. What exists is left as it is.
absl::Status CreateWithParents(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno == EEXIST) {
    struct stat status;
    if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return absl::OkStatus();
    errno = ENOTDIR;
    return CannotCreate(path);
  }
  const size_t slash = path.find_last_of('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return CannotCreate(path);
  OFFCUT_RETURN_IF_ERROR(CreateWithParents(path.substr(0, slash)));
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return CannotCreate(path);
  return absl::OkStatus();
}

}  // namespace

RecordingProcess RecordingProcess::Current() {
  constexpr size_t kMaxCommandLineBytes = 64 * 1024;
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof(host) - 1);
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command_line(std::istreambuf_iterator<char>(file), {});
  command_line.resize(std::min(command_line.size(), kMaxCommandLineBytes));
  if (!command_line.empty() && command_line.back() == '\0') command_line.pop_back();
  std::replace(command_line.begin(), command_line.end(), '\0', ' ');
  return {.host = host, .pid = getpid(), .command_line = std::move(command_line)};
}

absl::StatusOr<std::string> CreateRecordingDirectory(absl::string_view parent,
                                                     const RecordingProcess& process,
                                                     uint64_t start_unix_ns) {
  if (parent.empty()) {
    return absl::InvalidArgumentError("the recording's directory has no name; give a path");
  }
  while (parent.size() > 1 && parent.back() == '/') parent.remove_suffix(1);
  OFFCUT_RETURN_IF_ERROR(CreateWithParents(std::string(parent)));
  const std::string base = absl::StrCat(parent, "/", UtcName(start_unix_ns), "-",
                                        PlainName(process.host), "-", process.pid);
  std::string path = base;
  for (int attempt = 2; mkdir(path.c_str(), 0700) != 0; ++attempt) {
    if (errno != EEXIST || attempt > 1000) return CannotCreate(path);
    path = absl::StrCat(base, "-", attempt);
  }
  return path;
}

}  // namespace offcut
