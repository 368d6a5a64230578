// What DeviceAllocator does when no free block fits: the reclaim ladder, growing, releasing,
// failing.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/device_allocator.h"
#include "allocator/core/memory_report.h"
#include "allocator/core/timed_call.h"
#include "allocator/policy/growth.h"
#include "allocator/policy/sizes.h"

namespace offcut {
namespace {

// The reclaim ladder. Cheapest first: growing costs microseconds and waits for nobody, waiting for
// pending frees stalls the host, releasing idle granules stalls it for the whole device.
constexpr ReclaimStep kReclaimLadder[] = {ReclaimStep::kGrow, ReclaimStep::kFinishPending,
                                          ReclaimStep::kReleaseIdle};

absl::Status LimitReached(Bytes limit, Bytes reserved, Bytes growth) {
  return absl::ResourceExhaustedError(
      absl::StrCat("growing by ", FormatBytes(growth), " beyond ", FormatBytes(reserved),
                   " would pass the limit of ", FormatBytes(limit)));
}

}  // namespace

absl::StatusOr<Block*> DeviceAllocator::ClimbReclaimLadderSlow(Pool& pool, Bytes requested) {
  absl::Status cause;
  for (const ReclaimStep step : kReclaimLadder) {
    if (step == ReclaimStep::kFinishPending && !streams_.has_pending()) continue;
    emitter_.Emit({.bytes = requested,
                   .extra = static_cast<uint32_t>(step),
                   .pool = pool.index,
                   .kind = EventKind::kReclaimStepTaken});
    switch (step) {
      case ReclaimStep::kGrow:
        cause = GrowSlow(pool, requested);
        break;
      case ReclaimStep::kFinishPending:
        streams_.Wait([this](Block* block) { FinishPendingFree(block); });
        break;
      case ReclaimStep::kReleaseIdle:
        if (const absl::StatusOr<Bytes> released = ReleaseIdleSlow(); !released.ok()) {
          cause = released.status();
        } else {
          cause = GrowSlow(pool, requested);
        }
        break;
    }
    if (Block* const block = TakeBlock(pool, requested); block != nullptr) return block;
    // Only a lack of memory is mended by the further steps.
    if (!absl::IsResourceExhausted(cause)) break;
  }
  return FailSlow(pool, requested, cause);
}

absl::Status DeviceAllocator::FailSlow(const Pool& pool, Bytes requested,
                                       const absl::Status& cause) {
  FailureReason reason = FailureReason::kDriverError;
  if (absl::IsResourceExhausted(cause)) {
    const bool at_limit = granules_.reserved_bytes() + TileSize(requested) > limit_;
    reason = at_limit ? FailureReason::kLimit : FailureReason::kOutOfMemory;
  } else if (absl::IsFailedPrecondition(cause)) {
    reason = FailureReason::kCapturing;
  } else if (absl::IsOutOfRange(cause)) {
    reason = FailureReason::kTooLarge;
  }
  emitter_.Emit({.bytes = requested,
                 .extra = static_cast<uint32_t>(reason),
                 .pool = pool.index,
                 .kind = EventKind::kRequestFailed});
  switch (reason) {
    case FailureReason::kOutOfMemory:
    case FailureReason::kLimit: {
      MemoryReport report = {.reason = reason,
                             .device = device_,
                             .device_name = properties_.name,
                             .device_total_bytes = properties_.total_bytes,
                             .requested = requested,
                             .limit = limit_,
                             .stream_index = pool.stream->index,
                             .cause = std::string(cause.message())};
      report.AddState(ViewLocked(), pool.index, SampleDeviceUsed());
      return absl::ResourceExhaustedError(report.ToText());
    }
    case FailureReason::kCapturing:
      return absl::FailedPreconditionError(absl::StrCat(
          "a request of ", requested, " bytes came on stream #", pool.stream->index, " of device ",
          device_,
          ", which is being captured into a CUDA graph; graphs need private pools, which Offcut "
          "does not have yet"));
    case FailureReason::kTooLarge:
      return absl::InvalidArgumentError(
          absl::StrCat("a request of ", requested, " bytes cannot be served by any device"));
    case FailureReason::kDriverError:
      return absl::Status(cause.code(),
                          absl::StrCat("a request of ", requested, " bytes on device ", device_,
                                       " failed: ", cause.message()));
  }
  return cause;
}

// --- Growing and releasing -----------------------------------------------------------------------

Bytes DeviceAllocator::TileSize(Bytes requested) {
  return requested <= policy::kSlotMax ? policy::SlabSize(policy::SlotClassFor(requested))
                                       : policy::BlockSize(requested);
}

absl::Status DeviceAllocator::GrowSlow(Pool& pool, Bytes requested) {
  ArenaSet& set = SetOf(pool, requested);
  const Bytes size = TileSize(requested);
  std::optional<GrowthChoice> choice = ChooseGrowth(set, size);
  if (!choice.has_value()) {
    if (size > properties_.total_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the device has ", FormatBytes(properties_.total_bytes), " in all"));
    }
    OFFCUT_RETURN_IF_ERROR(AddArenaSlow(pool, set, size));
    choice = ChooseGrowth(set, size);
    OFFCUT_CHECK(choice.has_value(), "a new arena has no room for the request it was made for");
  }
  if (limit_ < choice->bytes || granules_.reserved_bytes() > limit_ - choice->bytes) {
    return LimitReached(limit_, granules_.reserved_bytes(), choice->bytes);
  }
  OFFCUT_RETURN_IF_ERROR(
      granules_.MapRange(*choice->arena, choice->address, choice->bytes, set.small));
  choice->arena->GapBecameFree(choice->address, choice->bytes);
  SampleDeviceUsed();
  return absl::OkStatus();
}

// The growth that needs the fewest new granules; among equals, the one at the lowest address.
std::optional<DeviceAllocator::GrowthChoice> DeviceAllocator::ChooseGrowth(const ArenaSet& set,
                                                                           Bytes size) const {
  const auto free_bytes = [](const Block* tile) {
    return tile != nullptr && tile->state == BlockState::kFree ? tile->size : 0;
  };
  std::optional<GrowthChoice> best;
  for (const std::unique_ptr<Arena>& arena : set.arenas) {
    for (const Block* gap : arena->gaps()) {
      const std::optional<policy::Growth> growth =
          policy::GrowIntoGap({.gap = gap->address,
                               .gap_bytes = gap->size,
                               .free_before = free_bytes(gap->previous),
                               .free_behind = free_bytes(gap->next)},
                              size, arena->granularity());
      if (growth.has_value() && (!best.has_value() || growth->bytes < best->bytes)) {
        best = GrowthChoice{arena.get(), growth->address, growth->bytes};
      }
    }
  }
  return best;
}

absl::Status DeviceAllocator::AddArenaSlow(Pool& pool, ArenaSet& set, Bytes size) {
  const Bytes granularity = properties_.granularity;
  const Bytes needed = RoundUp(size, granularity);
  Bytes bytes = set.small ? policy::SmallArenaSize(properties_.total_bytes, granularity)
                          : policy::LargeArenaSize(properties_.total_bytes, granularity);
  bytes = std::max(bytes, needed);
  // Address space may be short where many streams and devices share it: a smaller arena will do.
  absl::StatusOr<DevicePtr> base;
  while (true) {
    base = TimedCall(emitter_, DriverCall::kReserveAddress, 0, [&] {
      return driver_.ReserveAddress(device_, bytes, granularity, /*hint=*/0);
    });
    if (base.ok() || bytes == needed) break;
    bytes = std::max(RoundUp(bytes / 2, granularity), needed);
  }
  OFFCUT_RETURN_IF_ERROR(base.status());
  if (const absl::Status entered = address_map_.Insert(*base, bytes, device_); !entered.ok()) {
    driver_.FreeAddress(*base, bytes).IgnoreError();
    return entered;
  }
  set.arenas.push_back(
      std::make_unique<Arena>(*base, bytes, granularity, pool.index, set.free, blocks_));
  emitter_.Emit({.address = *base,
                 .bytes = bytes,
                 .extra = set.small ? 1u : 0u,
                 .pool = pool.index,
                 .kind = EventKind::kAddressRangeReserved});
  return absl::OkStatus();
}

absl::Status DeviceAllocator::WaitForDeviceSlow() {
  const uint64_t start_ns = emitter_.clock().NowNs();
  OFFCUT_RETURN_IF_ERROR(TimedCall(emitter_, DriverCall::kSynchronizeDevice, 0,
                                   [&] { return driver_.SynchronizeDevice(device_); }));
  emitter_.Emit({.bytes = emitter_.clock().NowNs() - start_ns, .kind = EventKind::kDeviceWaited});
  streams_.DeviceIsIdle([this](Block* block) { FinishPendingFree(block); });
  return absl::OkStatus();
}

absl::StatusOr<Bytes> DeviceAllocator::ReleaseIdleSlow() {
  // Unmapping waits for nobody, and a free block may still be in use by its own stream: only an
  // idle device proves that no kernel touches what goes.
  OFFCUT_RETURN_IF_ERROR(WaitForDeviceSlow());
  Bytes released = 0;
  for (const std::unique_ptr<Pool>& pool : pools_) {
    pool->slabs.RemoveEmptySlow([](Block* tile) { tile->arena->GiveBack(tile); });
    released += ReleaseIdleOf(pool->small) + ReleaseIdleOf(pool->large);
  }
  SampleDeviceUsed();
  return released;
}

Bytes DeviceAllocator::ReleaseIdleOf(ArenaSet& set) {
  std::vector<Block*> free_tiles;
  set.free.ForEach([&](Block& tile) { free_tiles.push_back(&tile); });
  Bytes released = 0;
  for (Block* tile : free_tiles) {
    Arena& arena = *tile->arena;
    const DevicePtr begin =
        RoundUp(tile->address - arena.base(), arena.granularity()) + arena.base();
    const DevicePtr end = RoundDown(tile->end() - arena.base(), arena.granularity()) + arena.base();
    if (begin >= end) continue;
    const Bytes unmapped = granules_.UnmapRange(arena, begin, end - begin);
    if (unmapped > 0) arena.FreeBecameGap(tile, begin, unmapped);
    released += unmapped;
  }
  return released;
}

Bytes DeviceAllocator::SampleDeviceUsed() {
  const absl::StatusOr<MemoryInfo> info = TimedCall(emitter_, DriverCall::kGetMemoryInfo, 0,
                                                    [&] { return driver_.GetMemoryInfo(device_); });
  // Without an answer the last sample stands.
  if (info.ok()) {
    emitter_.Emit({.address = info->total_bytes,
                   .bytes = info->total_bytes - std::min(info->free_bytes, info->total_bytes),
                   .kind = EventKind::kDeviceUsedSampled});
  }
  return emitter_.counters().device_used_bytes;
}

}  // namespace offcut
