#include "allocator/core/audit.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

std::string At(DevicePtr address) { return absl::StrCat("0x", absl::Hex(address)); }

absl::Status Broken(const std::string& what) {
  return absl::InternalError(absl::StrCat("audit: ", what));
}

bool IsTaken(BlockState state) {
  return state == BlockState::kLive || state == BlockState::kPending;
}

// The tiles of an arena cover its range without overlap, in order; no two neighbours are both free
// and of one pool, or both gaps; gaps are whole granules; sizes are multiples of 512.
absl::Status AuditTiling(const StateView::ArenaView& arena) {
  DevicePtr expected = arena.base;
  const StateView::Tile* before = nullptr;
  for (const StateView::Tile& tile : arena.tiles) {
    if (tile.address != expected) {
      return Broken(
          absl::StrCat("a tile at ", At(tile.address), " where one at ", At(expected), " is due"));
    }
    if (tile.size == 0 || tile.size % kBlockAlignment != 0) {
      return Broken(absl::StrCat("the tile at ", At(tile.address), " has ", tile.size, " bytes"));
    }
    if (before != nullptr && before->state == tile.state &&
        (tile.state == BlockState::kGap ||
         (tile.state == BlockState::kFree && before->pool == tile.pool))) {
      return Broken(
          absl::StrCat("two neighbours at ", At(tile.address), " are both ", ToString(tile.state)));
    }
    const bool whole_granules = tile.state == BlockState::kGap || tile.state == BlockState::kOld;
    if (whole_granules && ((tile.address - arena.base) % arena.granularity != 0 ||
                           tile.size % arena.granularity != 0)) {
      return Broken(absl::StrCat("the ", ToString(tile.state), " at ", At(tile.address),
                                 " is not whole granules"));
    }
    expected = tile.address + tile.size;
    before = &tile;
  }
  if (expected != arena.base + arena.bytes) {
    return Broken(
        absl::StrCat("the tiles of the arena at ", At(arena.base), " end at ", At(expected)));
  }
  return absl::OkStatus();
}

// A granule is mapped if and only if no gap covers its place.
absl::Status AuditMapping(const StateView::ArenaView& arena) {
  std::set<DevicePtr> mapped;
  for (const StateView::MappedGranule& granule : arena.granules) mapped.insert(granule.address);
  std::set<DevicePtr> due;
  for (const StateView::Tile& tile : arena.tiles) {
    const bool moving_gap = tile.state == BlockState::kMoving && tile.pool == kNoPool;
    if (tile.state == BlockState::kGap || moving_gap) continue;
    const DevicePtr offset = tile.address - arena.base;
    for (DevicePtr place = offset / arena.granularity * arena.granularity;
         place < offset + tile.size; place += arena.granularity) {
      due.insert(arena.base + place);
    }
  }
  if (mapped != due) {
    return Broken(absl::StrCat("the arena at ", At(arena.base), " has ", mapped.size(),
                               " granules mapped where its tiles need ", due.size()));
  }
  std::set<DevicePtr> gaps;
  for (const StateView::Tile& tile : arena.tiles) {
    if (tile.state == BlockState::kGap) gaps.insert(tile.address);
  }
  if (gaps != std::set<DevicePtr>(arena.gaps.begin(), arena.gaps.end())) {
    return Broken(absl::StrCat("the arena at ", At(arena.base), " misindexes its gaps"));
  }
  return absl::OkStatus();
}

// A slab's slots are equal, lie side by side within it, and as many are free as it counts.
absl::Status AuditSlab(const StateView::Tile& tile) {
  DevicePtr expected = tile.address;
  uint32_t free_slots = 0;
  for (const StateView::Slot& slot : tile.slots) {
    if (slot.address != expected || slot.size != tile.slots.front().size) {
      return Broken(absl::StrCat("a slot at ", At(slot.address), " of the slab at ",
                                 At(tile.address), " is out of place"));
    }
    if (slot.state == BlockState::kFree) ++free_slots;
    expected = slot.address + slot.size;
  }
  if (expected != tile.address + tile.size) {
    return Broken(absl::StrCat("the slots of the slab at ", At(tile.address), " do not fill it"));
  }
  if (free_slots != tile.free_slots) {
    return Broken(absl::StrCat("the slab at ", At(tile.address), " counts ", tile.free_slots,
                               " free slots and has ", free_slots));
  }
  return absl::OkStatus();
}

// The free indexes hold the free tiles, each once and under its own pool, and in the order of best
// fit.
absl::Status AuditFreeIndexes(const StateView& view) {
  using Key = std::tuple<uint16_t, bool, Bytes, DevicePtr>;
  std::set<Key> due;
  for (const StateView::ArenaView& arena : view.arenas) {
    for (const StateView::Tile& tile : arena.tiles) {
      if (tile.state == BlockState::kFree) {
        due.insert({tile.pool, arena.small, tile.size, tile.address});
      }
    }
  }
  std::set<Key> indexed;
  std::map<std::pair<uint16_t, bool>, std::pair<Bytes, DevicePtr>> last;
  for (const StateView::FreeEntry& entry : view.free) {
    indexed.insert({entry.pool, entry.small, entry.size, entry.address});
    auto& [size, address] = last[{entry.pool, entry.small}];
    if (std::tie(entry.size, entry.address) < std::tie(size, address)) {
      return Broken(absl::StrCat("the free index of pool ", entry.pool, " is out of order at ",
                                 At(entry.address)));
    }
    size = entry.size;
    address = entry.address;
  }
  if (indexed != due || indexed.size() != view.free.size()) {
    return Broken(absl::StrCat("the free indexes hold ", view.free.size(), " blocks where ",
                               due.size(), " are free"));
  }
  return absl::OkStatus();
}

// The table of taken blocks holds exactly the live and pending tiles and slots; each lies in its
// pool; a pending block waits for something; none is smaller than its request.
absl::Status AuditTaken(const StateView& view) {
  std::map<DevicePtr, std::tuple<Bytes, Bytes, BlockState, uint16_t>> due;
  const auto add = [&](DevicePtr address, Bytes size, Bytes requested, BlockState state,
                       uint16_t pool) {
    if (IsTaken(state)) due[address] = {size, requested, state, pool};
  };
  for (const StateView::ArenaView& arena : view.arenas) {
    for (const StateView::Tile& tile : arena.tiles) {
      add(tile.address, tile.size, tile.requested, tile.state, tile.pool);
      for (const StateView::Slot& slot : tile.slots) {
        add(slot.address, slot.size, slot.requested, slot.state, tile.pool);
      }
    }
  }
  for (const StateView::Tile& block : view.driver_blocks) {
    add(block.address, block.size, block.requested, block.state, block.pool);
  }
  if (due.size() != view.taken.size()) {
    return Broken(
        absl::StrCat(view.taken.size(), " blocks in the table, ", due.size(), " in the arenas"));
  }
  size_t pending = 0;
  for (const StateView::Taken& block : view.taken) {
    const auto it = due.find(block.address);
    if (block.key != block.address || it == due.end() ||
        it->second != std::tuple(block.size, block.requested, block.state, block.pool)) {
      return Broken(
          absl::StrCat("the block at ", At(block.key), " is not what its arena says it is"));
    }
    if (block.requested == 0 || block.requested > block.size) {
      return Broken(absl::StrCat("the block at ", At(block.address), " of ", block.size,
                                 " bytes serves a request of ", block.requested));
    }
    if ((block.state == BlockState::kPending) != (block.unfinished_uses > 0)) {
      return Broken(absl::StrCat("the block at ", At(block.address), " is ", ToString(block.state),
                                 " with ", block.unfinished_uses, " unfinished uses"));
    }
    if (block.state == BlockState::kPending) ++pending;
  }
  if (pending != view.pending_blocks) {
    return Broken(
        absl::StrCat("the ledger counts ", view.pending_blocks, " pending blocks of ", pending));
  }
  return absl::OkStatus();
}

// Foreign memory has no granules. Every granule has at most one current mapping, where its arena
// says; every other mapping of it lies in an old tile, and it counts them; old tiles hold no
// current mapping; reserved is the sum of all.
absl::Status AuditGranules(const StateView& view) {
  std::map<uint32_t, const StateView::GranuleView*> granules;
  Bytes reserved = 0;
  size_t due_current = 0, due_old = 0;
  for (const StateView::GranuleView& granule : view.granules) {
    granules[granule.index] = &granule;
    reserved += granule.bytes;
    if (granule.mapped_at != 0) ++due_current;
    due_old += granule.old_mappings;
  }
  std::map<uint32_t, uint32_t> old_mappings;
  size_t current = 0, old = 0;
  for (const StateView::ArenaView& arena : view.arenas) {
    std::set<DevicePtr> old_places;
    for (const StateView::Tile& tile : arena.tiles) {
      if (tile.state != BlockState::kOld) continue;
      for (Bytes offset = 0; offset < tile.size; offset += arena.granularity) {
        old_places.insert(tile.address + offset);
      }
    }
    if (arena.foreign && !arena.granules.empty()) {
      return Broken(absl::StrCat("foreign memory at ", At(arena.base), " has granules"));
    }
    for (size_t place = 0; place < arena.granules.size();) {
      const StateView::MappedGranule& mapped = arena.granules[place];
      const auto it = granules.find(mapped.index);
      if (it == granules.end()) {
        return Broken(absl::StrCat("the arena at ", At(arena.base), " has a granule ", mapped.index,
                                   " that does not exist"));
      }
      const Bytes bytes = it->second->bytes;
      if (bytes == 0 || bytes % arena.granularity != 0) {
        return Broken(absl::StrCat("granule ", mapped.index, " has ", bytes,
                                   " bytes in an arena of places of ", arena.granularity));
      }
      const bool is_old = old_places.contains(mapped.address);
      for (Bytes offset = 0; offset < bytes; offset += arena.granularity, ++place) {
        if (place == arena.granules.size() || arena.granules[place].index != mapped.index ||
            arena.granules[place].address != mapped.address + offset ||
            old_places.contains(mapped.address + offset) != is_old) {
          return Broken(absl::StrCat("granule ", mapped.index, " of ", bytes, " bytes, mapped at ",
                                     At(mapped.address), ", covers no more than ", offset));
        }
      }
      if (is_old == (it->second->mapped_at == mapped.address)) {
        return Broken(absl::StrCat("granule ", mapped.index, " is mapped at ", At(mapped.address),
                                   is_old ? ", an old tile" : ", which is not its place"));
      }
      ++(is_old ? old : current);
      if (is_old) ++old_mappings[mapped.index];
    }
  }
  for (const auto& [index, count] : old_mappings) {
    if (granules[index]->old_mappings != count) {
      return Broken(absl::StrCat("granule ", index, " counts ", granules[index]->old_mappings,
                                 " old mappings and has ", count));
    }
  }
  if (current != due_current || old != due_old) {
    return Broken(absl::StrCat(current, " granules and ", old, " old mappings in the arenas, ",
                               due_current, " and ", due_old, " by the granules"));
  }
  for (const StateView::DriverPoolView& pool : view.driver_pools) reserved += pool.reserved_bytes;
  if (view.reserved_bytes != reserved) {
    return Broken(absl::StrCat(view.reserved_bytes,
                               " bytes reserved by granules and driver's pools of ", reserved));
  }
  return absl::OkStatus();
}

// Blocks in pools of the driver are taken, and no more than fits: in those of
// the default pools, and in those of private ones.
absl::Status AuditDriverPools(const StateView& view) {
  AccountedDriverPools held, taken;
  for (const StateView::DriverPoolView& pool : view.driver_pools) {
    held.Add(pool.reserved_bytes, IsPrivateDriverPool(pool.number));
  }
  for (const StateView::Tile& block : view.driver_blocks) {
    if (!IsTaken(block.state)) {
      return Broken(absl::StrCat("the block at ", At(block.address), " in a driver's pool is ",
                                 ToString(block.state)));
    }
    taken.Add(block.size, view.pools[block.pool].private_pool_id != 0);
  }
  if (taken.reserved_bytes > held.reserved_bytes ||
      taken.private_reserved_bytes > held.private_reserved_bytes) {
    return Broken(absl::StrCat("the driver's pools hold ", held.reserved_bytes, " and, private, ",
                               held.private_reserved_bytes, " bytes for blocks of ",
                               taken.reserved_bytes, " and ", taken.private_reserved_bytes));
  }
  return absl::OkStatus();
}

// The counters, folded from events, say the same as the state.
absl::Status AuditCounters(const StateView& view) {
  int64_t live = 0, allocated = 0, active = 0, pending = 0, held = 0;
  for (const StateView::Taken& block : view.taken) {
    active += static_cast<int64_t>(block.size);
    if (block.state == BlockState::kPending) {
      pending += static_cast<int64_t>(block.size);
      continue;
    }
    ++held;
    live += static_cast<int64_t>(block.requested);
    allocated += static_cast<int64_t>(block.size);
  }
  int64_t mapped = 0, old = 0, address_space = 0;
  for (const StateView::GranuleView& granule : view.granules) {
    if (granule.mapped_at != 0) mapped += static_cast<int64_t>(granule.bytes);
    old += static_cast<int64_t>(granule.bytes * granule.old_mappings);
  }
  for (const StateView::DriverPoolView& pool : view.driver_pools) {
    mapped += static_cast<int64_t>(pool.reserved_bytes);
  }
  int64_t foreign = 0;
  for (const StateView::ArenaView& arena : view.arenas) {
    (arena.foreign ? foreign : address_space) += static_cast<int64_t>(arena.bytes);
  }
  const auto expect = [](const char* name, const GaugeBySize& gauge, int64_t due) {
    const int64_t counted = gauge[0].current;
    if (counted == due && gauge[1].current + gauge[2].current == due) return absl::OkStatus();
    return Broken(absl::StrCat("the counter ", name, " is ", counted, " (small ", gauge[1].current,
                               ", large ", gauge[2].current, "), the state says ", due));
  };
  const Counters& counters = view.counters;
  OFFCUT_RETURN_IF_ERROR(expect("allocations", counters.allocations, held));
  OFFCUT_RETURN_IF_ERROR(expect("live_bytes", counters.live_bytes, live));
  OFFCUT_RETURN_IF_ERROR(expect("allocated_bytes", counters.allocated_bytes, allocated));
  OFFCUT_RETURN_IF_ERROR(expect("active_bytes", counters.active_bytes, active));
  OFFCUT_RETURN_IF_ERROR(expect("pending_bytes", counters.pending_bytes, pending));
  OFFCUT_RETURN_IF_ERROR(expect("mapped_bytes", counters.mapped_bytes, mapped));
  OFFCUT_RETURN_IF_ERROR(expect("old_mapping_bytes", counters.old_mapping_bytes, old));
  OFFCUT_RETURN_IF_ERROR(expect("address_bytes", counters.address_bytes, address_space));
  OFFCUT_RETURN_IF_ERROR(expect("foreign_bytes", counters.foreign_bytes, foreign));
  OFFCUT_RETURN_IF_ERROR(expect("held_bytes", counters.held_bytes,
                                static_cast<int64_t>(view.reserved_bytes) + foreign));
  return expect("reserved_bytes", counters.reserved_bytes,
                static_cast<int64_t>(view.reserved_bytes));
}

// What the segments layout counts as it goes, the segments say too.
absl::Status AuditSegmentCounters(const StateView& view) {
  SegmentCounters due;
  const Bytes oversize = view.segment_counters.max_split_bytes;
  for (const StateView::ArenaView& arena : view.arenas) {
    const BlockState state = arena.tiles.front().state;
    if (!arena.segment || state == BlockState::kOld || state == BlockState::kReturning) continue;
    const SizeClassOf size_class = arena.small ? SizeClassOf::kSmall : SizeClassOf::kLarge;
    Rise(due.segments, size_class, 1);
    if (arena.bytes >= oversize) due.oversize_segments.Rise(1);
    for (const StateView::Tile& tile : arena.tiles) {
      if (tile.state == BlockState::kLive && tile.size >= oversize) due.oversize_blocks.Rise(1);
      if (tile.state != BlockState::kFree || arena.tiles.size() == 1) continue;
      Rise(due.remainders, size_class, 1);
      Rise(due.remainder_bytes, size_class, tile.size);
    }
  }
  std::vector<int64_t> currents;
  due.ForEachGauge([&](const Gauge& gauge) { currents.push_back(gauge.current); });
  SegmentCounters counted = view.segment_counters;
  if (counted.max_split_changed) {
    counted.oversize_blocks.current = due.oversize_blocks.current;
    counted.oversize_segments.current = due.oversize_segments.current;
  }
  size_t i = 0;
  absl::Status status;
  counted.ForEachGauge([&](const Gauge& gauge) {
    if (gauge.current != currents[i]) {
      status.Update(Broken(absl::StrCat("the segments' counter number ", i, " is ", gauge.current,
                                        ", the segments say ", currents[i])));
    }
    ++i;
  });
  return status;
}

// Memory of a private pool lies in segments, each of one pool alone; it is not moved, so a
// segment's granule has one mapping: its current one, or an old one that could not be undone as it
// was made.
absl::Status AuditPrivatePools(const StateView& view) {
  const auto is_private = [&](uint16_t pool) {
    return pool != kNoPool && pool < view.pools.size() && view.pools[pool].private_pool_id != 0;
  };
  std::map<uint32_t, const StateView::GranuleView*> granules;
  for (const StateView::GranuleView& granule : view.granules) granules[granule.index] = &granule;
  for (const StateView::ArenaView& arena : view.arenas) {
    for (const StateView::Tile& tile : arena.tiles) {
      if (is_private(tile.pool) && !arena.segment) {
        return Broken(absl::StrCat("the block at ", At(tile.address), " of private pool ",
                                   tile.pool, " lies in an arena of default pools"));
      }
      if (arena.segment && tile.pool != arena.tiles.front().pool) {
        return Broken(absl::StrCat("the segment at ", At(arena.base), " is of pool ",
                                   arena.tiles.front().pool, " and of pool ", tile.pool));
      }
    }
    if (!arena.segment) continue;
    const bool stuck = arena.tiles.front().state == BlockState::kOld;
    for (const StateView::MappedGranule& mapped : arena.granules) {
      const auto it = granules.find(mapped.index);
      if (it == granules.end()) continue;  // AuditGranules says so
      if (it->second->old_mappings != (stuck ? 1u : 0u)) {
        return Broken(absl::StrCat("granule ", mapped.index, " of the segment at ", At(arena.base),
                                   " was moved: it has ", it->second->old_mappings,
                                   " old mappings"));
      }
    }
  }
  return absl::OkStatus();
}

// Every byte that we hold is accounted for once.
absl::Status AuditAccounting(const StateView& view) {
  const Accounting sum = view.Account(view.reserved_bytes);
  const Bytes total = sum.live_bytes + sum.rounding_bytes + sum.pending_bytes +
                      sum.private_pools_free_bytes + sum.pinned_bytes + sum.idle_bytes +
                      sum.driver_pool_free_bytes;
  if (total == sum.reserved_bytes && total == view.reserved_bytes) return absl::OkStatus();
  return Broken(absl::StrCat("the accounting adds up to ", total, " of ", view.reserved_bytes,
                             " bytes reserved"));
}

}  // namespace

absl::Status Audit(const StateView& view) {
  for (const StateView::ArenaView& arena : view.arenas) {
    OFFCUT_RETURN_IF_ERROR(AuditTiling(arena));
    if (!arena.foreign) OFFCUT_RETURN_IF_ERROR(AuditMapping(arena));
    for (const StateView::Tile& tile : arena.tiles) {
      if (tile.state == BlockState::kSlab) OFFCUT_RETURN_IF_ERROR(AuditSlab(tile));
    }
  }
  OFFCUT_RETURN_IF_ERROR(AuditPrivatePools(view));
  OFFCUT_RETURN_IF_ERROR(AuditFreeIndexes(view));
  OFFCUT_RETURN_IF_ERROR(AuditTaken(view));
  OFFCUT_RETURN_IF_ERROR(AuditGranules(view));
  OFFCUT_RETURN_IF_ERROR(AuditDriverPools(view));
  OFFCUT_RETURN_IF_ERROR(AuditCounters(view));
  OFFCUT_RETURN_IF_ERROR(AuditSegmentCounters(view));
  return AuditAccounting(view);
}

}  // namespace offcut
