// A second allocator between PyTorch and ours, which counts by itself: a pluggable allocator that
// hands each call on and writes it down, in a file of its own, the moment that it has an answer.

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "allocator/offcut.h"

namespace {

// Held over the call as well: the lines stand in the order in which ours saw the calls.
std::mutex mutex;

std::FILE* Log() {
  static std::FILE* const log = std::fopen(std::getenv("COUNTING_ALLOCATOR_LOG"), "w");
  return log;
}

void Write(const char* what, void* pointer, ssize_t size) {
  std::fprintf(Log(), "%s %zu %zd\n", what, reinterpret_cast<size_t>(pointer), size);
  std::fflush(Log());
}

}  // namespace

extern "C" OFFCUT_API void* counting_malloc(ssize_t size, int device, offcut_stream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  void* pointer = offcut_malloc(size, device, stream);
  Write("malloc", pointer, size);
  return pointer;
}

extern "C" OFFCUT_API void counting_free(void* pointer, ssize_t size, int device,
                                         offcut_stream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  Write("free", pointer, size);
  offcut_free(pointer, size, device, stream);
}
