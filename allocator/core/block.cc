#include "allocator/core/block.h"

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
    case BlockState::kMoving:
      return "moving";
    case BlockState::kReturning:
      return "returning";
  }
  return "?";
}

void BlockStore::AddBatchSlow() {
  constexpr size_t kBatch = 256;
  batches_.push_back(std::make_unique<Block[]>(kBatch));
  for (size_t i = kBatch; i-- > 0;) Delete(&batches_.back()[i]);
}

}  // namespace offcut
