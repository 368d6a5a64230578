#include "allocator/core/arena.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace offcut {

namespace {

ArenaPool& PoolOf(const Block& tile) { return static_cast<ArenaPool&>(*tile.pool); }

// Tiles that become one where they are neighbours.
bool OfOneKind(const Block& a, const Block& b) {
  return a.state == b.state && (a.state == BlockState::kGap || a.pool == b.pool);
}

}  // namespace

Arena::Arena(DevicePtr base, Bytes bytes, Bytes granularity, bool small, BlockStore& store)
    : base_(base),
      bytes_(bytes),
      granularity_(granularity),
      small_(small),
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
  FreeIndex& free = PoolOf(*free_tile).free(small_);
  free.Remove(free_tile);
  if (free_tile->size > size) {
    // No free neighbour of the pool can follow, so the rest merges with nothing.
    free.Insert(store_.SplitOff(free_tile, size));
  }
  free_tile->state = state;
  return free_tile;
}

Block* Arena::GiveBack(Block* tile, uint64_t epoch) {
  tile->state = BlockState::kFree;
  tile->epoch = epoch;
  return Settle(tile);
}

void Arena::Adopt(Block* free_tile, DevicePtr address, Bytes bytes, ArenaPool& pool) {
  Block* tile = CutOut(free_tile, address, bytes);
  tile->pool = &pool;
  tile->epoch = 0;
  Settle(tile);
}

void Arena::FreeBecameGap(Block* free_tile, DevicePtr address, Bytes bytes) {
  Block* tile = CutOut(free_tile, address, bytes);
  tile->state = BlockState::kGap;
  tile->pool = nullptr;
  tile->epoch = 0;
  Settle(tile);
}

Block* Arena::BeginMove(Block* tile, DevicePtr address, Bytes bytes) {
  tile = CutOut(tile, address, bytes);
  tile->state = BlockState::kMoving;
  return tile;
}

void Arena::GiveUpMove(Block* moving) {
  moving->state = moving->pool == nullptr ? BlockState::kGap : BlockState::kFree;
  Settle(moving);
}

void Arena::MovingBecameFree(Block* moving, ArenaPool& pool, uint64_t epoch) {
  moving->pool = &pool;
  GiveBack(moving, epoch);
}

void Arena::MovingBecameOld(Block* moving, uint64_t epoch) {
  moving->state = BlockState::kOld;
  moving->epoch = epoch;
}

Block* Arena::GapBecameOld(DevicePtr address, Bytes bytes, ArenaPool& pool, uint64_t epoch) {
  Block* tile = CutOut(GapAt(address), address, bytes);
  tile->state = BlockState::kOld;
  tile->pool = &pool;
  tile->epoch = epoch;
  return tile;
}

Block* Arena::OldBecameGap(Block* old_tile, Bytes bytes) {
  Block* const rest = old_tile->size > bytes ? store_.SplitOff(old_tile, bytes) : nullptr;
  old_tile->state = BlockState::kGap;
  old_tile->pool = nullptr;
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
    Block* rest = store_.SplitOff(tile, address - tile->address);
    Index(tile);
    tile = rest;
  }
  if (tile->size > bytes) Index(store_.SplitOff(tile, bytes));
  return tile;
}

Block* Arena::Settle(Block* tile) {
  if (Block* next = tile->next; next != nullptr && OfOneKind(*next, *tile)) {
    Unindex(next);
    store_.Absorb(tile, next);
  }
  if (Block* previous = tile->previous; previous != nullptr && OfOneKind(*previous, *tile)) {
    Unindex(previous);
    store_.Absorb(previous, tile);
    tile = previous;
  }
  Index(tile);
  return tile;
}

void Arena::Index(Block* tile) {
  if (tile->state == BlockState::kFree) PoolOf(*tile).free(small_).Insert(tile);
  if (tile->state == BlockState::kGap) gaps_.insert(tile);
}

void Arena::Unindex(Block* tile) {
  if (tile->state == BlockState::kFree) PoolOf(*tile).free(small_).Remove(tile);
  if (tile->state == BlockState::kGap) gaps_.erase(tile);
}

}  // namespace offcut
