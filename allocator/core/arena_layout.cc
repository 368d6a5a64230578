#include "allocator/core/arena_layout.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "allocator/policy/sizes.h"

namespace offcut {

ArenaLayout::ArenaLayout(LayoutContext& context)
    : Layout(context),
      created_ns_(context.emitter.clock().NowNs()),
      divisions_(context.config.roundup_power2_divisions().slots),
      divided_(divisions_ != policy::native::Divisions()),
      granules_(context.granules) {}

ArenaLayout::~ArenaLayout() {
  // What the driver refuses now stays with the process.
  granules_.ReleaseUnmapped();
  for (ArenaSet* set : {&small_, &large_}) {
    for (const std::unique_ptr<Arena>& arena : set->arenas) {
      for (DevicePtr place = arena->base(); place < arena->end();) {
        const GranuleIndex index = arena->granule_at(place);
        const Bytes bytes =
            index == kNoGranule ? arena->granularity() : granules_.granule(index).bytes;
        if (index != kNoGranule) granules_.UnmapRange(*arena, place, bytes);
        place += bytes;
      }
      context_.address_map.Remove(arena->base(), arena->bytes());
      context_.driver.FreeAddress(arena->base(), arena->bytes()).IgnoreError();
    }
  }
}

void ArenaLayout::SetSizeOptions(const SizeOptions& options) {
  divisions_ = options.divisions;
  divided_ = divisions_ != policy::native::Divisions();
}

std::unique_ptr<Pool> ArenaLayout::NewPool(uint16_t index, StreamLedger::Stream& stream) {
  auto pool = std::make_unique<ArenaPool>(index, stream, *this);
  pools_.push_back(pool.get());
  return pool;
}

// --- The hot path --------------------------------------------------------------------------------

ArenaLayout::ArenaSet& ArenaLayout::SetOf(Bytes requested) {
  return requested <= policy::kSmallRequestMax ? small_ : large_;
}

Bytes ArenaLayout::BlockSize(Bytes requested) const {
  return ABSL_PREDICT_FALSE(divided_) ? policy::native::BlockSize(requested, divisions_)
                                      : RoundUp(requested, kBlockAlignment);
}

Block* ArenaLayout::Take(Pool& any_pool, Bytes requested) {
  ArenaPool& pool = Cast(any_pool);
  if (requested > policy::kSlotMax) {
    const Bytes size = BlockSize(requested);
    Block* const tile = pool.free(requested <= policy::kSmallRequestMax).FindBestFit(size);
    return tile == nullptr ? nullptr : tile->arena->TakeFront(tile, size, BlockState::kLive);
  }
  const size_t slot_class = policy::SlotClassFor(requested);
  if (Block* const slot = pool.slabs.Take(slot_class); slot != nullptr) return slot;
  const Bytes size = policy::SlabSize(slot_class);
  Block* const tile = pool.small_free.FindBestFit(size);
  if (tile == nullptr) return nullptr;
  pool.slabs.AddSlow(tile->arena->TakeFront(tile, size, BlockState::kSlab), slot_class);
  return pool.slabs.Take(slot_class);
}

void ArenaLayout::GiveBack(Block* block, uint64_t epoch) {
  ArenaPool& pool = Cast(*block->pool);
  block->requested = 0;
  if (!block->is_slot()) {
    block->arena->GiveBack(block, epoch);
    return;
  }
  if (Block* const emptied = pool.slabs.GiveBack(block, epoch); emptied != nullptr) {
    emptied->arena->GiveBack(emptied, emptied->epoch);
  }
}

// --- Questions -----------------------------------------------------------------------------------

Bytes ArenaLayout::GrowthFor(Bytes requested) const {
  return requested <= policy::kSlotMax ? policy::SlabSize(policy::SlotClassFor(requested))
                                       : BlockSize(requested);
}

Bytes ArenaLayout::LargestFree(const Pool& any_pool) const {
  const ArenaPool& pool = Cast(any_pool);
  Bytes largest = 0;
  for (const FreeIndex* free : {&pool.small_free, &pool.large_free}) {
    if (const Block* tile = free->FindLargest(); tile != nullptr) {
      largest = std::max(largest, tile->size);
    }
  }
  return largest;
}

Layout::Range ArenaLayout::RangeOf(const Block& block) const {
  return {.address = block.arena->base(), .bytes = block.arena->bytes()};
}

void ArenaLayout::AddTo(StateView& view) const {
  for (const ArenaPool* pool : pools_) {
    for (const bool small : {true, false}) {
      pool->free(small).ForEach([&](const Block& tile) {
        view.free.push_back(
            {.pool = pool->index, .small = small, .address = tile.address, .size = tile.size});
      });
    }
  }
  for (const ArenaSet* set : {&small_, &large_}) {
    for (const std::unique_ptr<Arena>& arena : set->arenas) view.arenas.push_back(ViewOf(*arena));
  }
}

}  // namespace offcut
