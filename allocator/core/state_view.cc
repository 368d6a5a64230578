#include "allocator/core/state_view.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/types/span.h"
#include "allocator/core/pool.h"
#include "allocator/core/slab.h"

namespace offcut {

Accounting StateView::Account(Bytes device_used_bytes) const {
  std::map<DevicePtr, Bytes> foreign;
  for (const ArenaView& arena : arenas) {
    if (arena.foreign) foreign[arena.base] = arena.bytes;
  }
  const auto is_foreign = [&](DevicePtr address) {
    const auto behind = foreign.upper_bound(address);
    if (behind == foreign.begin()) return false;
    const auto& [base, bytes] = *std::prev(behind);
    return address - base < bytes;
  };
  std::vector<AccountedBlock> blocks;
  blocks.reserve(taken.size());
  for (const Taken& block : taken) {
    if (is_foreign(block.address)) continue;
    blocks.push_back({.address = block.address,
                      .size = block.size,
                      .requested = block.requested,
                      .pending = block.state == BlockState::kPending,
                      .in_private_pool = pools[block.pool].private_pool_id != 0});
  }
  // A segment of a private pool is all that pool's.
  std::set<DevicePtr> private_places;
  for (const ArenaView& arena : arenas) {
    const uint16_t owner = arena.tiles.front().pool;
    if (owner == kNoPool || pools[owner].private_pool_id == 0) continue;
    for (const MappedGranule& mapped : arena.granules) private_places.insert(mapped.address);
  }
  std::vector<AccountedGranule> accounted;
  accounted.reserve(granules.size());
  for (const GranuleView& granule : granules) {
    accounted.push_back({.address = granule.mapped_at,
                         .size = granule.bytes,
                         .in_private_pool = private_places.contains(granule.mapped_at)});
  }
  std::sort(
      accounted.begin(), accounted.end(),
      [](const AccountedGranule& a, const AccountedGranule& b) { return a.address < b.address; });
  AccountedDriverPools in_driver_pools;
  for (const DriverPoolView& pool : driver_pools) {
    in_driver_pools.Add(pool.reserved_bytes, IsPrivateDriverPool(pool.number));
  }
  Accounting sum = ComputeAccounting(blocks, accounted, in_driver_pools, device_used_bytes);
  for (const auto& [base, bytes] : foreign) sum.foreign_bytes += bytes;
  return sum;
}

StateView::ArenaView ViewOf(const Arena& arena) {
  StateView::ArenaView view = {.small = arena.small(),
                               .base = arena.base(),
                               .bytes = arena.bytes(),
                               .granularity = arena.granularity()};
  for (const Block* tile = arena.first_tile(); tile != nullptr; tile = tile->next) {
    StateView::Tile& out = view.tiles.emplace_back(StateView::Tile{.address = tile->address,
                                                                   .size = tile->size,
                                                                   .requested = tile->requested,
                                                                   .state = tile->state});
    if (tile->pool != nullptr) out.pool = tile->pool->index;
    if (tile->state != BlockState::kSlab) continue;
    out.free_slots = tile->slab->free_slots;
    for (const Block& slot : absl::MakeConstSpan(tile->slab->all_slots.get(), tile->slab->slots)) {
      out.slots.push_back({.address = slot.address,
                           .size = slot.size,
                           .requested = slot.requested,
                           .state = slot.state});
    }
  }
  for (DevicePtr address = arena.base(); address < arena.end(); address += arena.granularity()) {
    if (const GranuleIndex index = arena.granule_at(address); index != kNoGranule) {
      view.granules.push_back({.address = address, .index = index});
    }
  }
  for (const Block* gap : arena.gaps()) view.gaps.push_back(gap->address);
  return view;
}

}  // namespace offcut
