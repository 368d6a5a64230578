// A tracker of PyTorch's allocator trace, for the tests: keeps each entry as a line of text.
//
// Loaded by ctypes into a process with PyTorch, whatever its allocator is.

#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string lines;

void Track(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  const std::lock_guard<std::mutex> lock(mutex);
  lines += std::to_string(static_cast<int>(entry.action_)) + " " + std::to_string(entry.size_) +
           " " + std::to_string(entry.mempool_.second) +
           (entry.context_ == nullptr ? " none\n" : " context\n");
}

}  // namespace

extern "C" void attach_tracker() {
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&Track);
}

// Valid until the next call of either function.
extern "C" const char* tracked_lines() {
  static std::string copy;
  const std::lock_guard<std::mutex> lock(mutex);
  copy = lines;
  return copy.c_str();
}
