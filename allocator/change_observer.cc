#include "allocator/change_observer.h"

#include <utility>

#include "allocator/events/private_pool_id.h"

namespace offcut {
namespace {

template <typename T>
T& At(std::vector<T>& list, size_t index) {
  if (list.size() <= index) list.resize(index + 1);
  return list[index];
}

offcut_pool_id ToC(PrivatePoolId id) { return {.first = id.first, .second = id.second}; }

}  // namespace

void ChangeObserver::Begin(const StateView& view) {
  streams_ = view.streams;
  for (const StateView::PoolView& pool : view.pools) {
    pools_.push_back(
        {.stream = pool.stream, .id = ToC(PrivatePoolId::Decode(pool.private_pool_id))});
  }
  for (const StateView::ArenaView& arena : view.arenas) {
    if (arena.segment) segments_.insert(arena.base);
  }
}

void ChangeObserver::OnEvent(const Event& event) {
  const uint32_t moved = std::exchange(moved_, ~uint32_t{0});
  switch (event.kind) {
    case EventKind::kBlockAllocated:
      return TellOfBlock(event, OFFCUT_BLOCK_ALLOCATED);
    case EventKind::kBlockFreed:
      TellOfBlock(event, OFFCUT_FREE_REQUESTED);
      return TellOfBlock(event, OFFCUT_FREE_COMPLETED);
    case EventKind::kBlockFreePended:
      return TellOfBlock(event, OFFCUT_FREE_REQUESTED);
    case EventKind::kPendingFreeFinished:
      return TellOfBlock(event, OFFCUT_FREE_COMPLETED);
    // Arenas are address space and no memory; a segment's range has a pool, and memory at once.
    case EventKind::kAddressRangeReserved:
      if (event.pool == kNoPool) return;
      segments_.insert(event.address);
      return TellOfRange(event, OFFCUT_SEGMENT_MADE);
    case EventKind::kAddressRangeFreed:
      if (segments_.erase(event.address) != 0) TellOfRange(event, OFFCUT_SEGMENT_RELEASED);
      return;
    case EventKind::kForeignSegmentAdded:
      return TellOfRange(event, OFFCUT_SEGMENT_MADE);
    case EventKind::kForeignSegmentRemoved:
      return TellOfRange(event, OFFCUT_SEGMENT_RELEASED);
    case EventKind::kGranuleMapped:
      if (!segments_.contains(event.address)) TellOfRange(event, OFFCUT_RANGE_MAPPED);
      return;
    case EventKind::kGranuleUnmapped:
      if (!segments_.contains(event.address)) TellOfRange(event, OFFCUT_RANGE_UNMAPPED);
      return;
    case EventKind::kGranuleMoved:
      moved_ = event.extra;
      return TellOfRange(event, OFFCUT_RANGE_MAPPED);
    case EventKind::kOldMappingMade:
      if (event.extra == moved) TellOfRange(event, OFFCUT_RANGE_UNMAPPED);
      return;
    case EventKind::kRequestFailed: {
      const auto reason = static_cast<FailureReason>(event.extra);
      if (reason != FailureReason::kOutOfMemory && reason != FailureReason::kLimit) return;
      return Tell(event, OFFCUT_REQUEST_FAILED, event.bytes,
                  policy::native::BlockSize(event.bytes, divisions_));
    }
    case EventKind::kDeviceUsedSampled:
      device_free_ = event.address - event.bytes;
      return;
    case EventKind::kStreamSeen:
      At(streams_, event.extra) = reinterpret_cast<StreamHandle>(event.bytes);
      return;
    case EventKind::kPoolCreated:
      At(pools_, event.pool) = {.stream = At(streams_, event.extra),
                                .id = ToC(PrivatePoolId::Decode(event.bytes))};
      return;
    default:
      return;
  }
}

void ChangeObserver::TellOfBlock(const Event& event, offcut_action action) {
  Tell(event, action, event.bytes, event.block_bytes());
}

void ChangeObserver::TellOfRange(const Event& event, offcut_action action) {
  Tell(event, action, /*requested=*/0, event.bytes);
}

void ChangeObserver::Tell(const Event& event, offcut_action action, size_t requested, size_t size) {
  const Pool pool = event.pool == kNoPool ? Pool() : At(pools_, event.pool);
  const offcut_change change = {.action = action,
                                .device = device_,
                                .address = event.address,
                                .requested = requested,
                                .size = size,
                                .stream = pool.stream,
                                .pool = pool.id,
                                .device_free = device_free_};
  callback_.call(callback_.context, &change);
}

}  // namespace offcut
