#include "allocator/core/arena.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace offcut {

Arena::Arena(DevicePtr base, Bytes bytes, Bytes granularity, Pool& pool, FreeIndex& free,
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
  first_->pool = &pool;
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

Block* Arena::GiveBack(Block* tile, uint64_t epoch) {
  tile->state = BlockState::kFree;
  tile->epoch = epoch;
  return Settle(tile);
}

Block* Arena::GapBecameFree(DevicePtr address, Bytes bytes, uint64_t epoch) {
  Block* tile = CutOut(GapAt(address), address, bytes);
  tile->state = BlockState::kFree;
  tile->epoch = epoch;
  return Settle(tile);
}

void Arena::FreeBecameGap(Block* free_tile, DevicePtr address, Bytes bytes) {
  Block* tile = CutOut(free_tile, address, bytes);
  tile->state = BlockState::kGap;
  tile->epoch = 0;
  Settle(tile);
}

Block* Arena::FreeBecameOld(Block* free_tile, DevicePtr address, Bytes bytes, uint64_t epoch) {
  Block* tile = CutOut(free_tile, address, bytes);
  tile->state = BlockState::kOld;
  tile->epoch = epoch;
  return tile;
}

Block* Arena::GapBecameOld(DevicePtr address, Bytes bytes, uint64_t epoch) {
  Block* tile = CutOut(GapAt(address), address, bytes);
  tile->state = BlockState::kOld;
  tile->epoch = epoch;
  return tile;
}

Block* Arena::OldBecameGap(Block* old_tile, Bytes bytes) {
  Block* const rest = old_tile->size > bytes ? SplitOff(old_tile, bytes) : nullptr;
  old_tile->state = BlockState::kGap;
  old_tile->epoch = 0;
  Settle(old_tile);
  return rest;
}

Block* Arena::GapAt(DevicePtr address) const {
  Block probe;
  probe.address = address;
  const auto it = gaps_.upper_bound(&probe);
  OFFCUT_CHECK(it != gaps_.begin(), "no gap at the address");
  return *std::prev(it);
}

Block* Arena::CutOut(Block* tile, DevicePtr address, Bytes bytes) {
  OFFCUT_CHECK(address >= tile->address && address + bytes <= tile->end(),
               "a range that is not within one tile");
  Unindex(tile);
  if (tile->address < address) {
    Block* rest = SplitOff(tile, address - tile->address);
    Index(tile);
    tile = rest;
  }
  if (tile->size > bytes) Index(SplitOff(tile, bytes));
  return tile;
}

Block* Arena::SplitOff(Block* tile, Bytes size) {
  Block* rest = store_.New();
  rest->address = tile->address + size;
  rest->size = tile->size - size;
  rest->arena = this;
  rest->pool = &pool_;
  rest->epoch = tile->epoch;
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
  tile->epoch = std::max(tile->epoch, next->epoch);
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
  if (tile->state == BlockState::kFree) free_.Insert(tile);
  if (tile->state == BlockState::kGap) gaps_.insert(tile);
}

void Arena::Unindex(Block* tile) {
  if (tile->state == BlockState::kFree) free_.Remove(tile);
  if (tile->state == BlockState::kGap) gaps_.erase(tile);
}

}  // namespace offcut
