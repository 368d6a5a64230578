#include "allocator/core/granule_pool.h"

#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"

namespace offcut {

absl::Status GranulePool::MapRange(Arena& arena, DevicePtr address, Bytes bytes, bool small) {
  absl::Status status;
  DevicePtr mapped_end = address;
  while (status.ok() && mapped_end < address + bytes) {
    status = MapOne(arena, mapped_end, small);
    if (status.ok()) mapped_end += granularity_;
  }
  for (size_t i = 0; status.ok() && i < accessors_.size(); ++i) {
    status = SetAccess(address, bytes, accessors_[i]);
  }
  // Nothing has ever used the new range, so undoing needs no wait.
  if (!status.ok()) UnmapRange(arena, address, mapped_end - address);
  return status;
}

absl::Status GranulePool::OpenTo(DeviceIndex peer) {
  if (std::find(accessors_.begin(), accessors_.end(), peer) != accessors_.end()) {
    return absl::OkStatus();
  }
  for (const Granule& granule : granules_) {
    if (granule.mapped_at == 0) continue;
    OFFCUT_RETURN_IF_ERROR(SetAccess(granule.mapped_at, granularity_, peer));
  }
  accessors_.push_back(peer);
  return absl::OkStatus();
}

absl::Status GranulePool::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex accessor) {
  return TimedCall(emitter_, DriverCall::kSetAccess, address,
                   [&] { return driver_.SetAccess(address, bytes, accessor); });
}

absl::Status GranulePool::MapOne(Arena& arena, DevicePtr address, bool small) {
  OFFCUT_ASSIGN_OR_RETURN(const PhysicalHandle handle,
                          TimedCall(emitter_, DriverCall::kCreateMemory, address,
                                    [&] { return driver_.CreateMemory(device_, granularity_); }));
  if (unused_.empty()) {
    OFFCUT_CHECK(granules_.size() < kSmallGranuleBit, "more granules than an event's id can name");
    unused_.push_back(static_cast<GranuleIndex>(granules_.size()));
    granules_.emplace_back();
  }
  const GranuleIndex index = unused_.back();
  unused_.pop_back();
  granules_[index] = {.handle = handle, .small = small};
  reserved_bytes_ += granularity_;
  emitter_.Emit({.bytes = granularity_,
                 .extra = EventId(index),
                 .pool = arena.pool(),
                 .kind = EventKind::kGranuleCreated});

  const absl::Status mapped = TimedCall(emitter_, DriverCall::kMap, address,
                                        [&] { return driver_.Map(address, granularity_, handle); });
  if (!mapped.ok()) {
    // The first failure is the cause to tell; a failing release keeps the granule in our books.
    Release(index).IgnoreError();
    return mapped;
  }
  granules_[index].mapped_at = address;
  arena.set_granule_at(address, index);
  emitter_.Emit({.address = address,
                 .bytes = granularity_,
                 .extra = EventId(index),
                 .pool = arena.pool(),
                 .kind = EventKind::kGranuleMapped});
  return absl::OkStatus();
}

Bytes GranulePool::UnmapRange(Arena& arena, DevicePtr address, Bytes bytes) {
  Bytes unmapped = 0;
  while (unmapped < bytes && UnmapOne(arena, address + unmapped)) unmapped += granularity_;
  return unmapped;
}

bool GranulePool::UnmapOne(Arena& arena, DevicePtr address) {
  const GranuleIndex index = arena.granule_at(address);
  OFFCUT_CHECK(index != kNoGranule, "unmaps an address where no granule is");
  const absl::Status unmapped = TimedCall(emitter_, DriverCall::kUnmap, address,
                                          [&] { return driver_.Unmap(address, granularity_); });
  if (!unmapped.ok()) return false;
  granules_[index].mapped_at = 0;
  arena.set_granule_at(address, kNoGranule);
  emitter_.Emit({.address = address,
                 .bytes = granularity_,
                 .extra = EventId(index),
                 .pool = arena.pool(),
                 .kind = EventKind::kGranuleUnmapped});
  Release(index).IgnoreError();
  return true;
}

absl::Status GranulePool::Release(GranuleIndex index) {
  const PhysicalHandle handle = granules_[index].handle;
  OFFCUT_RETURN_IF_ERROR(TimedCall(emitter_, DriverCall::kReleaseMemory, 0,
                                   [&] { return driver_.ReleaseMemory(handle); }));
  const uint32_t event_id = EventId(index);
  granules_[index] = {};
  unused_.push_back(index);
  reserved_bytes_ -= granularity_;
  emitter_.Emit({.bytes = granularity_, .extra = event_id, .kind = EventKind::kGranuleReleased});
  return absl::OkStatus();
}

void GranulePool::ForEach(absl::FunctionRef<void(GranuleIndex, const Granule&)> visit) const {
  for (GranuleIndex index = 0; index < granules_.size(); ++index) {
    if (granules_[index].handle != 0) visit(index, granules_[index]);
  }
}

}  // namespace offcut
