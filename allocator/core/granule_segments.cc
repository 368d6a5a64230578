// GranulePool's part for segments: memory in one piece, in a range of its own.

#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/granule_pool.h"
#include "allocator/core/timed_call.h"

namespace offcut {

absl::StatusOr<GranuleIndex> GranulePool::NewSegment(
    SegmentSource source, Bytes bytes, bool small, uint16_t pool,
    absl::FunctionRef<void(GranuleIndex, DevicePtr)> stuck) {
  const auto emit_range = [&](DevicePtr address) {
    emitter_.Emit({.address = address,
                   .bytes = bytes,
                   .extra = small ? 1u : 0u,
                   .pool = pool,
                   .kind = EventKind::kAddressRangeReserved});
  };
  if (source == SegmentSource::kDriver) {
    OFFCUT_ASSIGN_OR_RETURN(const DevicePtr address,
                            TimedCall(emitter_, DriverCall::kAllocateMemory, 0,
                                      [&] { return driver_.AllocateMemory(device_, bytes); }));
    emit_range(address);
    const GranuleIndex index = Add(/*handle=*/0, bytes, small, pool);
    EnterMapping(index, address, pool);
    return index;
  }
  OFFCUT_ASSIGN_OR_RETURN(const DevicePtr address,
                          TimedCall(emitter_, DriverCall::kReserveAddress, 0, [&] {
                            return driver_.ReserveAddress(device_, bytes, granularity_, /*hint=*/0);
                          }));
  const absl::StatusOr<GranuleIndex> index = Create(bytes, small, pool);
  absl::Status status = index.status();
  if (status.ok()) {
    status = TimedCall(emitter_, DriverCall::kMap, address,
                       [&] { return driver_.Map(address, bytes, granules_[*index].handle); });
    if (status.ok()) {
      status = OpenToAll(address, bytes);
      if (status.ok()) {
        emit_range(address);
        EnterMapping(*index, address, pool);
        return index;
      }
      if (!Unmap(address, bytes)) {
        emit_range(address);
        KeepOldMapping(*index, address, pool);
        stuck(*index, address);
        return status;
      }
    }
    // The first failure is the cause to tell; a failing release keeps the granule in our books.
    Release(*index).IgnoreError();
  }
  FreeRange(address, bytes);
  return status;
}

void GranulePool::FreeRange(DevicePtr address, Bytes bytes) {
  const absl::Status freed = TimedCall(emitter_, DriverCall::kFreeAddress, address,
                                       [&] { return driver_.FreeAddress(address, bytes); });
  if (!freed.ok()) kept_ranges_.emplace_back(address, bytes);
}

absl::Status GranulePool::FreeSegment(GranuleIndex index, DevicePtr address, uint16_t pool) {
  const Granule granule = granules_[index];
  if (granule.handle == 0) {
    OFFCUT_RETURN_IF_ERROR(TimedCall(emitter_, DriverCall::kFreeMemory, address,
                                     [&] { return driver_.FreeMemory(device_, address); }));
  } else {
    OFFCUT_RETURN_IF_ERROR(TimedCall(emitter_, DriverCall::kUnmap, address,
                                     [&] { return driver_.Unmap(address, granule.bytes); }));
    FreeRange(address, granule.bytes);
  }
  LeaveMapping(index, address, pool);
  if (granule.handle == 0) {
    Remove(index);
  } else {
    Release(index).IgnoreError();
  }
  emitter_.Emit({.address = address,
                 .bytes = granule.bytes,
                 .extra = granule.small ? 1u : 0u,
                 .pool = pool,
                 .kind = EventKind::kAddressRangeFreed});
  return absl::OkStatus();
}

}  // namespace offcut
