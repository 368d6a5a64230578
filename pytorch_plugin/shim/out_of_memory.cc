// A request that is not served: PyTorch's last resorts before, and the exception after.

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAException.h>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::format_size;

}  // namespace

bool RunFreeMemoryCallbacks() noexcept {
  bool freed = false;
  try {
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
  } catch (...) {  // what it has not freed is missing, and the request fails for that
  }
  return freed;
}

void TorchAllocator::ThrowFailed(DeviceIndex device, size_t bytes, offcut_status status) {
  if (status == OFFCUT_OUT_OF_MEMORY) ThrowOutOfMemory(device, bytes);
  if (status == OFFCUT_CALLBACK_FAILED) RethrowCallbackError();
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
      counters.held_bytes[OFFCUT_ALL].current, c10::Device(c10::kCUDA, device));
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
