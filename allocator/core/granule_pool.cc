#include "allocator/core/granule_pool.h"

#include <algorithm>
#include <utility>

#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"

namespace offcut {

absl::Status GranulePool::MapAll(Arena& arena, uint16_t pool, absl::Span<const Place> places,
                                 absl::FunctionRef<void(const Place&)> stuck) {
  std::vector<GranuleIndex> indices;
  absl::Status status;
  size_t mapped = 0;
  for (const Place& place : places) {
    absl::StatusOr<GranuleIndex> index = place.moved;
    if (place.moved == kNoGranule) index = Create(place.bytes, arena.small(), pool);
    status = index.status();
    if (!status.ok()) break;
    indices.push_back(*index);
    status = TimedCall(emitter_, DriverCall::kMap, place.address, [&] {
      return driver_.Map(place.address, place.bytes, granules_[*index].handle);
    });
    if (!status.ok()) break;
    ++mapped;
  }
  if (status.ok()) status = Open(places);
  if (!status.ok()) {
    // Nothing has ever used the new mappings, so undoing needs no wait.
    for (size_t i = indices.size(); i-- > 0;) {
      if (i < mapped && !Unmap(places[i].address, places[i].bytes)) {
        arena.set_granule_at(places[i].address, places[i].bytes, indices[i]);
        KeepOldMapping(indices[i], places[i].address, pool);
        stuck(places[i]);
      } else if (places[i].moved == kNoGranule) {
        // The first failure is the cause to tell; a failing release keeps the granule in our books.
        Release(indices[i]).IgnoreError();
      }
    }
    return status;
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const GranuleIndex index = indices[i];
    arena.set_granule_at(places[i].address, places[i].bytes, index);
    if (places[i].moved == kNoGranule) {
      EnterMapping(index, places[i].address, pool);
    } else {
      const DevicePtr former = std::exchange(granules_[index].mapped_at, places[i].address);
      Emit(EventKind::kGranuleMoved, index, places[i].address, pool);
      KeepOldMapping(index, former, pool);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GranuleIndex> GranulePool::Create(Bytes bytes, bool small, uint16_t pool) {
  OFFCUT_ASSIGN_OR_RETURN(const PhysicalHandle handle,
                          TimedCall(emitter_, DriverCall::kCreateMemory, 0,
                                    [&] { return driver_.CreateMemory(device_, bytes, flags_); }));
  return Add(handle, bytes, small, pool);
}

GranuleIndex GranulePool::Add(PhysicalHandle handle, Bytes bytes, bool small, uint16_t pool) {
  if (unused_.empty()) {
    OFFCUT_CHECK(granules_.size() < kSmallGranuleBit, "more granules than an event's id can name");
    unused_.push_back(static_cast<GranuleIndex>(granules_.size()));
    granules_.emplace_back();
  }
  const GranuleIndex index = unused_.back();
  unused_.pop_back();
  granules_[index] = {.bytes = bytes, .handle = handle, .small = small};
  reserved_bytes_ += bytes;
  emitter_.Emit(
      {.bytes = bytes, .extra = EventId(index), .pool = pool, .kind = EventKind::kGranuleCreated});
  return index;
}

absl::Status GranulePool::Open(absl::Span<const Place> places) {
  for (size_t begin = 0; begin < places.size();) {
    Bytes bytes = 0;
    size_t end = begin;
    while (end < places.size() && places[end].address == places[begin].address + bytes) {
      bytes += places[end++].bytes;
    }
    OFFCUT_RETURN_IF_ERROR(OpenToAll(places[begin].address, bytes));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status GranulePool::OpenToAll(DevicePtr address, Bytes bytes) {
  for (const DeviceIndex accessor : accessors_) {
    OFFCUT_RETURN_IF_ERROR(SetAccess(address, bytes, accessor));
  }
  return absl::OkStatus();
}

absl::Status GranulePool::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex accessor) {
  return TimedCall(emitter_, DriverCall::kSetAccess, address,
                   [&] { return driver_.SetAccess(address, bytes, accessor); });
}

absl::Status GranulePool::OpenTo(DeviceIndex peer) {
  if (std::find(accessors_.begin(), accessors_.end(), peer) != accessors_.end()) {
    return absl::OkStatus();
  }
  // Old mappings stay as they are: no new work comes to them.
  for (const Granule& granule : granules_) {
    if (granule.mapped_at == 0 || granule.handle == 0) continue;
    OFFCUT_RETURN_IF_ERROR(SetAccess(granule.mapped_at, granule.bytes, peer));
  }
  accessors_.push_back(peer);
  return absl::OkStatus();
}

void GranulePool::EnterMapping(GranuleIndex index, DevicePtr address, uint16_t pool) {
  granules_[index].mapped_at = address;
  Emit(EventKind::kGranuleMapped, index, address, pool);
}

void GranulePool::KeepOldMapping(GranuleIndex index, DevicePtr address, uint16_t pool) {
  ++granules_[index].old_mappings;
  Emit(EventKind::kOldMappingMade, index, address, pool);
}

void GranulePool::LeaveMapping(GranuleIndex index, DevicePtr address, uint16_t pool) {
  Granule& granule = granules_[index];
  if (granule.mapped_at == address) {
    granule.mapped_at = 0;
    Emit(EventKind::kGranuleUnmapped, index, address, pool);
  } else {
    --granule.old_mappings;
    Emit(EventKind::kOldMappingRemoved, index, address, pool);
  }
}

Bytes GranulePool::UnmapRange(Arena& arena, DevicePtr address, Bytes bytes) {
  for (Bytes unmapped = 0; unmapped < bytes;) {
    const DevicePtr place = address + unmapped;
    const GranuleIndex index = arena.granule_at(place);
    OFFCUT_CHECK(index != kNoGranule, "unmaps an address where no granule is");
    const Granule& granule = granules_[index];
    OFFCUT_CHECK(unmapped + granule.bytes <= bytes, "unmaps a part of a granule");
    if (!Unmap(place, granule.bytes)) return unmapped;
    arena.set_granule_at(place, granule.bytes, kNoGranule);
    unmapped += granule.bytes;
    LeaveMapping(index, place, kNoPool);
    if (granule.mapped_at == 0 && granule.old_mappings == 0) Release(index).IgnoreError();
  }
  return bytes;
}

void GranulePool::ReleaseUnmapped() {
  for (GranuleIndex index = 0; index < granules_.size(); ++index) {
    const Granule& granule = granules_[index];
    const bool unmapped = granule.mapped_at == 0 && granule.old_mappings == 0;
    if (granule.handle != 0 && unmapped) Release(index).IgnoreError();
  }
  for (const auto& [address, bytes] : std::exchange(kept_ranges_, {})) FreeRange(address, bytes);
}

bool GranulePool::Unmap(DevicePtr address, Bytes bytes) {
  return TimedCall(emitter_, DriverCall::kUnmap, address,
                   [&] { return driver_.Unmap(address, bytes); })
      .ok();
}

absl::Status GranulePool::Release(GranuleIndex index) {
  const PhysicalHandle handle = granules_[index].handle;
  OFFCUT_RETURN_IF_ERROR(TimedCall(emitter_, DriverCall::kReleaseMemory, 0,
                                   [&] { return driver_.ReleaseMemory(handle); }));
  Remove(index);
  return absl::OkStatus();
}

void GranulePool::Remove(GranuleIndex index) {
  const uint32_t event_id = EventId(index);
  const Bytes bytes = granules_[index].bytes;
  granules_[index] = {};
  unused_.push_back(index);
  reserved_bytes_ -= bytes;
  emitter_.Emit({.bytes = bytes, .extra = event_id, .kind = EventKind::kGranuleReleased});
}

void GranulePool::Emit(EventKind kind, GranuleIndex index, DevicePtr address, uint16_t pool) {
  emitter_.Emit({.address = address,
                 .bytes = granules_[index].bytes,
                 .extra = EventId(index),
                 .pool = pool,
                 .kind = kind});
}

void GranulePool::ForEach(absl::FunctionRef<void(GranuleIndex, const Granule&)> visit) const {
  for (GranuleIndex index = 0; index < granules_.size(); ++index) {
    if (granules_[index].bytes != 0) visit(index, granules_[index]);
  }
}

}  // namespace offcut
