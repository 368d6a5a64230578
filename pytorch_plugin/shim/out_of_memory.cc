// A request that was not served: PyTorch's last resorts, and the exception.

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAException.h>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::format_size;

// True if one of the callbacks that libraries register (CUDA IPC does) has freed something.
bool RunFreeMemoryCallbacks() {
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return freed;
}

}  // namespace

void* TorchAllocator::AllocateSlow(DeviceIndex device, cudaStream_t stream, size_t bytes,
                                   offcut_status status) {
  void* pointer = nullptr;
  if (status == OFFCUT_OUT_OF_MEMORY && RunFreeMemoryCallbacks()) {
    status = offcut_allocate(device, stream, bytes, &pointer);
  }
  if (status == OFFCUT_OK) return pointer;
  if (status == OFFCUT_OUT_OF_MEMORY) ThrowOutOfMemory(device, bytes);
  TORCH_CHECK_NOT_IMPLEMENTED(status != OFFCUT_CAPTURING,
                              "Offcut does not support allocations during the capture of a CUDA "
                              "graph yet: its private pools "
                              "are not built. ",
                              offcut_last_error());
  CheckStatus(status, "allocate");
  TORCH_CHECK(false, "Offcut, allocate: no memory and no reason. This is a defect of Offcut.");
}

void TorchAllocator::ThrowOutOfMemory(DeviceIndex device, size_t bytes) {
  // Copied first: the calls below and the observers may allocate, fail, and replace it.
  const std::string report = offcut_out_of_memory_report();
  offcut_counters counters{};
  if (offcut_get_counters(device, &counters) != OFFCUT_OK) counters = {};
  size_t free = 0, total = 0;
  // May fail where memory is out: then the sizes are zero, and the sentence stays readable.
  C10_CUDA_IGNORE_ERROR(cudaMemGetInfo(&free, &total));

  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(bytes), counters.allocated_bytes[OFFCUT_ALL].current,
      counters.reserved_bytes[OFFCUT_ALL].current, c10::Device(c10::kCUDA, device));
  std::vector<cca::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(observers_mutex_);
    observers = out_of_memory_observers_;
  }
  // Without a lock: a Python observer takes the GIL.
  for (const auto& observe : observers) {
    observe(device, bytes, std::min<size_t>(total, counters.limit_bytes), free);
  }
  // The first two sentences are PyTorch's own: programs match them.
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ",
                   format_size(bytes), ". GPU ", int{device}, " has a total capacity of ",
                   format_size(total), " of which ", format_size(free), " is free.\n", report);
}

void TorchAllocator::attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex_);
  out_of_memory_observers_.push_back(std::move(observer));
}

}  // namespace offcut::torch_shim
