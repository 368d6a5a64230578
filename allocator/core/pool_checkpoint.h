// PoolCheckpoint: the blocks of a private pool at one moment, to be brought back later.
//
// torch.compile's CUDA graph trees take one at the end of a graph's recording and restore it before
// what follows is recorded on another path, so that every address is again as it was. A value;
// taken and restored by DeviceAllocator.

#ifndef OFFCUT_ALLOCATOR_CORE_POOL_CHECKPOINT_H_
#define OFFCUT_ALLOCATOR_CORE_POOL_CHECKPOINT_H_

#include <numeric>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/events/private_pool_id.h"

namespace offcut {

struct PoolCheckpoint {
  struct Block {
    Bytes size = 0;
    Bytes requested = 0;  // of a live block
    bool live = false;
  };
  struct Segment {
    DevicePtr address = 0;
    std::vector<Block> blocks;  // cover it, in order of address

    Bytes bytes() const {
      return std::accumulate(blocks.begin(), blocks.end(), Bytes{0},
                             [](Bytes sum, const Block& block) { return sum + block.size; });
    }
  };

  PrivatePoolId pool;
  std::vector<Segment> segments;
};

// What restoring a checkpoint did to the program's blocks, by address. A block that lives before
// and after is in both lists.
struct RestoredBlocks {
  std::vector<DevicePtr> freed;
  std::vector<DevicePtr> allocated;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_POOL_CHECKPOINT_H_
