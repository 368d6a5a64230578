// Segment: memory in one piece, tiled by live, pending and free blocks.
//
// Plain data, guarded by the device's lock. The blocks are linked in order of address, cover the
// segment without overlap, and no two neighbours are both free; the first keeps its place in memory
// for the segment's life. A segment whose mapping the driver would not undo is a single block in
// state kOld.

#ifndef OFFCUT_ALLOCATOR_CORE_SEGMENT_H_
#define OFFCUT_ALLOCATOR_CORE_SEGMENT_H_

#include "allocator/base/units.h"
#include "allocator/core/arena.h"
#include "allocator/core/block.h"

namespace offcut {

struct Segment {
  Block* first = nullptr;
  Bytes bytes = 0;
  GranuleIndex granule = kNoGranule;  // kNoGranule: of memory that is not ours
  // Memory of ours that the pool got through an allocator of somebody else's, see
  // segments_foreign.cc.
  bool lent = false;
  bool in_address_map = true;

  DevicePtr address() const { return first->address; }
  bool is_one_block() const { return first->next == nullptr; }
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SEGMENT_H_
