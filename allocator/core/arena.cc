#include "allocator/core/arena.h"

#include "allocator/base/check.h"

namespace offcut {

Arena::Arena(DevicePtr base, Bytes bytes, Bytes granularity, uint16_t pool, FreeIndex& free,
             BlockStore& store)
    : base_(base),
      bytes_(bytes),
      granularity_(granularity),
      pool_(pool),
      free_(free),
      store_(store),
      first_(store.New()),
      granules_(bytes / granularity, kNoGranule) {
  first_->address = base;
  first_->size = bytes;
  first_->arena = this;
  first_->state = BlockState::kGap;
  Index(first_);
}

Block* Arena::TakeFront(Block* free_tile, Bytes size, BlockState state) {
  free_.Remove(free_tile);
  if (free_tile->size > size) {
    // No free neighbour can follow, so the rest merges with nothing.
    free_.Insert(SplitOff(free_tile, size));
  }
  free_tile->state = state;
  return free_tile;
}

Block* Arena::GiveBack(Block* tile) {
  tile->state = BlockState::kFree;
  return Settle(tile);
}

Block* Arena::GapBecameFree(DevicePtr address, Bytes bytes) {
  Block probe;
  probe.address = address;
  auto it = gaps_.upper_bound(&probe);
  OFFCUT_CHECK(it != gaps_.begin(), "no gap at the mapped address");
  Block* tile = *std::prev(it);
  OFFCUT_CHECK(address >= tile->address && address + bytes <= tile->end(),
               "mapped a range that is not within one gap");
  Unindex(tile);
  if (tile->address < address) {
    Block* rest = SplitOff(tile, address - tile->address);
    Index(tile);
    tile = rest;
  }
  if (tile->size > bytes) Index(SplitOff(tile, bytes));
  tile->state = BlockState::kFree;
  return Settle(tile);
}

void Arena::FreeBecameGap(Block* free_tile, DevicePtr address, Bytes bytes) {
  OFFCUT_CHECK(address >= free_tile->address && address + bytes <= free_tile->end(),
               "unmapped a range that is not within one free block");
  Unindex(free_tile);
  Block* tile = free_tile;
  if (tile->address < address) {
    Block* rest = SplitOff(tile, address - tile->address);
    Index(tile);
    tile = rest;
  }
  if (tile->size > bytes) Index(SplitOff(tile, bytes));
  tile->state = BlockState::kGap;
  Settle(tile);
}

Block* Arena::SplitOff(Block* tile, Bytes size) {
  Block* rest = store_.New();
  rest->address = tile->address + size;
  rest->size = tile->size - size;
  rest->arena = this;
  rest->state = tile->state;
  rest->previous = tile;
  rest->next = tile->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  tile->next = rest;
  tile->size = size;
  return rest;
}

void Arena::Absorb(Block* tile, Block* next) {
  tile->size += next->size;
  tile->next = next->next;
  if (tile->next != nullptr) tile->next->previous = tile;
  store_.Delete(next);
}

Block* Arena::Settle(Block* tile) {
  if (Block* next = tile->next; next != nullptr && next->state == tile->state) {
    Unindex(next);
    Absorb(tile, next);
  }
  if (Block* previous = tile->previous; previous != nullptr && previous->state == tile->state) {
    Unindex(previous);
    Absorb(previous, tile);
    tile = previous;
  }
  Index(tile);
  return tile;
}

void Arena::Index(Block* tile) {
  if (tile->state == BlockState::kFree) {
    free_.Insert(tile);
  } else {
    gaps_.insert(tile);
  }
}

void Arena::Unindex(Block* tile) {
  if (tile->state == BlockState::kFree) {
    free_.Remove(tile);
  } else {
    gaps_.erase(tile);
  }
}

}  // namespace offcut
