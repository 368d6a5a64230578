// GranulePool: the physical memory that we hold of one device, in granules.
//
// Owns every granule from creation to release and emits its events. Which gap to map and which free
// range to unmap is its caller's choice; that unmapped memory is idle is its caller's proof, since
// the driver's unmap waits for nobody. Not thread-safe: guarded by the device's lock.
//
// Invariant: reserved == sum of the sizes of all granules that were created and not released.

#ifndef OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_
#define OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "allocator/base/units.h"
#include "allocator/core/arena.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"

namespace offcut {

class GranulePool {
 public:
  struct Granule {
    PhysicalHandle handle = 0;  // 0: released, the index is free
    DevicePtr mapped_at = 0;    // 0: not mapped
    bool small = false;         // made for an arena of small requests
  };

  // `granularity`: bytes of every granule. `driver` and `emitter` outlive the pool.
  GranulePool(Driver& driver, DeviceIndex device, Bytes granularity, Emitter& emitter)
      : driver_(driver),
        device_(device),
        granularity_(granularity),
        emitter_(emitter),
        accessors_{device} {}
  GranulePool(const GranulePool&) = delete;
  GranulePool& operator=(const GranulePool&) = delete;

  // Creates granules, maps them over the range (whole granules of a gap) and opens it to the
  // device and its peers. All or nothing: what a failure leaves half-way is undone, and its cause
  // returned.
  absl::Status MapRange(Arena& arena, DevicePtr address, Bytes bytes, bool small);

  // Unmaps and releases the granules of the range, in order. Returns the bytes unmapped: fewer than
  // asked for if the driver fails, and then always a front part. Requires: the device is done with
  // the range.
  Bytes UnmapRange(Arena& arena, DevicePtr address, Bytes bytes);

  // From now on every granule, those mapped already and those to come, is open to `peer` too. On an
  // error, what was opened stays open, and later granules are not.
  absl::Status OpenTo(DeviceIndex peer);

  Bytes reserved_bytes() const { return reserved_bytes_; }

  void ForEach(absl::FunctionRef<void(GranuleIndex, const Granule&)> visit) const;

 private:
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex accessor);
  absl::Status MapOne(Arena& arena, DevicePtr address, bool small);
  // False if the driver fails to unmap. A granule whose release fails stays, unmapped, in our
  // books.
  bool UnmapOne(Arena& arena, DevicePtr address);
  absl::Status Release(GranuleIndex index);
  uint32_t EventId(GranuleIndex index) const {
    return index | (granules_[index].small ? kSmallGranuleBit : 0);
  }

  Driver& driver_;
  const DeviceIndex device_;
  const Bytes granularity_;
  Emitter& emitter_;
  std::vector<DeviceIndex> accessors_;  // the device itself, then its peers
  std::vector<Granule> granules_;
  std::vector<GranuleIndex> unused_;
  Bytes reserved_bytes_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_
