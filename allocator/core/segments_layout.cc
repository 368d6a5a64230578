#include "allocator/core/segments_layout.h"

#include <algorithm>
#include <utility>

#include "allocator/policy/sizes.h"

namespace offcut {

namespace native = policy::native;

namespace {

SizeClassOf ClassOf(bool small) { return small ? SizeClassOf::kSmall : SizeClassOf::kLarge; }

}  // namespace

SegmentsLayout::SegmentsLayout(LayoutContext& context, SegmentSource source)
    : Layout(context), source_(source), options_(context.config) {
  context.segment_counters.max_split_bytes = options_.split.max_split;
}

SegmentsLayout::~SegmentsLayout() {
  context_.granules.ReleaseUnmapped();
  for (SegmentPool* pool : pools_) {
    for (SegmentSet* set : {&pool->small, &pool->large}) {
      for (const std::unique_ptr<Segment>& segment : set->segments) {
        if (segment->in_address_map) {
          context_.address_map.Remove(segment->address(), segment->bytes);
        }
        if (segment->granule == kNoGranule) {
          pool->private_pool->foreign->free(segment->address(), segment->bytes);
          continue;
        }
        // What the driver refuses now stays with the process.
        context_.granules.FreeSegment(segment->granule, segment->address(), pool->index)
            .IgnoreError();
      }
    }
  }
}

std::unique_ptr<Pool> SegmentsLayout::NewPool(uint16_t index, StreamLedger::Stream& stream) {
  auto pool = std::make_unique<SegmentPool>(index, stream, *this);
  pools_.push_back(pool.get());
  return pool;
}

void SegmentsLayout::SetSizeOptions(const SizeOptions& options) {
  SegmentCounters& counters = context_.segment_counters;
  // As native: what was counted as oversize by the former limit stays so.
  counters.max_split_changed |= options.split.max_split != options_.split.max_split;
  options_ = options;
}

// --- The hot path --------------------------------------------------------------------------------

Bytes SegmentsLayout::BlockSize(Bytes requested) const {
  return native::BlockSize(requested, options_.divisions);
}

Block* SegmentsLayout::Take(Pool& any_pool, Bytes requested) {
  SegmentPool& pool = Cast(any_pool);
  const Bytes size = BlockSize(requested);
  SegmentSet& set = SetOf(pool, native::IsSmall(size));
  if (options_.garbage_collection_threshold > 0) CountSearch(pool, set);
  Block* const tile = set.free.FindBestFit(size);
  if (tile == nullptr || !native::MayServe(tile->size, size, options_.split)) return nullptr;
  return TakeFrom(pool, set, tile, size);
}

Block* SegmentsLayout::TakeFrom(SegmentPool& pool, SegmentSet& set, Block* tile, Bytes size) {
  set.free.Remove(tile);
  const bool no_split = pool.private_pool != nullptr && pool.private_pool->no_split;
  Block* rest = nullptr;
  if (!no_split && native::ShouldSplit(tile->size, size, set.small, options_.split)) {
    rest = context_.blocks.SplitOff(tile, size);
    EnterFree(set, rest);
  }
  CountTaken(*tile, rest);
  tile->state = BlockState::kLive;
  return tile;
}

void SegmentsLayout::CountSearch(const SegmentPool& pool, const SegmentSet& set) {
  if (context_.limit != kNoLimit && pool.private_pool == nullptr && !set.small) ++searches_;
}

void SegmentsLayout::GiveBack(Block* block, uint64_t epoch) {
  SegmentPool& pool = Cast(*block->pool);
  SegmentSet& set = SetOf(pool, block->small);
  if (block->state == BlockState::kLive) CountFreed(*block);
  uint64_t joined = 0;
  Bytes joined_bytes = 0;
  block->requested = 0;
  block->state = BlockState::kFree;
  block->epoch = epoch;
  if (Block* const previous = block->previous;
      previous != nullptr && previous->state == BlockState::kFree) {
    set.free.Remove(previous);
    ++joined;
    joined_bytes += previous->size;
    context_.blocks.Absorb(previous, block);
    block = previous;
  }
  if (Block* const next = block->next; next != nullptr && next->state == BlockState::kFree) {
    set.free.Remove(next);
    ++joined;
    joined_bytes += next->size;
    context_.blocks.Absorb(block, next);
  }
  CountJoined(*block, joined, joined_bytes);
  EnterFree(set, block);
}

void SegmentsLayout::NotePending(const Block& block) { CountFreed(block); }

void SegmentsLayout::EnterFree(SegmentSet& set, Block* tile) {
  tile->free_since = searches_;
  set.free.Insert(tile);
}

// --- Statistics ----------------------------------------------------------------------------------

void SegmentsLayout::CountTaken(const Block& taken, const Block* rest) {
  SegmentCounters& counters = context_.segment_counters;
  const SizeClassOf size_class = ClassOf(taken.small);
  const bool rest_is_last = rest == nullptr ? taken.next == nullptr : rest->next == nullptr;
  const bool was_whole_segment = taken.previous == nullptr && rest_is_last;
  if (rest == nullptr) {
    if (!was_whole_segment) {
      Fall(counters.remainders, size_class, 1);
      Fall(counters.remainder_bytes, size_class, taken.size);
    }
  } else if (was_whole_segment) {
    Rise(counters.remainders, size_class, 1);
    Rise(counters.remainder_bytes, size_class, rest->size);
  } else {
    Fall(counters.remainder_bytes, size_class, taken.size);
  }
  if (taken.size >= options_.split.max_split) counters.oversize_blocks.Rise(1);
}

void SegmentsLayout::CountFreed(const Block& block) {
  if (block.size >= options_.split.max_split) context_.segment_counters.oversize_blocks.Fall(1);
}

void SegmentsLayout::CountJoined(const Block& block, uint64_t joined, Bytes joined_bytes) {
  SegmentCounters& counters = context_.segment_counters;
  const SizeClassOf size_class = ClassOf(block.small);
  const bool remainder = block.previous != nullptr || block.next != nullptr;
  // The sum of what it takes in and what it becomes, as one change: totals are PyTorch's too.
  if (remainder) {
    if (joined == 0) Rise(counters.remainders, size_class, 1);
    if (joined == 2) Fall(counters.remainders, size_class, 1);
    Rise(counters.remainder_bytes, size_class, block.size - joined_bytes);
  } else if (joined > 0) {
    Fall(counters.remainders, size_class, joined);
    Fall(counters.remainder_bytes, size_class, joined_bytes);
  }
}

void SegmentsLayout::CountSegment(Bytes bytes, bool small, bool made) {
  SegmentCounters& counters = context_.segment_counters;
  const bool oversize = bytes >= options_.split.max_split;
  if (made) {
    Rise(counters.segments, ClassOf(small), 1);
    if (oversize) counters.oversize_segments.Rise(1);
  } else {
    Fall(counters.segments, ClassOf(small), 1);
    if (oversize) counters.oversize_segments.Fall(1);
  }
}

// --- Checkpoints ---------------------------------------------------------------------------------

absl::StatusOr<std::vector<Block*>> SegmentsLayout::SegmentsOf(const Pool& any_pool) const {
  const SegmentPool& pool = Cast(any_pool);
  std::vector<Block*> firsts;
  for (const SegmentSet* set : {&pool.small, &pool.large}) {
    for (const std::unique_ptr<Segment>& segment : set->segments) {
      const BlockState state = segment->first->state;
      if (state != BlockState::kOld && state != BlockState::kReturning) {
        firsts.push_back(segment->first);
      }
    }
  }
  return firsts;
}

std::vector<Block*> SegmentsLayout::Cut(Block* segment, absl::Span<const Bytes> sizes) {
  SegmentSet& set = SetOf(Cast(*segment->pool), segment->small);
  set.free.Remove(segment);
  std::vector<Block*> blocks = {segment};
  for (const Bytes size : sizes.first(sizes.size() - 1)) {
    blocks.push_back(context_.blocks.SplitOff(blocks.back(), size));
    CountTaken(*blocks[blocks.size() - 2], blocks.back());
  }
  CountTaken(*blocks.back(), nullptr);
  for (Block* const block : blocks) block->state = BlockState::kLive;
  return blocks;
}

// --- Questions -----------------------------------------------------------------------------------

Bytes SegmentsLayout::GrowthFor(Bytes requested) const {
  const Bytes bytes = native::SegmentSize(BlockSize(requested), options_.large_segment);
  return source_ == SegmentSource::kOneGranule ? RoundUp(bytes, context_.properties.granularity)
                                               : bytes;
}

bool SegmentsLayout::HoldsMemory(const Pool& any_pool) const {
  const SegmentPool& pool = Cast(any_pool);
  return !pool.small.segments.empty() || !pool.large.segments.empty();
}

Bytes SegmentsLayout::LargestFree(const Pool& any_pool) const {
  const SegmentPool& pool = Cast(any_pool);
  if (const Block* const tile = pool.large.free.FindLargest(); tile != nullptr) return tile->size;
  const Block* const tile = pool.small.free.FindLargest();
  return tile == nullptr ? 0 : std::min(tile->size, native::kSmallMax);
}

Layout::Range SegmentsLayout::RangeOf(const Block& block) const {
  return {.address = block.segment->address(), .bytes = block.segment->bytes};
}

void SegmentsLayout::AddTo(StateView& view) const {
  for (const SegmentPool* pool : pools_) {
    for (const SegmentSet* set : {&pool->small, &pool->large}) {
      set->free.ForEach([&](const Block& tile) {
        view.free.push_back(
            {.pool = pool->index, .small = set->small, .address = tile.address, .size = tile.size});
      });
      for (const std::unique_ptr<Segment>& segment : set->segments) {
        StateView::ArenaView& arena =
            view.arenas.emplace_back(StateView::ArenaView{.small = set->small,
                                                          .segment = true,
                                                          .foreign = segment->granule == kNoGranule,
                                                          .base = segment->address(),
                                                          .bytes = segment->bytes,
                                                          .granularity = segment->bytes});
        if (!arena.foreign) {
          arena.granules.push_back({.address = segment->address(), .index = segment->granule});
        }
        for (const Block* tile = segment->first; tile != nullptr; tile = tile->next) {
          arena.tiles.push_back({.address = tile->address,
                                 .size = tile->size,
                                 .requested = tile->requested,
                                 .state = tile->state,
                                 .pool = pool->index});
        }
      }
    }
  }
}

}  // namespace offcut
