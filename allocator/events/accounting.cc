#include "allocator/events/accounting.h"

#include <algorithm>

namespace offcut {

Accounting ComputeAccounting(absl::Span<const AccountedBlock> blocks,
                             absl::Span<const AccountedGranule> granules, Bytes device_used_bytes) {
  Accounting sum;
  sum.device_used_bytes = device_used_bytes;
  for (const AccountedBlock& block : blocks) {
    if (block.pending) {
      sum.pending_bytes += block.size;
    } else {
      sum.live_bytes += block.requested;
      sum.rounding_bytes += block.size - block.requested;
    }
  }
  // One sweep over both lists: `first` is the first block that can reach into the granule.
  size_t first = 0;
  for (const AccountedGranule& granule : granules) {
    sum.reserved_bytes += granule.size;
    if (granule.address == 0) {
      sum.idle_bytes += granule.size;
      continue;
    }
    const DevicePtr end = granule.address + granule.size;
    while (first < blocks.size() && blocks[first].address + blocks[first].size <= granule.address) {
      ++first;
    }
    Bytes occupied = 0;
    for (size_t i = first; i < blocks.size() && blocks[i].address < end; ++i) {
      occupied += std::min(blocks[i].address + blocks[i].size, end) -
                  std::max(blocks[i].address, granule.address);
    }
    const Bytes free = granule.size - std::min(occupied, granule.size);
    Bytes& term = granule.in_private_pool ? sum.private_pools_free_bytes
                  : occupied > 0          ? sum.pinned_bytes
                                          : sum.idle_bytes;
    term += free;
  }
  sum.outside_bytes =
      static_cast<int64_t>(device_used_bytes) - static_cast<int64_t>(sum.reserved_bytes);
  return sum;
}

}  // namespace offcut
