// What ArenaLayout does when no free block fits: how much to grow, where a request goes, and giving
// idle granules back. What the gaps there are filled with is in arena_filling.cc.

#include <algorithm>
#include <tuple>
#include <utility>

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

// An event is recorded on a stream to learn what it is done with at most this often.
constexpr uint64_t kEpochNs = 1'000'000;

}  // namespace

absl::Span<const ReclaimStep> ArenaLayout::ladder() const { return kLadder; }

absl::Status ArenaLayout::TakeStep(ReclaimStep step, Pool& any_pool, Bytes requested) {
  ArenaPool& pool = Cast(any_pool);
  for (ArenaPool* each : pools_) RemoveOldMappings(*each, &context_.mutex);
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
  return moves_ > policy::MoveBudget(largest_live, elapsed_ns, context_.properties.granularity);
}

Bytes ArenaLayout::LargestLiveWith(Bytes requested) const {
  const Counters& counters = context_.emitter.counters();
  return std::max(context_.largest_live,
                  static_cast<Bytes>(counters.live_bytes[0].current) + requested);
}

Bytes ArenaLayout::RoomWithin(Bytes target) const {
  // Under a limit there is nothing to gain from staying below it.
  const Bytes bound = context_.limit != kNoLimit ? context_.limit : target;
  const Bytes reserved = context_.reserved_and_growing_bytes();
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
  for (ArenaPool* other : pools_) {
    if (other == &pool) continue;
    context_.streams.PollEpochs(other->stream);
    CloseEpochOfIdle(*other);
  }
  ArenaSet& set = SetOf(requested);
  OFFCUT_ASSIGN_OR_RETURN(Site site, FindSiteSlow(pool, set, GrowthFor(requested)));
  Filling filling = PlanFilling(pool, site, supply);
  if (filling.new_bytes > supply.most_new) {
    return absl::ResourceExhaustedError(
        absl::StrCat("growing by ", FormatBytes(filling.new_bytes), " beyond ",
                     FormatBytes(context_.reserved_bytes()), " would pass ",
                     FormatBytes(supply.most_new), " of room"));
  }
  const absl::Status filled = FillSlow(pool, site, filling);
  if (!absl::IsResourceExhausted(filled) || !supply.may_move) return filled;
  // The driver has less than the limit allows: what can be moved instead? The site may have become
  // another one: places whose mappings could not be undone are none any more.
  OFFCUT_ASSIGN_OR_RETURN(site, FindSiteSlow(pool, set, GrowthFor(requested)));
  filling = PlanFilling(pool, site, {.may_move = true});
  if (filling.new_bytes > 0) return filled;
  return FillSlow(pool, site, filling);
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
  // Each run once: from its first gap or, without one, from its first tile of another pool.
  const auto consider_run_from = [&](const Block* tile) {
    const bool from_gap = tile->state == BlockState::kGap;
    while (MayUse(pool, tile->previous)) {
      tile = tile->previous;
      if (tile->state == BlockState::kGap || (!from_gap && tile->pool != &pool)) return;
    }
    Arena& arena = *tile->arena;
    run.clear();
    for (; MayUse(pool, tile); tile = tile->next) {
      const bool gap = tile->state == BlockState::kGap;
      if (gap && !from_gap) return;
      run.push_back({.address = tile->address, .bytes = tile->size, .gap = gap});
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
    for (const Block* gap : arena->gaps()) consider_run_from(gap);
  }
  for (const ArenaPool* other : pools_) {
    if (other == &pool) continue;
    other->free(set.small).ForEach([&](const Block& tile) {
      if (other->IsIdle(tile.epoch)) consider_run_from(&tile);
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

// --- Giving back ---------------------------------------------------------------------------------

Bytes ArenaLayout::ReleaseIdle(const Pool* only) {
  granules_.ReleaseUnmapped();
  // Of all first: a granule of one pool may have an old mapping left by another.
  for (ArenaPool* pool : pools_) RemoveOldMappings(*pool, &context_.mutex);
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
    // A granule whose old mapping the driver would not remove stays.
    std::vector<Range> runs;
    ForEachGranuleFromEnd(*tile, [&](DevicePtr address, const GranulePool::Granule& granule) {
      if (granule.old_mappings > 0) return true;
      if (runs.empty() || runs.back().address != address + granule.bytes) runs.push_back({});
      runs.back() = {.address = address, .bytes = runs.back().bytes + granule.bytes};
      return true;
    });
    // From the end, so that `tile` stays what is left of it.
    for (const Range& run : runs) {
      const Bytes unmapped = granules_.UnmapRange(*tile->arena, run.address, run.bytes);
      if (unmapped > 0) tile->arena->FreeBecameGap(tile, run.address, unmapped);
      released += unmapped;
      if (unmapped < run.bytes) break;
    }
  }
  return released;
}

}  // namespace offcut
