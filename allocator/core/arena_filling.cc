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
  for (ArenaPool* other : pools_) RemoveOldMappings(*other);
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
  const std::vector<Donor>& donors = filling.donors;
  const std::vector<GranulePool::Place>& places = filling.places;
  OFFCUT_RETURN_IF_ERROR(
      granules_.MapAll(arena, pool.index, places, [&](const GranulePool::Place& stuck) {
        pool.old_tiles.push_front(
            arena.GapBecameOld(stuck.address, stuck.bytes, pool, /*epoch=*/0));
      }));

  const bool in_use = absl::c_any_of(donors, [](const Donor& donor) {
    return !Cast(*donor.tile->pool).IsIdle(donor.tile->epoch);
  });
  const uint64_t epoch = in_use ? pool.stream.epoch : 0;
  RetireDonors(filling.donors, epoch);
  for (size_t i = 0; i < places.size();) {
    const DevicePtr begin = places[i].address;
    DevicePtr end = begin;
    for (; i < places.size() && places[i].address == end; ++i) end += places[i].bytes;
    arena.GapBecameFree(begin, end - begin, pool, epoch);
  }
  AdoptWithin(pool, site);
  moves_ += donors.size();
  if (!donors.empty()) {
    Bytes moved = 0;
    for (const Donor& donor : donors) moved += donor.bytes;
    context_.emitter.Emit({.bytes = moved,
                           .extra = static_cast<uint32_t>(donors.size()),
                           .pool = pool.index,
                           .kind = EventKind::kMovesMade});
  }
  if (in_use) context_.streams.CloseEpoch(pool.stream);
  if (filling.new_bytes > 0) context_.SampleDeviceUsed();
  return absl::OkStatus();
}

void ArenaLayout::RetireDonors(std::vector<Donor>& donors, uint64_t epoch) {
  // Tile by tile and from the end of each, so that a tile stays what is left of it.
  absl::c_sort(donors, [](const Donor& a, const Donor& b) { return a.address > b.address; });
  std::vector<ArenaPool*> idle_pools;
  for (size_t i = 0; i < donors.size();) {
    Block* const tile = donors[i].tile;
    Arena& arena = *tile->arena;
    ArenaPool& owner = Cast(*tile->pool);
    const bool idle = owner.IsIdle(tile->epoch);
    const DevicePtr end = donors[i].address + donors[i].bytes;
    DevicePtr begin = end;
    for (; i < donors.size() && donors[i].tile == tile &&
           donors[i].address + donors[i].bytes == begin;
         ++i) {
      begin = donors[i].address;
    }
    if (idle) {
      owner.old_tiles.push_front(arena.FreeBecameOld(tile, begin, end - begin, /*epoch=*/0));
      idle_pools.push_back(&owner);
    } else {
      owner.old_tiles.push_back(arena.FreeBecameOld(tile, begin, end - begin, epoch));
    }
  }
  for (ArenaPool* pool : idle_pools) RemoveOldMappings(*pool);
}

void ArenaLayout::RemoveOldMappings(ArenaPool& pool) {
  if (pool.old_tiles.empty()) return;
  context_.streams.PollEpochs(pool.stream);
  while (!pool.old_tiles.empty() && pool.IsIdle(pool.old_tiles.front()->epoch)) {
    Block* const tile = pool.old_tiles.front();
    Arena& arena = *tile->arena;
    const Bytes unmapped = granules_.UnmapRange(arena, tile->address, tile->size);
    if (unmapped == 0) return;
    pool.old_tiles.pop_front();
    Block* const rest = arena.OldBecameGap(tile, unmapped);
    if (rest == nullptr) continue;
    pool.old_tiles.push_front(rest);
    return;
  }
}

}  // namespace offcut
