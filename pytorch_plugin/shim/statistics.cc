// torch.cuda.memory_stats and its resets. The moments at which native's figures change are those at
// which ours do: a free lowers `allocation` at once, `active` and `requested_bytes` when the block
// is really free; reserved memory that is mapped, not cudaMalloc'ed, makes no segments.

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

static_assert(static_cast<int>(StatType::AGGREGATE) == OFFCUT_ALL);
static_assert(static_cast<int>(StatType::SMALL_POOL) == OFFCUT_SMALL);
static_assert(static_cast<int>(StatType::LARGE_POOL) == OFFCUT_LARGE);

StatArray ToStats(const offcut_gauge (&gauges)[3]) {
  StatArray stats;
  for (size_t i = 0; i < stats.size(); ++i) {
    stats[i].current = gauges[i].current;
    stats[i].peak = gauges[i].peak;
    stats[i].allocated = gauges[i].risen;
    stats[i].freed = gauges[i].fallen;
  }
  return stats;
}

// Native's value where nothing limits the splitting of blocks.
constexpr int64_t kNoMaxSplitSize = -1;

}  // namespace

cca::DeviceStats TorchAllocator::getDeviceStats(DeviceIndex device) {
  offcut_counters counters;
  CheckStatus(offcut_get_counters(device, &counters), "memory_stats");
  // `segment`, `inactive_split*` and `oversize_*` stay zero, as native's do with expandable
  // segments and no max_split_size.
  cca::DeviceStats stats;
  stats.allocation = ToStats(counters.allocations);
  stats.allocated_bytes = ToStats(counters.allocated_bytes);
  stats.active = ToStats(counters.active_blocks);
  stats.active_bytes = ToStats(counters.active_bytes);
  stats.requested_bytes = ToStats(counters.active_requested_bytes);
  stats.reserved_bytes = ToStats(counters.reserved_bytes);
  stats.num_alloc_retries = static_cast<int64_t>(counters.release_retries);
  stats.num_ooms = static_cast<int64_t>(counters.out_of_memory);
  stats.num_sync_all_streams = static_cast<int64_t>(counters.device_waits);
  stats.num_device_alloc = static_cast<int64_t>(counters.granules_created);
  stats.num_device_free = static_cast<int64_t>(counters.granules_released);
  stats.max_split_size = kNoMaxSplitSize;
  return stats;
}

void TorchAllocator::resetAccumulatedStats(DeviceIndex device) {
  CheckStatus(offcut_reset_totals(device), "reset_accumulated_memory_stats");
}

void TorchAllocator::resetPeakStats(DeviceIndex device) {
  CheckStatus(offcut_reset_peaks(device), "reset_peak_memory_stats");
}

}  // namespace offcut::torch_shim
