#include "allocator/core/granule_pool.h"

#include <algorithm>
#include <utility>

#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"

namespace offcut {
namespace {

// Gives a lock up for a scope; nullptr: keeps it.
class WithoutLock {
 public:
  explicit WithoutLock(DeviceMutex* mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS : mutex_(mutex) {
    if (mutex_ != nullptr) mutex_->Unlock();
  }
  ~WithoutLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (mutex_ != nullptr) mutex_->Lock();
  }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  DeviceMutex* const mutex_;
};

}  // namespace

absl::Status GranulePool::MapAll(Arena& arena, uint16_t pool, absl::Span<const Place> places,
                                 DeviceMutex* mutex, absl::FunctionRef<void(const Place&)> stuck) {
  std::vector<NewMapping> made(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].moved != kNoGranule) made[i].handle = granules_[places[i].moved].handle;
  }
  const std::vector<DeviceIndex> accessors = accessors_;
  CallLog log(emitter_.clock());
  absl::Status status;
  {
    const WithoutLock without_lock(places.size() > kMostUnderLock ? mutex : nullptr);
    status = MakeMappings(places, accessors, absl::MakeSpan(made), log);
  }
  if (status.ok() && accessors_.size() > accessors.size()) {
    status = Open(places, absl::MakeSpan(accessors_).subspan(accessors.size()), log);
    if (!status.ok()) Undo(places, absl::MakeSpan(made), log);
  }
  log.EmitTo(emitter_);
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    GranuleIndex index = place.moved;
    if (made[i].created) index = Add(made[i].handle, place.bytes, arena.small(), pool);
    if (!made[i].mapped) continue;
    arena.set_granule_at(place.address, place.bytes, index);
    if (!status.ok()) {
      KeepOldMapping(index, place.address, pool);
      stuck(place);
    } else if (made[i].created) {
      EnterMapping(index, place.address, pool);
    } else {
      const DevicePtr former = std::exchange(granules_[index].mapped_at, place.address);
      Emit(EventKind::kGranuleMoved, index, place.address, pool);
      KeepOldMapping(index, former, pool);
    }
  }
  return status;
}

absl::Status GranulePool::MakeMappings(absl::Span<const Place> places,
                                       absl::Span<const DeviceIndex> accessors,
                                       absl::Span<NewMapping> made, CallLog& log) {
  absl::Status status;
  for (size_t i = 0; i < places.size() && status.ok(); ++i) {
    const Place& place = places[i];
    if (place.moved == kNoGranule) {
      const absl::StatusOr<PhysicalHandle> created = log.Time(DriverCall::kCreateMemory, 0, [&] {
        return driver_.CreateMemory(device_, place.bytes, flags_);
      });
      status = created.status();
      if (!status.ok()) break;
      made[i] = {.handle = *created, .created = true};
    }
    status = log.Time(DriverCall::kMap, place.address,
                      [&] { return driver_.Map(place.address, place.bytes, made[i].handle); });
    made[i].mapped = status.ok();
  }
  if (status.ok()) status = Open(places, accessors, log);
  if (!status.ok()) Undo(places, made, log);
  return status;
}

// Nothing has ever used the new mappings, so undoing needs no wait. The first failure is the cause
// to tell, not what fails here.
void GranulePool::Undo(absl::Span<const Place> places, absl::Span<NewMapping> made, CallLog& log) {
  for (size_t i = places.size(); i-- > 0;) {
    if (made[i].mapped) {
      const absl::Status unmapped = log.Time(DriverCall::kUnmap, places[i].address, [&] {
        return driver_.Unmap(places[i].address, places[i].bytes);
      });
      made[i].mapped = !unmapped.ok();
    }
    if (made[i].created && !made[i].mapped) {
      const absl::Status released = log.Time(DriverCall::kReleaseMemory, 0,
                                             [&] { return driver_.ReleaseMemory(made[i].handle); });
      made[i].created = !released.ok();
    }
  }
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

absl::Status GranulePool::Open(absl::Span<const Place> places,
                               absl::Span<const DeviceIndex> accessors, CallLog& log) {
  for (size_t i = 0; i < places.size();) {
    const DevicePtr begin = places[i].address;
    DevicePtr end = begin;
    for (; i < places.size() && places[i].address == end; ++i) end += places[i].bytes;
    for (const DeviceIndex accessor : accessors) {
      OFFCUT_RETURN_IF_ERROR(log.Time(DriverCall::kSetAccess, begin, [&] {
        return driver_.SetAccess(begin, end - begin, accessor);
      }));
    }
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

Bytes GranulePool::UnmapRange(Arena& arena, DevicePtr address, Bytes bytes, DeviceMutex* mutex) {
  std::vector<Place> places;
  Bytes found = 0;
  while (found < bytes) {
    const GranuleIndex index = arena.granule_at(address + found);
    OFFCUT_CHECK(index != kNoGranule, "unmaps an address where no granule is");
    places.push_back({.address = address + found, .bytes = granules_[index].bytes, .moved = index});
    found += places.back().bytes;
  }
  OFFCUT_CHECK(found == bytes, "unmaps a part of a granule");

  CallLog log(emitter_.clock());
  size_t unmapped = 0;
  {
    const WithoutLock without_lock(mutex);
    const auto unmap = [&](const Place& place) {
      return log.Time(DriverCall::kUnmap, place.address,
                      [&] { return driver_.Unmap(place.address, place.bytes); });
    };
    while (unmapped < places.size() && unmap(places[unmapped]).ok()) ++unmapped;
  }
  log.EmitTo(emitter_);
  if (unmapped < places.size()) bytes = places[unmapped].address - address;
  arena.set_granule_at(address, bytes, kNoGranule);
  for (size_t i = 0; i < unmapped; ++i) {
    const GranuleIndex index = places[i].moved;
    LeaveMapping(index, places[i].address, kNoPool);
    const Granule& granule = granules_[index];
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
