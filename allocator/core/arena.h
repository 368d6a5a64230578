// Arena: a range of address space that granules are mapped into, tiled by blocks.
//
// Owns the tiling and which granule is mapped where; owns no memory and calls no driver. Not
// thread-safe: guarded by the device's lock.
//
// Invariants (audit.cc recomputes them):
//   the tiles cover [base, base + bytes) without overlap, in order of address
//   no two neighbours are both free and of one pool, no two are both gaps
//   gaps and old tiles begin and end at places: multiples of the granularity from base
//   a granule, one place or several side by side, is mapped if and only if neither a gap, nor a
//   moving tile without a pool, nor an old tile covers it; none is covered in part

#ifndef OFFCUT_ALLOCATOR_CORE_ARENA_H_
#define OFFCUT_ALLOCATOR_CORE_ARENA_H_

#include <cstdint>
#include <set>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/core/arena_pool.h"
#include "allocator/core/block.h"

namespace offcut {

// Index of a granule in the device's granule pool; kNoGranule where none is mapped.
using GranuleIndex = uint32_t;
inline constexpr GranuleIndex kNoGranule = 0xFFFFFFFF;

class Arena {
 public:
  // All gap. `small`: for small requests. `store` and all pools outlive the arena.
  Arena(DevicePtr base, Bytes bytes, Bytes granularity, bool small, BlockStore& store);

  DevicePtr base() const { return base_; }
  Bytes bytes() const { return bytes_; }
  DevicePtr end() const { return base_ + bytes_; }
  Bytes granularity() const { return granularity_; }
  bool small() const { return small_; }
  bool Contains(DevicePtr address) const { return address - base_ < bytes_; }

  Block* first_tile() const { return first_; }

  // Cuts the first `size` bytes off a free tile; they become a tile in `state`, the rest stays
  // free.
  Block* TakeFront(Block* free_tile, Bytes size, BlockState state);

  // Makes a tile that is neither free nor gap free, merged with free neighbours. `epoch`: as
  // Block::epoch. Returns the free tile.
  Block* GiveBack(Block* tile, uint64_t epoch);

  // A part of a free tile of another pool passes to `pool`. Requires: the device is done with it.
  void Adopt(Block* free_tile, DevicePtr address, Bytes bytes, ArenaPool& pool);

  // Whole granules inside a free tile become a gap.
  void FreeBecameGap(Block* free_tile, DevicePtr address, Bytes bytes);

  // A part of a free tile or a gap becomes a moving tile, which is returned: nobody else finds it.
  // Whole granules, or free memory around them.
  Block* BeginMove(Block* tile, DevicePtr address, Bytes bytes);
  // Nothing came of it: free again, as before, or a gap.
  void GiveUpMove(Block* moving);
  // Granules were mapped there for `pool`: it becomes free, merged with free neighbours of the
  // pool.
  void MovingBecameFree(Block* moving, ArenaPool& pool, uint64_t epoch);
  // Its granules were moved away; their former mappings stay for the time being.
  void MovingBecameOld(Block* moving, uint64_t epoch);
  // Whole granules of a gap have a mapping that could not be removed.
  Block* GapBecameOld(DevicePtr address, Bytes bytes, ArenaPool& pool, uint64_t epoch);
  // The mappings of the first `bytes` of an old tile are gone. Returns the rest that is still old,
  // or nullptr.
  Block* OldBecameGap(Block* old_tile, Bytes bytes);

  // Gaps by address.
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const { return a->address < b->address; }
  };
  const std::set<Block*, ByAddress>& gaps() const { return gaps_; }
  // The gap that an address lies in. Requires: one does.
  Block* GapAt(DevicePtr address) const;

  // Which granule is mapped at a place: an address that is a multiple of the granularity from base.
  GranuleIndex granule_at(DevicePtr address) const { return granules_[Slot(address)]; }
  // Over a range of whole places: a granule covers one or more.
  void set_granule_at(DevicePtr address, Bytes bytes, GranuleIndex granule) {
    for (size_t slot = Slot(address); bytes > 0; ++slot, bytes -= granularity_) {
      granules_[slot] = granule;
    }
  }

 private:
  size_t Slot(DevicePtr address) const { return (address - base_) / granularity_; }

  // Splits a range off a tile, of the same state still and in no index; what is left and right of
  // it stays indexed.
  Block* CutOut(Block* tile, DevicePtr address, Bytes bytes);
  // Merges a free tile or a gap that is in no index with its neighbours of the same kind, and
  // indexes the result.
  Block* Settle(Block* tile);
  void Index(Block* tile);
  void Unindex(Block* tile);

  const DevicePtr base_;
  const Bytes bytes_;
  const Bytes granularity_;
  const bool small_;
  BlockStore& store_;
  Block* first_;
  std::set<Block*, ByAddress> gaps_;
  std::vector<GranuleIndex> granules_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ARENA_H_
