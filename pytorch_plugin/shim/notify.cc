// Those whom native tells of each block, and who therefore expect it: the profiler
// (profile_memory=True) and torch.cuda's trace. Both are off in a normal run, which pays two loads.

#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

void TellProfiler(const offcut_block& block, int64_t change_bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  offcut_counters counters;
  if (offcut_get_counters(block.device, &counters) != OFFCUT_OK) return;
  c10::reportMemoryUsageToProfiler(block.address, change_bytes,
                                   counters.allocated_bytes[OFFCUT_ALL].current,
                                   counters.held_bytes[OFFCUT_ALL].current,
                                   c10::Device(c10::kCUDA, static_cast<DeviceIndex>(block.device)));
}

}  // namespace

bool SomebodyListens() {
  return c10::impl::GPUTrace::get_trace() != nullptr || c10::memoryProfilingEnabled();
}

void NotifyAllocated(void* pointer) {
  offcut_block block;
  if (offcut_find_block(pointer, &block) != OFFCUT_OK) return;
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
  TellProfiler(block, static_cast<int64_t>(block.size));
}

void NotifyFreed(const offcut_block& block) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(block.address));
  }
  TellProfiler(block, -static_cast<int64_t>(block.size));
}

}  // namespace offcut::torch_shim
