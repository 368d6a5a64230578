#include "allocator/events/accounting.h"

#include <algorithm>

namespace offcut {

Accounting ComputeAccounting(absl::Span<const AccountedBlock> blocks,
                             absl::Span<const AccountedGranule> granules,
                             const AccountedDriverPools& driver_pools, Bytes device_used_bytes) {
  Accounting sum;
  sum.device_used_bytes = device_used_bytes;
  AccountedDriverPools taken;  // of driver_pools: what no granule is found for below
  for (const AccountedBlock& block : blocks) {
    taken.Add(block.size, block.in_private_pool);
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
      const Bytes part = std::min(blocks[i].address + blocks[i].size, end) -
                         std::max(blocks[i].address, granule.address);
      occupied += part;
      taken.Add(-part, blocks[i].in_private_pool);
    }
    const Bytes free = granule.size - std::min(occupied, granule.size);
    Bytes& term = granule.in_private_pool ? sum.private_pools_free_bytes
                  : occupied > 0          ? sum.pinned_bytes
                                          : sum.idle_bytes;
    term += free;
  }
  const auto free_of = [](Bytes reserved, Bytes in_use) {
    return reserved - std::min(reserved, in_use);
  };
  sum.reserved_bytes += driver_pools.reserved_bytes + driver_pools.private_reserved_bytes;
  sum.driver_pool_free_bytes = free_of(driver_pools.reserved_bytes, taken.reserved_bytes);
  sum.private_pools_free_bytes +=
      free_of(driver_pools.private_reserved_bytes, taken.private_reserved_bytes);
  sum.outside_bytes =
      static_cast<int64_t>(device_used_bytes) - static_cast<int64_t>(sum.reserved_bytes);
  return sum;
}

}  // namespace offcut
