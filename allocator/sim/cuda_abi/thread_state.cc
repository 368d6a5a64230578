#include "allocator/sim/cuda_abi/thread_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace offcut::cuda_abi {

ThreadState& CurrentThread() {
  constinit thread_local ThreadState state = {};
  return state;
}

int SetRuntimeError(int error) {
  if (error != 0) CurrentThread().last_error = error;
  return error;
}

void Report(const char* format, ...) {
  constexpr char kPrefix[] = "simulated CUDA: ";
  constexpr size_t kPrefixLength = sizeof kPrefix - 1;
  char line[1024];
  std::copy_n(kPrefix, kPrefixLength, line);
  const size_t room = sizeof line - kPrefixLength - 1;
  va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(line + kPrefixLength, room, format, arguments);
  va_end(arguments);
  size_t length = kPrefixLength + std::min(static_cast<size_t>(std::max(wanted, 0)), room - 1);
  line[length++] = '\n';
  // Nothing can be done where standard error is closed.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length);
}

}  // namespace offcut::cuda_abi
