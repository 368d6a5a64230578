// What ArenaLayout does when no free block fits: choosing a site, filling its gaps with new
// granules or moved ones, and giving idle granules back.

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/arena_layout.h"
#include "allocator/core/timed_call.h"
#include "allocator/policy/sizes.h"

namespace offcut {
namespace {

// Cheapest first: growing within the target costs microseconds and waits for nobody, nor does
// moving; waiting stalls the host, for one stream first, then for the device.
constexpr ReclaimStep kLadder[] = {
    ReclaimStep::kGrowWithinTarget, ReclaimStep::kFreeMemoryCallbacks, ReclaimStep::kMove,
    ReclaimStep::kGrowWithoutWait,  ReclaimStep::kMoveAfterWait,       ReclaimStep::kGrow,
    ReclaimStep::kUseOnOom,         ReclaimStep::kFinishPending,       ReclaimStep::kReleaseIdle};

// A device that hangs sets no old mapping free; their number stays within this. 64 GiB of moves.
constexpr int64_t kMostOldMappingBytes = 64 * static_cast<int64_t>(kGiB);

// An event is recorded on a stream to learn what it is done with at most this often.
constexpr uint64_t kEpochNs = 1'000'000;

bool Overlap(DevicePtr a, Bytes a_bytes, DevicePtr b, Bytes b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

absl::Span<const ReclaimStep> ArenaLayout::ladder() const { return kLadder; }

absl::Status ArenaLayout::TakeStep(ReclaimStep step, Pool& any_pool, Bytes requested) {
  ArenaPool& pool = Cast(any_pool);
  const Bytes largest_live = LargestLiveWith(requested);
  const Bytes within_target = RoomWithin(policy::SoftTarget(largest_live, pools_.size() > 1));
  const Bytes without_wait = RoomWithin(policy::WaitTarget(largest_live));
  const Bytes within_limit = RoomWithin(kNoLimit);
  // Where moving has had its share of the time, growing comes first as long as there is room.
  const bool grow_first = context_.limit == kNoLimit && MovingHasHadItsShare(largest_live);
  switch (step) {
    case ReclaimStep::kGrowWithinTarget:
      return MakeRoomSlow(pool, requested,
                          {.preferred_new = within_target, .most_new = within_target});
    case ReclaimStep::kMove:
      if (grow_first) return absl::ResourceExhaustedError("moving has had its share of the time");
      return MakeRoomSlow(
          pool, requested,
          {.preferred_new = within_target, .most_new = within_target, .may_move = true});
    case ReclaimStep::kGrowWithoutWait:
    case ReclaimStep::kMoveAfterWait:
      return MakeRoomSlow(pool, requested,
                          {.preferred_new = grow_first ? without_wait : within_target,
                           .most_new = without_wait,
                           .may_move = !grow_first});
    case ReclaimStep::kGrow:
      return MakeRoomSlow(pool, requested,
                          {.preferred_new = grow_first ? within_limit : within_target,
                           .most_new = within_limit,
                           .may_move = true});
    default:
      // After a wait: whatever has become idle, then whatever the driver still has.
      return MakeRoomSlow(pool, requested,
                          {.preferred_new = 0, .most_new = within_limit, .may_move = true});
  }
}

bool ArenaLayout::MovingHasHadItsShare(Bytes largest_live) const {
  const uint64_t elapsed_ns = context_.emitter.clock().NowNs() - created_ns_;
  return moved_bytes_ >
         policy::MoveBudget(largest_live, elapsed_ns, context_.properties.granularity);
}

Bytes ArenaLayout::LargestLiveWith(Bytes requested) const {
  const Counters& counters = context_.emitter.counters();
  return std::max(context_.largest_live,
                  static_cast<Bytes>(counters.live_bytes[0].current) + requested);
}

Bytes ArenaLayout::RoomWithin(Bytes target) const {
  // Under a limit there is nothing to gain from staying below it.
  const Bytes bound = context_.limit != kNoLimit ? context_.limit : target;
  const Bytes reserved = context_.reserved_bytes();
  return bound > reserved ? bound - reserved : 0;
}

Layout::WaitPlan ArenaLayout::PlanWait(Pool& any_pool, Bytes requested) {
  ArenaPool& pool = Cast(any_pool);
  WaitPlan plan;
  Bytes to_gain = static_cast<Bytes>(context_.emitter.counters().pending_bytes[0].current);
  for (ArenaPool* other : pools_) {
    if (other == &pool && MayAlias()) continue;
    Bytes in_use = 0;
    bool open = false;
    for (const FreeIndex* free : {&other->large_free, &other->small_free}) {
      free->ForEachFrom(context_.properties.granularity, [&](const Block& tile) {
        if (!other->IsIdle(tile.epoch)) in_use += tile.size;
        open |= tile.epoch == other->stream.epoch;
        return true;
      });
    }
    if (in_use == 0) continue;
    if (open) context_.streams.CloseEpoch(other->stream);
    plan.streams.push_back(&other->stream);
    to_gain += in_use;
  }
  plan.worthwhile = to_gain >= requested;
  return plan;
}

absl::Status ArenaLayout::MakeRoomSlow(ArenaPool& pool, Bytes requested, const Supply& supply) {
  RemoveOldMappings(pool);
  for (ArenaPool* other : pools_) {
    if (other == &pool) continue;
    context_.streams.PollEpochs(other->stream);
    CloseEpochOfIdle(*other);
  }
  ArenaSet& set = SetOf(requested);
  OFFCUT_ASSIGN_OR_RETURN(Site site, FindSiteSlow(pool, set, GrowthFor(requested)));
  const Bytes granularity = context_.properties.granularity;
  Bytes missing = site.window.missing_bytes;
  std::vector<Donor> donors;
  const auto shortage = [&] { return missing - donors.size() * granularity; };
  if (supply.may_move && missing > supply.preferred_new) {
    const Bytes to_move = RoundUp(missing - supply.preferred_new, granularity);
    donors = ChooseDonors(pool, site, to_move / granularity);
  }
  if (shortage() > supply.most_new) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "growing by ", FormatBytes(shortage()), " beyond ", FormatBytes(context_.reserved_bytes()),
        " would pass ", FormatBytes(supply.most_new), " of room"));
  }
  const absl::Status filled = FillSlow(pool, site, donors);
  if (!absl::IsResourceExhausted(filled) || !supply.may_move) return filled;
  // The driver has less than the limit allows: what can be moved instead? The site may have become
  // another one: places whose mappings could not be undone are none any more.
  OFFCUT_ASSIGN_OR_RETURN(site, FindSiteSlow(pool, set, GrowthFor(requested)));
  missing = site.window.missing_bytes;
  donors = ChooseDonors(pool, site, missing / granularity);
  if (shortage() > 0) return filled;
  return FillSlow(pool, site, donors);
}

// --- Where ---------------------------------------------------------------------------------------

absl::StatusOr<ArenaLayout::Site> ArenaLayout::FindSiteSlow(ArenaPool& pool, ArenaSet& set,
                                                            Bytes size) {
  std::optional<Site> site = CheapestSite(pool, set, size);
  if (site.has_value()) return *site;
  if (size > context_.properties.total_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", FormatBytes(context_.properties.total_bytes), " in all"));
  }
  OFFCUT_RETURN_IF_ERROR(AddArenaSlow(set, size));
  site = CheapestSite(pool, set, size);
  OFFCUT_CHECK(site.has_value(), "a new arena has no room for the request it was made for");
  return *site;
}

bool ArenaLayout::MayUse(const ArenaPool& pool, const Block* tile) {
  if (tile == nullptr) return false;
  if (tile->state == BlockState::kGap) return true;
  return tile->state == BlockState::kFree &&
         (tile->pool == &pool || Cast(*tile->pool).IsIdle(tile->epoch));
}

std::optional<ArenaLayout::Site> ArenaLayout::CheapestSite(const ArenaPool& pool,
                                                           const ArenaSet& set, Bytes size) const {
  std::optional<Site> best;
  Bytes best_run_bytes = 0;
  std::vector<policy::RunPiece> run;
  absl::flat_hash_set<const Block*> seen;  // the first tile of each run
  const auto consider_run_around = [&](const Block* tile) {
    while (MayUse(pool, tile->previous)) tile = tile->previous;
    if (!seen.insert(tile).second) return;
    Arena& arena = *tile->arena;
    run.clear();
    for (; MayUse(pool, tile); tile = tile->next) {
      run.push_back(
          {.address = tile->address, .bytes = tile->size, .gap = tile->state == BlockState::kGap});
    }
    const std::optional<policy::Window> window =
        policy::CheapestWindow(run, size, arena.base(), arena.granularity());
    if (!window.has_value()) return;
    const Bytes run_bytes = run.back().address + run.back().bytes - run.front().address;
    if (!best.has_value() || std::tie(window->missing_bytes, run_bytes) <
                                 std::tie(best->window.missing_bytes, best_run_bytes)) {
      best = Site{&arena, *window};
      best_run_bytes = run_bytes;
    }
  };
  // A run that holds neither a gap nor another pool's memory is one free block, which was found too
  // small.
  for (const std::unique_ptr<Arena>& arena : set.arenas) {
    for (const Block* gap : arena->gaps()) consider_run_around(gap);
  }
  for (const ArenaPool* other : pools_) {
    if (other == &pool) continue;
    other->free(set.small).ForEach([&](const Block& tile) {
      if (other->IsIdle(tile.epoch)) consider_run_around(&tile);
    });
  }
  return best;
}

void ArenaLayout::AdoptWithin(ArenaPool& pool, const Site& site) {
  Arena& arena = *site.arena;
  const DevicePtr begin = site.window.address, end = begin + site.window.bytes;
  std::vector<Block*> foreign;
  for (ArenaPool* other : pools_) {
    if (other == &pool) continue;
    other->free(arena.small()).ForEach([&](Block& tile) {
      if (tile.arena == &arena && tile.address < end && tile.end() > begin) {
        foreign.push_back(&tile);
      }
    });
  }
  for (Block* tile : foreign) {
    const DevicePtr from = std::max(tile->address, begin);
    arena.Adopt(tile, from, std::min(tile->end(), end) - from, pool);
  }
}

absl::Status ArenaLayout::AddArenaSlow(ArenaSet& set, Bytes size) {
  const DeviceProperties& device = context_.properties;
  const Bytes needed = RoundUp(size, device.granularity);
  Bytes bytes = set.small ? policy::SmallArenaSize(device.total_bytes, device.granularity)
                          : policy::LargeArenaSize(device.total_bytes, device.granularity);
  bytes = std::max(bytes, needed);
  // Address space may be short where many streams and devices share it: a smaller arena will do.
  absl::StatusOr<DevicePtr> base;
  while (true) {
    base = TimedCall(context_.emitter, DriverCall::kReserveAddress, 0, [&] {
      return context_.driver.ReserveAddress(context_.device, bytes, device.granularity, /*hint=*/0);
    });
    if (base.ok() || bytes == needed) break;
    bytes = std::max(RoundUp(bytes / 2, device.granularity), needed);
  }
  OFFCUT_RETURN_IF_ERROR(base.status());
  if (const absl::Status entered = context_.address_map.Insert(*base, bytes, context_.device);
      !entered.ok()) {
    context_.driver.FreeAddress(*base, bytes).IgnoreError();
    return entered;
  }
  set.arenas.push_back(
      std::make_unique<Arena>(*base, bytes, device.granularity, set.small, context_.blocks));
  context_.emitter.Emit({.address = *base,
                         .bytes = bytes,
                         .extra = set.small ? 1u : 0u,
                         .kind = EventKind::kAddressRangeReserved});
  return absl::OkStatus();
}

// --- With what -----------------------------------------------------------------------------------

std::vector<ArenaLayout::Donor> ArenaLayout::ChooseDonors(ArenaPool& pool, const Site& site,
                                                          size_t count) {
  std::vector<Donor> donors;
  // While anything is captured no event may be recorded, and nothing may be unmapped.
  if (context_.config.remap() == RemapMode::kOff || context_.streams.AnyCapturing()) return donors;
  for (const bool small : {false, true}) {
    AddDonors(pool, small, /*same_stream=*/true, site, count, donors);
  }
  for (ArenaPool* other : pools_) {
    if (other == &pool) continue;
    RemoveOldMappings(*other);
    for (const bool small : {false, true}) {
      AddDonors(*other, small, /*same_stream=*/false, site, count, donors);
    }
  }
  return donors;
}

void ArenaLayout::CloseEpochOfIdle(ArenaPool& pool) {
  StreamLedger::Stream& stream = pool.stream;
  if (context_.emitter.clock().NowNs() < stream.closed_at_ns + kEpochNs) return;
  bool worthwhile = false;
  for (const FreeIndex* free : {&pool.large_free, &pool.small_free}) {
    free->ForEachFrom(context_.properties.granularity, [&](const Block& tile) {
      worthwhile |= tile.epoch == stream.epoch;
      return !worthwhile;
    });
  }
  if (worthwhile && context_.streams.CloseEpoch(stream)) context_.streams.PollEpochs(stream);
}

void ArenaLayout::AddDonors(ArenaPool& from, bool small, bool same_stream, const Site& site,
                            size_t count, std::vector<Donor>& donors) {
  if (donors.size() == count) return;
  const Bytes granularity = context_.properties.granularity;
  const bool alias =
      same_stream && MayAlias() && from.stream.ordered &&
      context_.emitter.counters().old_mapping_bytes[0].current < kMostOldMappingBytes;
  from.free(small).ForEachFrom(granularity, [&](Block& tile) {
    const bool idle = from.IsIdle(tile.epoch);
    if (!idle && !alias) return true;
    const Arena& arena = *tile.arena;
    const DevicePtr first = arena.base() + RoundUp(tile.address - arena.base(), granularity);
    DevicePtr address = arena.base() + RoundDown(tile.end() - arena.base(), granularity);
    // From the end: what is left of the block still begins where it did.
    while (address > first && donors.size() < count) {
      address -= granularity;
      if (&arena == site.arena &&
          Overlap(address, granularity, site.window.address, site.window.bytes)) {
        continue;
      }
      const GranulePool::Granule& granule = granules_.granule(arena.granule_at(address));
      if (same_stream || granule.old_mappings == 0) donors.push_back({&tile, address});
    }
    return donors.size() < count;
  });
}

absl::Status ArenaLayout::FillSlow(ArenaPool& pool, const Site& site,
                                   const std::vector<Donor>& donors) {
  Arena& arena = *site.arena;
  const Bytes granularity = arena.granularity();
  const DevicePtr begin = arena.base() + RoundDown(site.window.address - arena.base(), granularity);
  const DevicePtr end = site.window.address + site.window.bytes;
  std::vector<GranulePool::Place> places;
  for (DevicePtr address = begin; address < end; address += granularity) {
    if (arena.granule_at(address) != kNoGranule) continue;
    GranulePool::Place place = {.address = address};
    if (places.size() < donors.size()) {
      const Donor& donor = donors[places.size()];
      place.moved = donor.tile->arena->granule_at(donor.address);
    }
    places.push_back(place);
  }
  OFFCUT_CHECK(donors.size() <= places.size(), "more granules to move than places for them");
  OFFCUT_RETURN_IF_ERROR(granules_.MapAll(arena, pool.index, places, [&](DevicePtr stuck) {
    pool.old_tiles.push_front(arena.GapBecameOld(stuck, granularity, pool, /*epoch=*/0));
  }));

  const bool in_use = std::any_of(donors.begin(), donors.end(), [](const Donor& donor) {
    return !Cast(*donor.tile->pool).IsIdle(donor.tile->epoch);
  });
  const uint64_t epoch = in_use ? pool.stream.epoch : 0;
  RetireDonors(donors, epoch);
  for (size_t i = 0, end_of_range = 0; i < places.size(); i = end_of_range) {
    end_of_range = i + 1;
    while (end_of_range < places.size() &&
           places[end_of_range].address == places[end_of_range - 1].address + granularity) {
      ++end_of_range;
    }
    arena.GapBecameFree(places[i].address, (end_of_range - i) * granularity, pool, epoch);
  }
  AdoptWithin(pool, site);
  moved_bytes_ += donors.size() * granularity;
  if (!donors.empty()) {
    context_.emitter.Emit({.bytes = donors.size() * granularity,
                           .extra = static_cast<uint32_t>(donors.size()),
                           .pool = pool.index,
                           .kind = EventKind::kMovesMade});
  }
  if (in_use) context_.streams.CloseEpoch(pool.stream);
  if (donors.size() < places.size()) context_.SampleDeviceUsed();
  return absl::OkStatus();
}

// Donors come tile by tile and, within one, from its end.
void ArenaLayout::RetireDonors(const std::vector<Donor>& donors, uint64_t epoch) {
  std::vector<ArenaPool*> idle_pools;
  for (size_t i = 0; i < donors.size();) {
    Block* const tile = donors[i].tile;
    Arena& arena = *tile->arena;
    ArenaPool& owner = Cast(*tile->pool);
    const bool idle = owner.IsIdle(tile->epoch);
    Bytes bytes = arena.granularity();
    DevicePtr address = donors[i].address;
    for (++i; i < donors.size() && donors[i].tile == tile &&
              donors[i].address + arena.granularity() == address;
         ++i) {
      address = donors[i].address;
      bytes += arena.granularity();
    }
    if (idle) {
      owner.old_tiles.push_front(arena.FreeBecameOld(tile, address, bytes, /*epoch=*/0));
      idle_pools.push_back(&owner);
    } else {
      owner.old_tiles.push_back(arena.FreeBecameOld(tile, address, bytes, epoch));
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

// --- Giving back ---------------------------------------------------------------------------------

Bytes ArenaLayout::ReleaseIdle(const Pool* only) {
  granules_.ReleaseUnmapped();
  // Of all first: a granule of one pool may have an old mapping left by another.
  for (ArenaPool* pool : pools_) RemoveOldMappings(*pool);
  for (ArenaPool* pool : pools_) {
    if (only != nullptr && only != pool) continue;
    pool->slabs.RemoveEmptySlow([](Block* tile) { tile->arena->GiveBack(tile, tile->epoch); });
  }
  JoinIdleNeighbours();
  Bytes released = 0;
  for (ArenaPool* pool : pools_) {
    if (only != nullptr && only != pool) continue;
    released += ReleaseIdleOf(*pool, /*small=*/true) + ReleaseIdleOf(*pool, /*small=*/false);
  }
  context_.SampleDeviceUsed();
  return released;
}

// A granule that free blocks of several pools share lies wholly free too.
void ArenaLayout::JoinIdleNeighbours() {
  const auto is_idle = [](const Block* tile) {
    return tile != nullptr && tile->state == BlockState::kFree &&
           Cast(*tile->pool).IsIdle(tile->epoch);
  };
  for (const ArenaSet* set : {&small_, &large_}) {
    for (const std::unique_ptr<Arena>& arena : set->arenas) {
      for (Block* tile = arena->first_tile(); tile != nullptr; tile = tile->next) {
        while (is_idle(tile) && is_idle(tile->next)) {
          arena->Adopt(tile->next, tile->next->address, tile->next->size, Cast(*tile->pool));
        }
      }
    }
  }
}

Bytes ArenaLayout::ReleaseIdleOf(ArenaPool& pool, bool small) {
  std::vector<Block*> idle_tiles;
  pool.free(small).ForEachFrom(context_.properties.granularity, [&](Block& tile) {
    if (pool.IsIdle(tile.epoch)) idle_tiles.push_back(&tile);
    return true;
  });
  Bytes released = 0;
  for (Block* tile : idle_tiles) {
    Arena& arena = *tile->arena;
    const Bytes granularity = arena.granularity();
    const DevicePtr begin = arena.base() + RoundUp(tile->address - arena.base(), granularity);
    DevicePtr end = arena.base() + RoundDown(tile->end() - arena.base(), granularity);
    // From the end, so that `tile` stays what is left of it. A granule whose old mapping the driver
    // would not remove stays.
    while (end > begin) {
      DevicePtr first = end;
      while (first > begin &&
             granules_.granule(arena.granule_at(first - granularity)).old_mappings == 0) {
        first -= granularity;
      }
      if (first < end) {
        const Bytes unmapped = granules_.UnmapRange(arena, first, end - first);
        if (unmapped > 0) arena.FreeBecameGap(tile, first, unmapped);
        released += unmapped;
        if (unmapped < end - first) break;
      }
      end = first > begin ? first - granularity : begin;
    }
  }
  return released;
}

}  // namespace offcut
