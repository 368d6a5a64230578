// SegmentsLayout's part for private pools whose segments come from an allocator of somebody else's.
//
// That allocator is called without the lock, by the DeviceAllocator; here is what becomes of what
// it gives. It may ask us for memory in turn, as a MemPool does whose allocator is offcut_malloc:
// then the segment that is lent to it, and that it hands back to us, is a segment of our own, and
// counted as such. On its way to the allocator and back a lent segment is in state kReturning, and
// only its being freed by the allocator ends it.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/segments_layout.h"

namespace offcut {

namespace native = policy::native;

absl::Status SegmentsLayout::EnterForeign(Pool& any_pool, Bytes requested, DevicePtr address) {
  SegmentPool& pool = Cast(any_pool);
  SegmentSet& set = SetOf(pool, native::IsSmall(BlockSize(requested)));
  const Bytes bytes = GrowthFor(requested);
  if (Segment* const lent = FindReturning(address);
      lent != nullptr && lent->lent && lent->first->pool == &pool && lent->bytes >= bytes) {
    lent->first->state = BlockState::kFree;
    EnterFree(set, lent->first);
    CountSegment(lent->bytes, set.small, /*made=*/true);
    fresh_ = lent->first;
    return absl::OkStatus();
  }
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("the allocator of a private pool gave ",
                                                   FormatBytes(bytes), " at 0x", absl::Hex(address),
                                                   ", which ", why...));
  };
  if (address % kBlockAlignment != 0) return refuse("is no multiple of ", kBlockAlignment);
  for (const SegmentPool* other : pools_) {
    for (const SegmentSet* others : {&other->small, &other->large}) {
      for (const std::unique_ptr<Segment>& segment : others->segments) {
        if (segment->granule != kNoGranule) continue;
        if (address < segment->address() + segment->bytes && segment->address() < address + bytes) {
          return refuse("overlaps the ", FormatBytes(segment->bytes), " that it gave at 0x",
                        absl::Hex(segment->address()), " and has not got back");
        }
      }
    }
  }
  bool known = false;
  for (DevicePtr page = RoundDown(address, AddressMap::kPageBytes); page < address + bytes;
       page += AddressMap::kPageBytes) {
    const std::optional<DeviceIndex> device = context_.address_map.Find(page);
    if (!device.has_value()) continue;
    if (*device != context_.device) return refuse("lies in memory of device ", *device);
    known = true;
  }
  if (const absl::Status entered = context_.address_map.Insert(address, bytes, context_.device);
      !entered.ok()) {
    return refuse("no process can use: ", entered.message());
  }
  Block* const tile = AddSegment(pool, set, address, bytes, kNoGranule, BlockState::kFree);
  // Memory within a range of ours leaves the map with that range.
  tile->segment->in_address_map = !known;
  context_.emitter.Emit({.address = address,
                         .bytes = bytes,
                         .extra = set.small ? 1u : 0u,
                         .pool = pool.index,
                         .kind = EventKind::kForeignSegmentAdded});
  EnterFree(set, tile);
  CountSegment(bytes, set.small, /*made=*/true);
  fresh_ = tile;
  context_.SampleDeviceUsed();
  return absl::OkStatus();
}

absl::StatusOr<DevicePtr> SegmentsLayout::Lend(Pool& any_pool, Bytes requested, Bytes bytes) {
  SegmentPool& pool = Cast(any_pool);
  SegmentSet& set = SetOf(pool, native::IsSmall(BlockSize(requested)));
  const SegmentSource source =
      context_.properties.virtual_memory ? SegmentSource::kOneGranule : SegmentSource::kDriver;
  bytes = RoundUp(bytes, context_.properties.granularity);
  OFFCUT_RETURN_IF_ERROR(CheckLimit(bytes));
  OFFCUT_ASSIGN_OR_RETURN(const GranuleIndex granule,
                          context_.granules.NewSegment(source, bytes, set.small, pool.index,
                                                       [&](GranuleIndex stuck, DevicePtr address) {
                                                         AddSegment(pool, set, address, bytes,
                                                                    stuck, BlockState::kOld);
                                                       }));
  const DevicePtr address = context_.granules.granule(granule).mapped_at;
  Segment* const segment =
      AddSegment(pool, set, address, bytes, granule, BlockState::kReturning)->segment;
  segment->lent = true;
  if (const absl::Status entered = context_.address_map.Insert(address, bytes, context_.device);
      !entered.ok()) {
    segment->in_address_map = false;
    TakeBack(address);
    return entered;
  }
  context_.SampleDeviceUsed();
  return address;
}

bool SegmentsLayout::TakeBack(DevicePtr address) {
  Segment* const segment = FindReturning(address);
  if (segment == nullptr || !segment->lent) return false;
  Block* const tile = segment->first;
  if (context_.granules.FreeSegment(segment->granule, address, tile->pool->index).ok()) {
    RemoveReturning(segment);
    context_.SampleDeviceUsed();
  } else {
    // What the driver refuses is the pool's, until its memory is released the next time.
    segment->lent = false;
    tile->state = BlockState::kFree;
    EnterFree(SetOf(Cast(*tile->pool), tile->small), tile);
    CountSegment(segment->bytes, tile->small, /*made=*/true);
  }
  return true;
}

std::optional<SegmentsLayout::Return> SegmentsLayout::NextReturn() {
  if (to_return_.empty()) return std::nullopt;
  const Segment* const segment = to_return_.back();
  to_return_.pop_back();
  return Return{.to = segment->first->pool->private_pool->foreign,
                .address = segment->address(),
                .bytes = segment->bytes};
}

void SegmentsLayout::FinishReturn(DevicePtr address) {
  Segment* const segment = FindReturning(address);
  // What was lent is gone by now, or its allocator keeps it.
  if (segment == nullptr || segment->lent) return;
  context_.emitter.Emit({.address = address,
                         .bytes = segment->bytes,
                         .extra = segment->first->small ? 1u : 0u,
                         .pool = segment->first->pool->index,
                         .kind = EventKind::kForeignSegmentRemoved});
  RemoveReturning(segment);
  context_.SampleDeviceUsed();
}

Bytes SegmentsLayout::LiveBytes() const {
  Bytes live = 0;
  for (const SegmentPool* pool : pools_) {
    for (const SegmentSet* set : {&pool->small, &pool->large}) {
      for (const std::unique_ptr<Segment>& segment : set->segments) {
        if (segment->granule != kNoGranule) continue;
        for (const Block* block = segment->first; block != nullptr; block = block->next) {
          if (block->state == BlockState::kLive) live += block->requested;
        }
      }
    }
  }
  return live;
}

Segment* SegmentsLayout::FindReturning(DevicePtr address) const {
  for (const SegmentPool* pool : pools_) {
    for (const SegmentSet* set : {&pool->small, &pool->large}) {
      for (const std::unique_ptr<Segment>& segment : set->segments) {
        if (segment->address() == address && segment->first->state == BlockState::kReturning) {
          return segment.get();
        }
      }
    }
  }
  return nullptr;
}

void SegmentsLayout::RemoveReturning(Segment* segment) {
  Block* const tile = segment->first;
  if (segment->in_address_map) context_.address_map.Remove(tile->address, segment->bytes);
  SegmentSet& set = SetOf(Cast(*tile->pool), tile->small);
  context_.blocks.Delete(tile);
  ForgetSegment(set, segment);
}

}  // namespace offcut
