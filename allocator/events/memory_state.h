// MemoryState: what the allocator holds, rebuilt from events alone.
//
// The second fold over events, beside the counters: `state == replay(events)`. Readers use it to
// say what was live at an instant and where every byte was; tests compare it with the allocator's
// own state. It trusts nothing: events may be missing (dropped) or nonsense (a corrupt file), and
// what does not fit is counted in `inconsistencies`, never fatal. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_EVENTS_MEMORY_STATE_H_
#define OFFCUT_ALLOCATOR_EVENTS_MEMORY_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/events/accounting.h"
#include "allocator/events/driver_pool_number.h"
#include "allocator/events/event.h"

namespace offcut {

class MemoryState {
 public:
  struct Block {
    Bytes requested = 0;
    Bytes size = 0;
    uint16_t pool = kNoPool;
    bool pending = false;
    bool foreign = false;  // lies in memory of an allocator of somebody else's
    uint64_t allocated_ns = 0;
    uint64_t allocation_index = 0;  // how many BlockAllocated events came before it
    bool operator==(const Block&) const = default;
  };
  struct Granule {
    Bytes size = 0;
    DevicePtr mapped_at = 0;  // 0: not mapped
    bool in_private_pool = false;
    bool operator==(const Granule&) const = default;
  };
  struct Pool {
    uint32_t stream_index = 0;
    uint64_t private_pool_id = 0;  // 0: a default pool
    bool operator==(const Pool&) const = default;
  };
  struct Stream {
    StreamId id = 0;
    uint64_t handle = 0;
    bool operator==(const Stream&) const = default;
  };

  void Apply(const Event& event);

  // Recomputed from scratch at each call: O(blocks + granules).
  Accounting Account() const;

  // Live and pending blocks by address.
  const std::map<DevicePtr, Block>& blocks() const { return blocks_; }
  const std::map<uint32_t, Granule>& granules() const { return granules_; }
  // Ids of granules by the address of a mapping that is not their current one.
  const std::map<DevicePtr, uint32_t>& old_mappings() const { return old_mappings_; }
  // What those of the driver's pools hold that hold anything.
  const std::map<DriverPoolNumber, Bytes>& driver_pools() const { return driver_pools_; }
  const std::map<uint16_t, Pool>& pools() const { return pools_; }
  const std::map<uint32_t, Stream>& streams() const { return streams_; }
  // Segments that private pools got from allocators of somebody else's: their sizes by address.
  const std::map<DevicePtr, Bytes>& foreign_segments() const { return foreign_segments_; }
  // Of all blocks, those in foreign memory included; and of those alone.
  Bytes live_bytes() const { return live_bytes_; }
  Bytes foreign_live_bytes() const { return foreign_live_bytes_; }
  Bytes reserved_bytes() const { return reserved_bytes_; }
  Bytes device_used_bytes() const { return device_used_bytes_; }
  // Events that contradicted the state before them.
  uint64_t inconsistencies() const { return inconsistencies_; }

 private:
  void RemoveBlock(const Event& event, bool was_pending);
  bool IsForeign(DevicePtr address) const;
  void AddLive(const Block& block, int sign);
  void ShrinkDriverPool(const Event& event);
  bool IsPrivate(uint16_t pool) const;

  std::map<DevicePtr, Block> blocks_;
  std::map<uint32_t, Granule> granules_;
  std::map<DevicePtr, uint32_t> old_mappings_;
  std::map<DriverPoolNumber, Bytes> driver_pools_;
  std::map<uint16_t, Pool> pools_;
  std::map<uint32_t, Stream> streams_;
  std::map<DevicePtr, Bytes> foreign_segments_;
  Bytes live_bytes_ = 0;
  Bytes foreign_live_bytes_ = 0;
  Bytes foreign_bytes_ = 0;
  Bytes reserved_bytes_ = 0;
  Bytes device_used_bytes_ = 0;
  uint64_t allocations_ = 0;
  uint64_t inconsistencies_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_MEMORY_STATE_H_
