#include "allocator/events/counters.h"

#include <algorithm>

namespace offcut {
namespace {

SizeClassOf ClassOfBlock(const Event& event) { return SizeClassOfBlock(event.block_bytes()); }

SizeClassOf ClassOfGranule(const Event& event) {
  return (event.extra & kSmallGranuleBit) != 0 ? SizeClassOf::kSmall : SizeClassOf::kLarge;
}

SizeClassOf ClassOfRange(const Event& event) {
  return event.extra != 0 ? SizeClassOf::kSmall : SizeClassOf::kLarge;
}

bool IsOutOfMemory(FailureReason reason) {
  return reason == FailureReason::kOutOfMemory || reason == FailureReason::kLimit;
}

void ResetPeaks(Counters& counters) {
#define OFFCUT_GAUGE(name, unit, sentence) \
  for (Gauge& gauge : counters.name) gauge.peak = gauge.current;
#define OFFCUT_COUNT(name, unit, sentence)
#define OFFCUT_LEVEL(name, unit, sentence)
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_COUNT
#undef OFFCUT_LEVEL
}

void ResetTotals(Counters& counters) {
#define OFFCUT_GAUGE(name, unit, sentence) \
  for (Gauge& gauge : counters.name) gauge.risen = gauge.fallen = 0;
#define OFFCUT_COUNT(name, unit, sentence) counters.name = 0;
#define OFFCUT_LEVEL(name, unit, sentence)
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_COUNT
#undef OFFCUT_LEVEL
}

}  // namespace

void Counters::Apply(const Event& event) {
  switch (event.kind) {
    case EventKind::kBlockAllocated: {
      const SizeClassOf size_class = ClassOfBlock(event);
      Rise(allocations, size_class, 1);
      Rise(live_bytes, size_class, event.bytes);
      Rise(allocated_bytes, size_class, event.block_bytes());
      Rise(active_blocks, size_class, 1);
      Rise(active_bytes, size_class, event.block_bytes());
      Rise(active_requested_bytes, size_class, event.bytes);
      break;
    }
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended: {
      const SizeClassOf size_class = ClassOfBlock(event);
      Fall(allocations, size_class, 1);
      Fall(live_bytes, size_class, event.bytes);
      Fall(allocated_bytes, size_class, event.block_bytes());
      if (event.kind == EventKind::kBlockFreePended) {
        Rise(pending_bytes, size_class, event.block_bytes());
        break;
      }
      Fall(active_blocks, size_class, 1);
      Fall(active_bytes, size_class, event.block_bytes());
      Fall(active_requested_bytes, size_class, event.bytes);
      break;
    }
    case EventKind::kPendingFreeFinished: {
      const SizeClassOf size_class = ClassOfBlock(event);
      Fall(pending_bytes, size_class, event.block_bytes());
      Fall(active_blocks, size_class, 1);
      Fall(active_bytes, size_class, event.block_bytes());
      Fall(active_requested_bytes, size_class, event.bytes);
      break;
    }
    case EventKind::kGranuleCreated:
      Rise(reserved_bytes, ClassOfGranule(event), event.bytes);
      Rise(held_bytes, ClassOfGranule(event), event.bytes);
      ++granules_created;
      break;
    case EventKind::kGranuleReleased:
      Fall(reserved_bytes, ClassOfGranule(event), event.bytes);
      Fall(held_bytes, ClassOfGranule(event), event.bytes);
      ++granules_released;
      break;
    case EventKind::kDriverPoolGrown:
      Rise(reserved_bytes, SizeClassOf::kLarge, event.bytes);
      Rise(held_bytes, SizeClassOf::kLarge, event.bytes);
      Rise(mapped_bytes, SizeClassOf::kLarge, event.bytes);
      break;
    case EventKind::kDriverPoolShrunk:
      Fall(reserved_bytes, SizeClassOf::kLarge, event.bytes);
      Fall(held_bytes, SizeClassOf::kLarge, event.bytes);
      Fall(mapped_bytes, SizeClassOf::kLarge, event.bytes);
      break;
    case EventKind::kForeignSegmentAdded:
      Rise(foreign_bytes, ClassOfRange(event), event.bytes);
      Rise(held_bytes, ClassOfRange(event), event.bytes);
      break;
    case EventKind::kForeignSegmentRemoved:
      Fall(foreign_bytes, ClassOfRange(event), event.bytes);
      Fall(held_bytes, ClassOfRange(event), event.bytes);
      break;
    case EventKind::kGranuleMapped:
      Rise(mapped_bytes, ClassOfGranule(event), event.bytes);
      break;
    case EventKind::kGranuleUnmapped:
      Fall(mapped_bytes, ClassOfGranule(event), event.bytes);
      break;
    case EventKind::kGranuleMoved:
      ++moves;
      moved_bytes += event.bytes;
      break;
    case EventKind::kMovesMade:
      ++move_batches;
      largest_move_batch = std::max<uint64_t>(largest_move_batch, event.extra);
      break;
    case EventKind::kOldMappingMade:
      Rise(old_mapping_bytes, ClassOfGranule(event), event.bytes);
      break;
    case EventKind::kOldMappingRemoved:
      Fall(old_mapping_bytes, ClassOfGranule(event), event.bytes);
      break;
    case EventKind::kAddressRangeReserved:
      Rise(address_bytes, ClassOfRange(event), event.bytes);
      break;
    case EventKind::kAddressRangeFreed:
      Fall(address_bytes, ClassOfRange(event), event.bytes);
      break;
    case EventKind::kStreamUseRecorded:
      ++stream_uses;
      break;
    case EventKind::kDeviceUsedSampled:
      device_used_bytes = event.bytes;
      device_total_bytes = event.address;
      break;
    case EventKind::kDriverCalled:
      ++driver_calls;
      driver_ns += event.bytes;
      break;
    case EventKind::kReclaimStepTaken:
      ++reclaim_steps;
      if (event.extra == static_cast<uint32_t>(ReclaimStep::kReleaseIdle)) ++release_retries;
      break;
    case EventKind::kRequestFailed:
      ++failed_requests;
      if (IsOutOfMemory(static_cast<FailureReason>(event.extra))) ++out_of_memory;
      break;
    case EventKind::kDeviceWaited:
      ++device_waits;
      break;
    case EventKind::kInvalidFreeIgnored:
      ++invalid_frees;
      break;
    case EventKind::kCacheEmptied:
      ++cache_flushes;
      break;
    case EventKind::kLimitSet:
      limit_bytes = event.bytes;
      break;
    case EventKind::kStepMarked:
      ++steps;
      break;
    case EventKind::kPeaksReset:
      ResetPeaks(*this);
      break;
    case EventKind::kTotalsReset:
      ResetTotals(*this);
      break;
    case EventKind::kEventsDropped:
      dropped_events += event.bytes;
      break;
    case EventKind::kStreamSeen:
    case EventKind::kPoolCreated:
    case EventKind::kPrivatePoolCreated:
    case EventKind::kPrivatePoolReleased:
    case EventKind::kReportTextAdded:
      break;
  }
}

}  // namespace offcut
