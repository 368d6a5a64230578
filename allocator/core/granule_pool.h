// GranulePool: the physical memory that we hold of one device, in granules.
//
// Owns every granule from creation to release, knows where each is mapped, and emits its events.
// Which place to map, which granule to move there and what to unmap is its caller's choice; that
// unmapped memory is idle is its caller's proof, since the driver's unmap waits for nobody. Not
// thread-safe: guarded by the device's lock.
//
// A granule has at most one current mapping. Where it was moved away while work still used it, the
// former mapping stays beside it, an old one, until its caller knows better; a mapping that the
// driver would not remove is an old one too.
//
// Invariant: reserved == sum of the sizes of all granules that were created and not released.

#ifndef OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_
#define OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/core/arena.h"
#include "allocator/core/device_mutex.h"
#include "allocator/core/timed_call.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"

namespace offcut {

// Where the memory of a segment comes from.
enum class SegmentSource : uint8_t {
  kDriver,      // cuMemAlloc: an address of its own; giving it back waits for the device
  kOneGranule,  // a range of address space with one granule of its size mapped into it
  kForeign,     // an allocator of somebody else's, see private_pools.h; no granule stands behind it
};

class GranulePool {
 public:
  struct Granule {
    Bytes bytes = 0;            // 0: released, the index is free
    PhysicalHandle handle = 0;  // 0: memory with an address of its own (SegmentSource::kDriver)
    DevicePtr mapped_at = 0;    // its current mapping; 0: none
    uint32_t old_mappings = 0;  // besides that
    bool small = false;         // made for small requests
  };

  // A granule of an arena that is to be mapped at `address`: one that is moved, or a new one.
  struct Place {
    DevicePtr address = 0;
    Bytes bytes = 0;  // of the granule: a multiple of the granularity
    GranuleIndex moved = kNoGranule;
  };

  // `granularity`: of the device. `driver` and `emitter` outlive the pool.
  GranulePool(Driver& driver, DeviceIndex device, Bytes granularity, Emitter& emitter)
      : driver_(driver),
        device_(device),
        granularity_(granularity),
        emitter_(emitter),
        accessors_{device} {}
  GranulePool(const GranulePool&) = delete;
  GranulePool& operator=(const GranulePool&) = delete;

  // Makes a granule for each place of the arena that moves none there, maps all of them and opens
  // them to the device and its peers; the former mapping of a granule that is moved is an old one
  // from then on. All or nothing: what a failure leaves half-way is undone, and its cause returned;
  // a mapping that could not be undone is an old one, and `stuck` gets its place.
  // `pool`: the index of the pool that it is done for, for the events. `mutex`: the device's lock,
  // given up meanwhile if there are more than kMostUnderLock places; nobody else may use those, or
  // move the granules that are moved there. nullptr: it is kept.
  absl::Status MapAll(Arena& arena, uint16_t pool, absl::Span<const Place> places,
                      DeviceMutex* mutex, absl::FunctionRef<void(const Place&)> stuck);

  // Removes the mappings of the range, current and old ones, in order, and releases the granules
  // that have none left. Returns the bytes unmapped: fewer than asked for if the driver fails, and
  // then always a front part. Requires: the device is done with the range, which cuts no granule.
  // `mutex`: the device's lock, given up meanwhile; nobody else may use the range. nullptr: it is
  // kept.
  Bytes UnmapRange(Arena& arena, DevicePtr address, Bytes bytes, DeviceMutex* mutex = nullptr);

  // Granules that are mapped, or unmapped, in one go while other threads wait for the lock: about
  // 1.2 ms.
  static constexpr size_t kMostUnderLock = 32;

  // Tries again what the driver refused: to release granules without a mapping, and segments'
  // ranges of address space.
  void ReleaseUnmapped();

  // --- Segments: one granule each, in a range of its own ---
  // `small`: for small requests; `pool`: the index of the pool that it is for. All or nothing, as
  // MapAll; but a mapping that could not be undone stays, an old one, and `stuck` gets the granule.
  absl::StatusOr<GranuleIndex> NewSegment(SegmentSource source, Bytes bytes, bool small,
                                          uint16_t pool,
                                          absl::FunctionRef<void(GranuleIndex, DevicePtr)> stuck);
  // The segment at `address`, whose granule NewSegment or `stuck` gave, is no more. If the driver
  // fails, all is as it was. Requires: the device is done with it, or the source is kDriver.
  absl::Status FreeSegment(GranuleIndex index, DevicePtr address, uint16_t pool);

  // What granules can do that are created from now on.
  void SetFlags(const MemoryFlags& flags) { flags_ = flags; }

  // From now on every granule, those mapped already and those to come, is open to `peer` too. On an
  // error, what was opened stays open, and later granules are not.
  absl::Status OpenTo(DeviceIndex peer);

  const Granule& granule(GranuleIndex index) const { return granules_[index]; }
  Bytes reserved_bytes() const { return reserved_bytes_; }

  void ForEach(absl::FunctionRef<void(GranuleIndex, const Granule&)> visit) const;

 private:
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex accessor);
  absl::StatusOr<GranuleIndex> Create(Bytes bytes, bool small, uint16_t pool);
  // Enters memory that the driver gave us.
  GranuleIndex Add(PhysicalHandle handle, Bytes bytes, bool small, uint16_t pool);
  // And takes it out, once the driver has it back.
  void Remove(GranuleIndex index);
  absl::Status OpenToAll(DevicePtr address, Bytes bytes);
  bool Unmap(DevicePtr address, Bytes bytes);
  // A mapping while it is being made.
  struct NewMapping {
    PhysicalHandle handle = 0;
    bool created = false;  // the handle is new
    bool mapped = false;
  };
  // The calls of MapAll; they need no lock. `made`: one for each place, those that are moved there
  // with their handles. After an error, what is left in `made` could not be undone.
  absl::Status MakeMappings(absl::Span<const Place> places, absl::Span<const DeviceIndex> accessors,
                            absl::Span<NewMapping> made, CallLog& log);
  absl::Status Open(absl::Span<const Place> places, absl::Span<const DeviceIndex> accessors,
                    CallLog& log);
  void Undo(absl::Span<const Place> places, absl::Span<NewMapping> made, CallLog& log);
  // The books of mappings. The granule's current one from now on:
  void EnterMapping(GranuleIndex index, DevicePtr address, uint16_t pool);
  // One that is not the granule's current one:
  void KeepOldMapping(GranuleIndex index, DevicePtr address, uint16_t pool);
  // Either is gone:
  void LeaveMapping(GranuleIndex index, DevicePtr address, uint16_t pool);
  // A granule whose release fails stays, unmapped, in our books until ReleaseUnmapped.
  absl::Status Release(GranuleIndex index);
  // A range that the driver keeps is tried again by ReleaseUnmapped.
  void FreeRange(DevicePtr address, Bytes bytes);
  uint32_t EventId(GranuleIndex index) const {
    return index | (granules_[index].small ? kSmallGranuleBit : 0);
  }
  void Emit(EventKind kind, GranuleIndex index, DevicePtr address, uint16_t pool);

  Driver& driver_;
  const DeviceIndex device_;
  const Bytes granularity_;
  Emitter& emitter_;
  MemoryFlags flags_;
  std::vector<DeviceIndex> accessors_;  // the device itself, then its peers
  std::vector<Granule> granules_;
  std::vector<GranuleIndex> unused_;
  std::vector<std::pair<DevicePtr, Bytes>> kept_ranges_;  // no longer ours, but for the driver
  Bytes reserved_bytes_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_GRANULE_POOL_H_
