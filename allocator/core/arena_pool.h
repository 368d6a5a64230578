// ArenaPool: a default pool of the arena layout.
//
// The default pools of a device share its arenas: each tile that is not a gap belongs to one pool,
// and here are the indexes over those of one pool. A free block passes to another pool once the
// device is done with it, without any call of the driver. Guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_ARENA_POOL_H_
#define OFFCUT_ALLOCATOR_CORE_ARENA_POOL_H_

#include <deque>

#include "allocator/core/free_index.h"
#include "allocator/core/pool.h"
#include "allocator/core/slab.h"

namespace offcut {

struct ArenaPool final : Pool {
  ArenaPool(uint16_t pool_index, StreamLedger::Stream& pool_stream, Layout& pool_layout)
      : Pool(pool_index, pool_stream, pool_layout) {}

  FreeIndex& free(bool small) { return small ? small_free : large_free; }
  const FreeIndex& free(bool small) const { return small ? small_free : large_free; }

  FreeIndex small_free;  // in arenas of small requests
  FreeIndex large_free;  // in the others
  SlabSet slabs;
  std::deque<Block*> old_tiles;  // in order of epoch
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ARENA_POOL_H_
