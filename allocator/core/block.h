// Block: a contiguous range of an arena's address space, in one state; and the store they come
// from.
//
// Plain data, guarded by the device's lock. Blocks are of two kinds that share this struct: tiles,
// which together cover an arena's range without overlap, and slots, the equal parts of a slab
// (which is itself a tile).

#ifndef OFFCUT_ALLOCATOR_CORE_BLOCK_H_
#define OFFCUT_ALLOCATOR_CORE_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "allocator/base/units.h"

namespace offcut {

class Arena;
struct Pool;
struct Segment;
struct Slab;
struct StreamUses;

enum class BlockState : uint8_t {
  kGap,        // no memory stands behind it
  kFree,       // mapped, and in the pool's free index
  kLive,       // held by the program
  kPending,    // freed by the program, still used by a stream
  kSlab,       // cut into slots
  kOld,        // granules that were moved away, still mapped here for work submitted before
  kMoving,     // in the hands of a request: granules come here, or are on their way from here
  kReturning,  // a segment on its way back to the allocator that it came from, or out of its hands
};

absl::string_view ToString(BlockState state);

struct Block {
  DevicePtr address = 0;
  Bytes size = 0;
  Bytes requested = 0;  // of a live or pending block
  Pool* pool = nullptr;
  union {
    Arena* arena = nullptr;
    Segment* segment;  // in the segments layout
    uint64_t capture;  // in the async layout: that allocated it (Driver::GetCaptureId); 0: none
  };
  // Tiles: neighbours by address; tile.address + tile.size == tile.next->address.
  // Slots: `next` links the slab's free slots.
  Block* previous = nullptr;
  Block* next = nullptr;
  Slab* slab = nullptr;        // of a slot, or of a tile in state kSlab
  StreamUses* uses = nullptr;  // streams other than its own that use it, if any were recorded
  // The free index's tree.
  Block* left = nullptr;
  Block* right = nullptr;
  // Of a free or old tile: the last epoch of its pool's stream in which some of it was in use. 0:
  // the device has never used it, or is proven to be done with it.
  uint64_t epoch = 0;
  // Segments layout: how many searches there had been when it became free.
  uint32_t free_since = 0;
  BlockState state = BlockState::kGap;
  bool small = false;  // segments layout: lies in a segment of small requests

  DevicePtr end() const { return address + size; }
  bool is_slot() const { return slab != nullptr && state != BlockState::kSlab; }
};

// Hands out Blocks at stable addresses. After the first use of a Block its memory is kept, so a
// steady state allocates nothing from the heap.
class BlockStore {
 public:
  Block* New() {
    if (unused_ == nullptr) AddBatchSlow();
    Block* block = unused_;
    unused_ = block->next;
    *block = Block();
    return block;
  }
  void Delete(Block* block) {
    block->next = unused_;
    unused_ = block;
  }

  // Splits a tile, in no index, at `size`. Returns the new tile behind it, which is alike in all
  // else.
  Block* SplitOff(Block* tile, Bytes size) {
    Block* const rest = New();
    rest->address = tile->address + size;
    rest->size = tile->size - size;
    rest->pool = tile->pool;
    rest->arena = tile->arena;
    rest->epoch = tile->epoch;
    rest->state = tile->state;
    rest->small = tile->small;
    rest->previous = tile;
    rest->next = tile->next;
    if (rest->next != nullptr) rest->next->previous = rest;
    tile->next = rest;
    tile->size = size;
    return rest;
  }
  // `next`, the tile behind `tile`, becomes part of it; neither is in an index.
  void Absorb(Block* tile, Block* next) {
    tile->size += next->size;
    tile->epoch = std::max(tile->epoch, next->epoch);
    tile->next = next->next;
    if (tile->next != nullptr) tile->next->previous = tile;
    Delete(next);
  }

 private:
  void AddBatchSlow();

  std::vector<std::unique_ptr<Block[]>> batches_;
  Block* unused_ = nullptr;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_BLOCK_H_
