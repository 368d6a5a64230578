// What ArenaLayout fills the gaps of a site with: new granules, or granules that lie wholly free
// elsewhere and are moved; and what becomes of the places that those leave.

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/arena_layout.h"

namespace offcut {
namespace {

// A device that hangs sets no old mapping free; their number stays within this. 64 GiB of moves.
constexpr int64_t kMostOldMappingBytes = 64 * static_cast<int64_t>(kGiB);

bool Overlap(DevicePtr a, Bytes a_bytes, DevicePtr b, Bytes b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

// --- The plan ------------------------------------------------------------------------------------

ArenaLayout::Filling ArenaLayout::PlanFilling(ArenaPool& pool, const Site& site,
                                              const Supply& supply) {
  std::vector<Range> gaps = GapsOf(site);
  Filling filling;
  const Bytes missing = site.window.missing_bytes;
  if (supply.may_move && missing > supply.preferred_new) {
    const Bytes granularity = context_.properties.granularity;
    PlanMoves(pool, site, RoundUp(missing - supply.preferred_new, granularity), gaps, filling);
  }
  PlanGrowth(site, supply, gaps, filling);
  absl::c_sort(filling.places, [](const auto& a, const auto& b) { return a.address < b.address; });
  return filling;
}

std::vector<Layout::Range> ArenaLayout::GapsOf(const Site& site) const {
  const Arena& arena = *site.arena;
  const Bytes granularity = arena.granularity();
  std::vector<Range> gaps;
  const DevicePtr begin = arena.base() + RoundDown(site.window.address - arena.base(), granularity);
  for (DevicePtr place = begin; place < site.window.address + site.window.bytes;
       place += granularity) {
    if (arena.granule_at(place) != kNoGranule) continue;
    if (gaps.empty() || gaps.back().address + gaps.back().bytes != place) gaps.push_back({place});
    gaps.back().bytes += granularity;
  }
  return gaps;
}

Bytes ArenaLayout::GapFrom(const Arena& arena, DevicePtr place, Bytes most) {
  Bytes bytes = 0;
  while (bytes < most && place + bytes < arena.end() &&
         arena.granule_at(place + bytes) == kNoGranule) {
    bytes += arena.granularity();
  }
  return bytes;
}

void ArenaLayout::PlanMoves(ArenaPool& pool, const Site& site, Bytes to_move,
                            std::vector<Range>& gaps, Filling& filling) {
  // While anything is captured no event may be recorded, and nothing may be unmapped.
  if (context_.config.remap() == RemapMode::kOff || context_.streams.AnyCapturing()) return;
  const Bytes granularity = site.arena->granularity();
  // The larger granules first: each costs the same.
  for (Bytes bytes = std::max(policy::kGranuleMax, granularity); bytes >= granularity; bytes /= 2) {
    Bytes room = 0;
    for (const Range& gap : gaps) room += gap.bytes / bytes;
    const size_t chosen = filling.donors.size();
    AddDonors(pool, site, bytes, std::min(room, to_move / bytes), filling);
    auto gap = gaps.begin();
    for (size_t i = chosen; i < filling.donors.size(); ++i) {
      while (gap->bytes < bytes) ++gap;
      filling.Move(filling.donors[i], *gap);
      to_move -= bytes;
    }
  }
  if (to_move == 0 || gaps.empty() || gaps.back().bytes == 0) return;
  // All that could be moved is larger than what is still missing: where the gap goes on behind the
  // window, it has room too.
  Range& last = gaps.back();
  const Bytes room = GapFrom(*site.arena, last.address, policy::kGranuleMax);
  for (Bytes bytes = granularity; bytes <= room; bytes *= 2) {
    if (bytes < last.bytes) continue;
    const size_t chosen = filling.donors.size();
    AddDonors(pool, site, bytes, 1, filling);
    if (filling.donors.size() == chosen) continue;
    last.bytes = bytes;
    filling.Move(filling.donors.back(), last);
    return;
  }
}

void ArenaLayout::Filling::Move(const Donor& donor, Range& gap) {
  places.push_back({.address = gap.address,
                    .bytes = donor.bytes,
                    .moved = donor.tile->arena->granule_at(donor.address)});
  gap = {.address = gap.address + donor.bytes, .bytes = gap.bytes - donor.bytes};
}

void ArenaLayout::PlanGrowth(const Site& site, const Supply& supply, std::vector<Range>& gaps,
                             Filling& filling) const {
  const Bytes granularity = site.arena->granularity();
  const Bytes largest = policy::GranuleSize(site.window.bytes, pools_.size() > 1,
                                            context_.limit != kNoLimit, granularity);
  // Whole granules of that size, as long as growing is what is preferred: the next request finds
  // the rest of the last one.
  if (filling.donors.empty() && !gaps.empty()) {
    Range& last = gaps.back();
    const Bytes whole = RoundUp(last.bytes, largest);
    const Bytes all = site.window.missing_bytes + (whole - last.bytes);
    if (all <= supply.preferred_new && GapFrom(*site.arena, last.address, whole) == whole) {
      last.bytes = whole;
    }
  }
  for (Range& gap : gaps) {
    for (Bytes bytes = largest; gap.bytes > 0; bytes /= 2) {
      for (; gap.bytes >= bytes; gap.address += bytes, gap.bytes -= bytes) {
        filling.places.push_back({.address = gap.address, .bytes = bytes});
        filling.new_bytes += bytes;
      }
    }
  }
}

void ArenaLayout::AddDonors(ArenaPool& pool, const Site& site, Bytes bytes, size_t count,
                            Filling& filling) {
  const size_t most = filling.donors.size() + count;
  for (const bool small : {false, true}) {
    AddDonorsOf(pool, small, /*same_stream=*/true, site, bytes, most, filling);
  }
  for (ArenaPool* other : pools_) {
    if (other == &pool) continue;
    for (const bool small : {false, true}) {
      AddDonorsOf(*other, small, /*same_stream=*/false, site, bytes, most, filling);
    }
  }
}

void ArenaLayout::AddDonorsOf(ArenaPool& from, bool small, bool same_stream, const Site& site,
                              Bytes bytes, size_t most, Filling& filling) {
  std::vector<Donor>& donors = filling.donors;
  if (donors.size() == most) return;
  const bool alias =
      same_stream && MayAlias() && from.stream.ordered &&
      context_.emitter.counters().old_mapping_bytes[0].current < kMostOldMappingBytes;
  from.free(small).ForEachFrom(bytes, [&](Block& tile) {
    const bool idle = from.IsIdle(tile.epoch);
    if (!idle && !alias) return true;
    // From the end: what is left of the block still begins where it did.
    ForEachGranuleFromEnd(tile, [&](DevicePtr address, const GranulePool::Granule& granule) {
      const bool within_site = tile.arena == site.arena &&
                               Overlap(address, bytes, site.window.address, site.window.bytes);
      if (granule.bytes == bytes && !within_site && (same_stream || granule.old_mappings == 0) &&
          filling.chosen.insert(address).second) {
        donors.push_back({.tile = &tile, .address = address, .bytes = bytes});
      }
      return donors.size() < most;
    });
    return donors.size() < most;
  });
}

void ArenaLayout::ForEachGranuleFromEnd(
    const Block& tile,
    absl::FunctionRef<bool(DevicePtr, const GranulePool::Granule&)> visit) const {
  const Arena& arena = *tile.arena;
  const Bytes granularity = arena.granularity();
  DevicePtr end = arena.base() + RoundDown(tile.end() - arena.base(), granularity);
  while (end >= tile.address + granularity) {
    const GranulePool::Granule& granule = granules_.granule(arena.granule_at(end - granularity));
    const DevicePtr address = granule.mapped_at;
    if (address < tile.address) return;
    if (address + granule.bytes == end && !visit(address, granule)) return;
    end = address;
  }
}

// --- The deed ------------------------------------------------------------------------------------

absl::Status ArenaLayout::FillSlow(ArenaPool& pool, const Site& site, Filling& filling) {
  Arena& arena = *site.arena;
  // Nobody else may use any of it while the lock is given up.
  std::vector<Block*> leaving = TakeDonors(filling.donors);
  AdoptWithin(pool, site);
  if (filling.places.empty()) return absl::OkStatus();
  std::vector<Block*> coming = TakeSite(site, filling);
  context_.growing_bytes += filling.new_bytes;
  std::vector<GranulePool::Place> stuck;
  const absl::Status mapped =
      granules_.MapAll(arena, pool.index, filling.places, &context_.mutex,
                       [&](const GranulePool::Place& place) { stuck.push_back(place); });
  context_.growing_bytes -= filling.new_bytes;
  if (!mapped.ok()) {
    for (Block* tile : leaving) tile->arena->GiveUpMove(tile);
    for (Block* tile : coming) arena.GiveUpMove(tile);
    for (const GranulePool::Place& place : stuck) {
      pool.old_tiles.push_front(arena.GapBecameOld(place.address, place.bytes, pool, /*epoch=*/0));
    }
    return mapped;
  }

  const bool in_use = absl::c_any_of(
      leaving, [](const Block* tile) { return !Cast(*tile->pool).IsIdle(tile->epoch); });
  const uint64_t epoch = in_use ? pool.stream.epoch : 0;
  Retire(leaving, epoch, filling.donors.size() <= GranulePool::kMostUnderLock);
  for (Block* tile : coming) {
    arena.MovingBecameFree(tile, pool, tile->pool == nullptr ? epoch : tile->epoch);
  }
  moves_ += filling.donors.size();
  if (!filling.donors.empty()) {
    Bytes moved = 0;
    for (const Donor& donor : filling.donors) moved += donor.bytes;
    context_.emitter.Emit({.bytes = moved,
                           .extra = static_cast<uint32_t>(filling.donors.size()),
                           .pool = pool.index,
                           .kind = EventKind::kMovesMade});
  }
  if (in_use) context_.streams.CloseEpoch(pool.stream);
  if (filling.new_bytes > 0) context_.SampleDeviceUsed();
  return absl::OkStatus();
}

std::vector<Block*> ArenaLayout::TakeDonors(std::vector<Donor>& donors) {
  // Tile by tile and from the end of each, so that a tile stays what is left of it.
  absl::c_sort(donors, [](const Donor& a, const Donor& b) { return a.address > b.address; });
  std::vector<Block*> taken;
  for (size_t i = 0; i < donors.size();) {
    Block* const tile = donors[i].tile;
    const DevicePtr end = donors[i].address + donors[i].bytes;
    DevicePtr begin = end;
    for (; i < donors.size() && donors[i].tile == tile &&
           donors[i].address + donors[i].bytes == begin;
         ++i) {
      begin = donors[i].address;
    }
    taken.push_back(tile->arena->BeginMove(tile, begin, end - begin));
  }
  return taken;
}

std::vector<Block*> ArenaLayout::TakeSite(const Site& site, const Filling& filling) {
  Arena& arena = *site.arena;
  std::vector<Block*> taken;
  const auto take = [&](Block* tile, DevicePtr begin, DevicePtr end) {
    begin = std::max(begin, tile->address);
    end = std::min(end, tile->end());
    if (begin < end) taken.push_back(arena.BeginMove(tile, begin, end - begin));
    return begin < end ? taken.back()->next : tile->next;
  };
  const DevicePtr window_end = site.window.address + site.window.bytes;
  // What is missing may begin before the window, and go on behind it.
  const GranulePool::Place& first = filling.places.front();
  const GranulePool::Place& last = filling.places.back();
  const DevicePtr begin = std::min(site.window.address, first.address);
  const DevicePtr end = std::max(window_end, last.address + last.bytes);
  Block* tile = arena.GapAt(first.address);
  while (tile->address > begin) tile = tile->previous;
  while (tile != nullptr && tile->address < end) {
    const bool gap = tile->state == BlockState::kGap;
    tile = gap ? take(tile, begin, end) : take(tile, site.window.address, window_end);
  }
  return taken;
}

void ArenaLayout::Retire(const std::vector<Block*>& leaving, uint64_t epoch, bool few) {
  std::vector<ArenaPool*> idle_pools;
  for (Block* tile : leaving) {
    ArenaPool& owner = Cast(*tile->pool);
    const bool idle = owner.IsIdle(tile->epoch);
    tile->arena->MovingBecameOld(tile, idle ? 0 : epoch);
    if (idle) {
      owner.old_tiles.push_front(tile);
      idle_pools.push_back(&owner);
    } else {
      owner.old_tiles.push_back(tile);
    }
  }
  // Of many, the next request's slow path removes them, without the lock: this one's memory must
  // not be taken from it now.
  if (few) {
    for (ArenaPool* pool : idle_pools) RemoveOldMappings(*pool, nullptr);
  }
}

void ArenaLayout::RemoveOldMappings(ArenaPool& pool, DeviceMutex* mutex) {
  if (pool.old_tiles.empty()) return;
  context_.streams.PollEpochs(pool.stream);
  size_t granules = 0;
  while (!pool.old_tiles.empty() && pool.IsIdle(pool.old_tiles.front()->epoch)) {
    if (context_.streams.AnyCapturing()) return;
    // Out of the list, it is nobody else's.
    Block* const tile = pool.old_tiles.front();
    pool.old_tiles.pop_front();
    Arena& arena = *tile->arena;
    granules += tile->size / arena.granularity();
    const bool many = granules > GranulePool::kMostUnderLock;
    const Bytes unmapped =
        granules_.UnmapRange(arena, tile->address, tile->size, many ? mutex : nullptr);
    Block* const rest = unmapped == 0 ? tile : arena.OldBecameGap(tile, unmapped);
    if (rest == nullptr) continue;
    pool.old_tiles.push_front(rest);
    return;
  }
}

}  // namespace offcut
