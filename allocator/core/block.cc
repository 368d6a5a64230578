#include "allocator/core/block.h"

#include <algorithm>

namespace offcut {

absl::string_view ToString(BlockState state) {
  switch (state) {
    case BlockState::kGap:
      return "gap";
    case BlockState::kFree:
      return "free";
    case BlockState::kLive:
      return "live";
    case BlockState::kPending:
      return "pending";
    case BlockState::kSlab:
      return "slab";
    case BlockState::kOld:
      return "old";
  }
  return "?";
}

Block* BlockStore::SplitOff(Block* tile, Bytes size) {
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

void BlockStore::Absorb(Block* tile, Block* next) {
  tile->size += next->size;
  tile->epoch = std::max(tile->epoch, next->epoch);
  tile->next = next->next;
  if (tile->next != nullptr) tile->next->previous = tile;
  Delete(next);
}

void BlockStore::AddBatchSlow() {
  constexpr size_t kBatch = 256;
  batches_.push_back(std::make_unique<Block[]>(kBatch));
  for (size_t i = kBatch; i-- > 0;) Delete(&batches_.back()[i]);
}

}  // namespace offcut
