// torch.cuda.memory_stats and its resets. The moments at which native's figures change are those at
// which ours do: a free lowers `allocation` at once, `active` and `requested_bytes` when the block
// is really free; reserved memory that is mapped, not cudaMalloc'ed, makes no segments. In the
// segments layout all figures are native's, number for number.

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

static_assert(static_cast<int>(StatType::AGGREGATE) == OFFCUT_ALL);
static_assert(static_cast<int>(StatType::SMALL_POOL) == OFFCUT_SMALL);
static_assert(static_cast<int>(StatType::LARGE_POOL) == OFFCUT_LARGE);

Stat ToStat(const offcut_gauge& gauge) {
  Stat stat;
  stat.current = gauge.current;
  stat.peak = gauge.peak;
  stat.allocated = gauge.risen;
  stat.freed = gauge.fallen;
  return stat;
}

StatArray ToStats(const offcut_gauge (&gauges)[3]) {
  StatArray stats;
  for (size_t i = 0; i < stats.size(); ++i) stats[i] = ToStat(gauges[i]);
  return stats;
}

}  // namespace

cca::DeviceStats TorchAllocator::getDeviceStats(DeviceIndex device) {
  offcut_counters counters;
  CheckStatus(offcut_get_counters(device, &counters), "memory_stats");
  offcut_segment_counters segments;
  CheckStatus(offcut_get_segment_counters(device, &segments), "memory_stats");
  cca::DeviceStats stats;
  stats.allocation = ToStats(counters.allocations);
  stats.allocated_bytes = ToStats(counters.allocated_bytes);
  stats.active = ToStats(counters.active_blocks);
  stats.active_bytes = ToStats(counters.active_bytes);
  stats.requested_bytes = ToStats(counters.active_requested_bytes);
  stats.reserved_bytes = ToStats(counters.held_bytes);
  stats.num_alloc_retries = static_cast<int64_t>(counters.release_retries);
  stats.num_ooms = static_cast<int64_t>(counters.out_of_memory);
  stats.num_sync_all_streams = static_cast<int64_t>(counters.device_waits);
  stats.num_device_alloc = static_cast<int64_t>(counters.granules_created);
  stats.num_device_free = static_cast<int64_t>(counters.granules_released);
  stats.segment = ToStats(segments.segments);
  stats.inactive_split = ToStats(segments.remainders);
  stats.inactive_split_bytes = ToStats(segments.remainder_bytes);
  stats.oversize_allocations = ToStat(segments.oversize_blocks);
  stats.oversize_segments = ToStat(segments.oversize_segments);
  // As native: -1 where nothing limits the splitting of blocks.
  stats.max_split_size = static_cast<int64_t>(segments.max_split_bytes);
  return stats;
}

void TorchAllocator::resetAccumulatedStats(DeviceIndex device) {
  CheckStatus(offcut_reset_totals(device), "reset_accumulated_memory_stats");
}

void TorchAllocator::resetPeakStats(DeviceIndex device) {
  CheckStatus(offcut_reset_peaks(device), "reset_peak_memory_stats");
}

}  // namespace offcut::torch_shim
