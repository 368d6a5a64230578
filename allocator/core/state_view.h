// StateView: everything that a DeviceAllocator holds, as plain lists.
//
// What the audit recomputes the invariants from, and what tests compare with replayed events. Raw
// facts as the data structures have them, contradictions included: nothing here is derived from
// anything else here. A value; no state of its own.

#ifndef OFFCUT_ALLOCATOR_CORE_STATE_VIEW_H_
#define OFFCUT_ALLOCATOR_CORE_STATE_VIEW_H_

#include <cstdint>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/core/arena.h"
#include "allocator/core/block.h"
#include "allocator/core/segment_counters.h"
#include "allocator/events/accounting.h"
#include "allocator/events/counters.h"
#include "allocator/events/driver_pool_number.h"
#include "allocator/events/event.h"

namespace offcut {

// A limit on reserved memory that is none.
inline constexpr Bytes kNoLimit = ~Bytes{0};

struct StateView {
  struct Slot {
    DevicePtr address = 0;
    Bytes size = 0;
    Bytes requested = 0;
    BlockState state{};
  };
  struct Tile {
    DevicePtr address = 0;
    Bytes size = 0;
    Bytes requested = 0;
    BlockState state{};
    uint16_t pool = kNoPool;  // kNoPool of a gap
    std::vector<Slot> slots;  // of a tile in state kSlab, in order of address
    uint32_t free_slots = 0;  // as its slab counts them
  };
  // What lies at one place of an arena; a large granule covers several, side by side.
  struct MappedGranule {
    DevicePtr address = 0;
    uint32_t index = 0;
  };
  struct ArenaView {
    bool small = false;
    bool segment = false;  // in one piece, of one pool
    bool foreign = false;  // memory of an allocator of somebody else's: no granules
    DevicePtr base = 0;
    Bytes bytes = 0;
    Bytes granularity = 0;                // size of a place: granules are a multiple of it
    std::vector<Tile> tiles;              // in the order of their links
    std::vector<MappedGranule> granules;  // the arena's own table: current and old mappings
    std::vector<DevicePtr> gaps;          // the arena's own index
  };
  struct FreeEntry {
    uint16_t pool = 0;
    bool small = false;
    DevicePtr address = 0;
    Bytes size = 0;
  };
  struct GranuleView {
    uint32_t index = 0;
    Bytes bytes = 0;
    DevicePtr mapped_at = 0;
    uint32_t old_mappings = 0;
    bool small = false;
  };
  struct Taken {
    DevicePtr key = 0;  // what the program would free
    DevicePtr address = 0;
    Bytes size = 0;
    Bytes requested = 0;
    uint16_t pool = 0;
    BlockState state{};
    uint32_t unfinished_uses = 0;
  };

  // A pool of the driver's, or memory of graphs; only those that hold anything.
  struct DriverPoolView {
    DriverPoolNumber number = 0;
    Bytes reserved_bytes = 0;
    bool heard_of_late = false;  // the driver did not answer when last asked
  };

  struct PoolView {
    StreamHandle stream = nullptr;
    uint64_t private_pool_id = 0;  // as encoded in events; 0: a default pool
    bool in_use = false;           // of a private pool: somebody uses it
  };

  Bytes limit = 0;
  Bytes reserved_bytes = 0;           // as the layouts count it
  size_t pending_blocks = 0;          // as the stream ledger counts them
  std::vector<StreamHandle> streams;  // by index
  std::vector<PoolView> pools;        // by index
  std::vector<ArenaView> arenas;
  std::vector<FreeEntry> free;        // the free indexes, each in its own order
  std::vector<GranuleView> granules;  // the granule pool
  std::vector<DriverPoolView> driver_pools;
  std::vector<Tile> driver_blocks;  // blocks that lie in them, in the layout's own order
  std::vector<Taken> taken;         // the table of live and pending blocks, sorted by key
  Counters counters;
  SegmentCounters segment_counters;

  // Where every byte is, by the tiles and the granule pool.
  Accounting Account(Bytes device_used_bytes) const;
};

// One arena's part of the view.
StateView::ArenaView ViewOf(const Arena& arena);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_STATE_VIEW_H_
