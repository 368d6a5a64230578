// Snapshot: the memory of one device as segments and their blocks, as PyTorch's tools know it.
//
// Drawn from a StateView, by a pure function. A segment is one that the segments layout made, or a
// run of an arena that is mapped throughout and belongs to one pool: what moves, grows or passes to
// another pool makes other runs of it. Blocks cover their segment without a hole; free slots that
// lie side by side, which only requests of their size can use, appear as one free block. What is
// mapped a second time for work submitted before a move is left out. A value.

#ifndef OFFCUT_ALLOCATOR_CORE_SNAPSHOT_H_
#define OFFCUT_ALLOCATOR_CORE_SNAPSHOT_H_

#include <cstddef>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/core/block.h"
#include "allocator/core/state_view.h"
#include "allocator/events/private_pool_id.h"

namespace offcut {

struct Snapshot {
  struct Block {
    Bytes size = 0;
    Bytes requested = 0;  // of a live or pending block
    BlockState state{};   // kFree, kLive or kPending
  };
  struct Segment {
    DevicePtr address = 0;
    Bytes bytes = 0;
    StreamHandle stream = nullptr;
    PrivatePoolId pool;         // {0, 0}: a default pool
    bool small = false;         // of small requests
    bool in_one_piece = false;  // made as it is, else a run of an arena
    size_t first_block = 0;     // in `blocks`
    size_t block_count = 0;
  };

  std::vector<Segment> segments;  // by address
  std::vector<Block> blocks;      // of each segment in order of address, in the order of segments
};

Snapshot SnapshotOf(const StateView& view);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SNAPSHOT_H_
