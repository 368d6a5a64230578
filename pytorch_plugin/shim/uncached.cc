// Without a cache: PYTORCH_NO_CUDA_MEMORY_CACHING=1 and caching_allocator_enable(False), for tools
// that check each cudaMalloc and cudaFree. As native: such memory is in no statistic, and is freed
// by a deleter of its own, whatever the switch says by then.

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/env.h>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {

void TorchAllocator::enable(bool value) { enabled_ = value; }

bool TorchAllocator::isEnabled() const { return enabled_; }

bool TorchAllocator::ForcedUncached() {
  static const bool forced = c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") == true;
  return forced;
}

void* TorchAllocator::AllocateUncached(size_t bytes) {
  void* pointer = nullptr;
  // An error, as natively, also while a graph is being captured.
  C10_CUDA_CHECK(cudaMalloc(&pointer, bytes));
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
  return pointer;
}

void TorchAllocator::DeleteUncached(void* pointer) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
  C10_CUDA_CHECK(cudaFree(pointer));
}

}  // namespace offcut::torch_shim
