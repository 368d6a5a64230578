// What SegmentsLayout does when no free block serves: making a segment, and giving segments back.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/segments_layout.h"

namespace offcut {

namespace native = policy::native;

namespace {

// PyTorch's order.
constexpr ReclaimStep kLadder[] = {ReclaimStep::kFreeMemoryCallbacks,
                                   ReclaimStep::kCollectGarbage,
                                   ReclaimStep::kGrow,
                                   ReclaimStep::kUseOnOom,
                                   ReclaimStep::kReleaseFitting,
                                   ReclaimStep::kReleaseIdle};

// A graph may use the free blocks of its private pool at any time.
bool InUse(const Pool& pool) { return pool.private_pool != nullptr && pool.private_pool->in_use(); }

}  // namespace

absl::Span<const ReclaimStep> SegmentsLayout::ladder() const { return kLadder; }

bool SegmentsLayout::Applies(ReclaimStep step, const Pool& pool, Bytes requested) const {
  switch (step) {
    case ReclaimStep::kCollectGarbage: {
      if (!AboveGarbageThreshold()) return false;
      bool any = false;
      ForEachCollectable([&](const SegmentPool&, const Block&) { any = true; });
      return any;
    }
    case ReclaimStep::kReleaseFitting: {
      const Block* const largest = Cast(pool).large.free.FindLargest();
      return !native::IsSmall(BlockSize(requested)) && largest != nullptr &&
             largest->size >= options_.split.max_split && !InUse(pool);
    }
    default:
      return true;
  }
}

absl::Status SegmentsLayout::TakeStep(ReclaimStep step, Pool& any_pool, Bytes requested) {
  SegmentPool& pool = Cast(any_pool);
  switch (step) {
    case ReclaimStep::kCollectGarbage:
      CollectGarbageSlow();
      return absl::OkStatus();
    case ReclaimStep::kReleaseFitting:
      OFFCUT_RETURN_IF_ERROR(ReleaseFittingSlow(pool, requested));
      return GrowSlow(pool, requested);
    default:
      return GrowSlow(pool, requested);
  }
}

Block* SegmentsLayout::TakeAfterStep(Pool& any_pool, Bytes requested) {
  SegmentPool& pool = Cast(any_pool);
  const Bytes size = BlockSize(requested);
  SegmentSet& set = SetOf(pool, native::IsSmall(size));
  Block* tile = std::exchange(fresh_, nullptr);
  if (tile == nullptr) {
    tile = set.free.FindBestFit(size);
    if (tile == nullptr || !native::MayServe(tile->size, size, options_.split)) return nullptr;
  }
  return TakeFrom(pool, set, tile, size);
}

// --- Growing -------------------------------------------------------------------------------------

absl::Status SegmentsLayout::GrowSlow(SegmentPool& pool, Bytes requested) {
  const bool small = native::IsSmall(BlockSize(requested));
  const Bytes bytes = GrowthFor(requested);
  OFFCUT_RETURN_IF_ERROR(CheckLimit(bytes));
  SegmentSet& set = SetOf(pool, small);
  OFFCUT_ASSIGN_OR_RETURN(const GranuleIndex granule,
                          context_.granules.NewSegment(source_, bytes, small, pool.index,
                                                       [&](GranuleIndex stuck, DevicePtr address) {
                                                         AddSegment(pool, set, address, bytes,
                                                                    stuck, BlockState::kOld);
                                                       }));
  const DevicePtr address = context_.granules.granule(granule).mapped_at;
  Block* const tile = AddSegment(pool, set, address, bytes, granule, BlockState::kFree);
  EnterFree(set, tile);
  CountSegment(bytes, small, /*made=*/true);
  if (const absl::Status entered = context_.address_map.Insert(address, bytes, context_.device);
      !entered.ok()) {
    ReleaseSlow(pool, set, tile);
    return entered;
  }
  fresh_ = tile;
  context_.SampleDeviceUsed();
  return absl::OkStatus();
}

absl::Status SegmentsLayout::CheckLimit(Bytes bytes) const {
  const Bytes reserved = context_.reserved_and_growing_bytes();
  if (reserved + bytes <= context_.limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a segment of ", FormatBytes(bytes), " beyond ", FormatBytes(reserved),
                   " would pass the limit of ", FormatBytes(context_.limit)));
}

Block* SegmentsLayout::AddSegment(SegmentPool& pool, SegmentSet& set, DevicePtr address,
                                  Bytes bytes, GranuleIndex granule, BlockState state) {
  auto segment = std::make_unique<Segment>();
  Block* const tile = context_.blocks.New();
  tile->address = address;
  tile->size = bytes;
  tile->pool = &pool;
  tile->segment = segment.get();
  tile->small = set.small;
  tile->state = state;
  *segment = {.first = tile, .bytes = bytes, .granule = granule};
  set.segments.push_back(std::move(segment));
  return tile;
}

// --- Giving back ---------------------------------------------------------------------------------

std::vector<SegmentsLayout::SegmentPool*> SegmentsLayout::PoolsByStream() const {
  std::vector<SegmentPool*> pools = pools_;
  std::sort(pools.begin(), pools.end(), [](const SegmentPool* a, const SegmentPool* b) {
    return reinterpret_cast<uintptr_t>(a->stream.handle) <
           reinterpret_cast<uintptr_t>(b->stream.handle);
  });
  return pools;
}

Bytes SegmentsLayout::ReleaseSlow(SegmentPool& pool, SegmentSet& set, Block* tile) {
  if (ReleaseWaits() ? InUse(pool) : !pool.IsIdle(tile->epoch)) return 0;
  Segment* const segment = tile->segment;
  if (!segment->is_one_block()) return 0;
  const Bytes bytes = segment->bytes;
  if (segment->granule == kNoGranule || segment->lent) {
    set.free.Remove(tile);
    tile->state = BlockState::kReturning;
    CountSegment(bytes, set.small, /*made=*/false);
    to_return_.push_back(segment);
    return bytes;
  }
  if (!context_.granules.FreeSegment(segment->granule, tile->address, pool.index).ok()) return 0;
  context_.address_map.Remove(tile->address, bytes);
  if (tile->state == BlockState::kFree) {
    set.free.Remove(tile);
    CountSegment(bytes, set.small, /*made=*/false);
  }
  context_.blocks.Delete(tile);
  ForgetSegment(set, segment);
  return bytes;
}

void SegmentsLayout::ForgetSegment(SegmentSet& set, const Segment* segment) {
  const auto it =
      std::find_if(set.segments.begin(), set.segments.end(),
                   [segment](const std::unique_ptr<Segment>& s) { return s.get() == segment; });
  std::swap(*it, set.segments.back());
  set.segments.pop_back();
}

Bytes SegmentsLayout::ReleaseIdle(const Pool* only) {
  context_.granules.ReleaseUnmapped();
  Bytes released = 0;
  const std::vector<SegmentPool*> pools = PoolsByStream();
  for (const bool small : {false, true}) {
    for (SegmentPool* pool : pools) {
      if (only == nullptr || only == pool) released += ReleaseAllOf(*pool, SetOf(*pool, small));
    }
  }
  if (released > 0) context_.SampleDeviceUsed();
  return released;
}

Bytes SegmentsLayout::ReleaseAllOf(SegmentPool& pool, SegmentSet& set) {
  std::vector<Block*> tiles;
  set.free.ForEach([&tiles](Block& tile) {
    if (tile.segment->is_one_block()) tiles.push_back(&tile);
  });
  for (const std::unique_ptr<Segment>& segment : set.segments) {
    if (segment->first->state == BlockState::kOld) tiles.push_back(segment->first);
  }
  Bytes released = 0;
  for (Block* tile : tiles) released += ReleaseSlow(pool, set, tile);
  return released;
}

absl::Status SegmentsLayout::ReleaseFittingSlow(SegmentPool& pool, Bytes requested) {
  SegmentSet& set = pool.large;
  const Bytes needed = std::max(BlockSize(requested), options_.split.max_split);
  Bytes released = 0;
  if (Block* const fitting = set.free.FindBestFit(needed); fitting != nullptr) {
    released = ReleaseSlow(pool, set, fitting);
  } else {
    // None is large enough: several, the largest first.
    while (released < needed) {
      Block* const largest = set.free.FindLargest();
      if (largest == nullptr || largest->size < options_.split.max_split) break;
      const Bytes bytes = ReleaseSlow(pool, set, largest);
      if (bytes == 0) break;
      released += bytes;
    }
  }
  if (released >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("oversize segments of ", FormatBytes(released),
                                                   " were released where ", FormatBytes(needed),
                                                   " are needed"));
}

// --- Garbage -------------------------------------------------------------------------------------

Bytes SegmentsLayout::GarbageThreshold() const {
  return static_cast<Bytes>(options_.garbage_collection_threshold *
                            static_cast<double>(context_.limit));
}

bool SegmentsLayout::AboveGarbageThreshold() const {
  return options_.garbage_collection_threshold > 0 && context_.limit != kNoLimit &&
         context_.reserved_bytes() > GarbageThreshold();
}

void SegmentsLayout::ForEachCollectable(absl::FunctionRef<void(SegmentPool&, Block&)> visit) const {
  for (SegmentPool* pool : PoolsByStream()) {
    if (pool->private_pool != nullptr) continue;
    pool->large.free.ForEach([&](Block& tile) {
      if (tile.segment->is_one_block()) visit(*pool, tile);
    });
  }
}

void SegmentsLayout::CollectGarbageSlow() {
  // Other threads may have been served while the device was waited for.
  if (!AboveGarbageThreshold()) return;
  const Bytes target = context_.reserved_bytes() - GarbageThreshold();
  struct Candidate {
    SegmentPool* pool;
    Block* tile;
    uint32_t age;  // in searches
  };
  std::vector<Candidate> candidates;
  uint64_t total_age = 0;
  ForEachCollectable([&](SegmentPool& pool, Block& tile) {
    candidates.push_back({&pool, &tile, searches_ - tile.free_since});
    total_age += candidates.back().age;
  });
  // All that are at least as old as the average go, even beyond the target, so that the next time
  // is not soon; what is left then has a lower average, until enough is released.
  Bytes released = 0;
  bool any = true;
  while (released < target && any && !candidates.empty()) {
    any = false;
    const double threshold =
        static_cast<double>(total_age) / static_cast<double>(candidates.size());
    std::vector<Candidate> younger;
    for (const Candidate& candidate : candidates) {
      if (candidate.age < threshold) {
        younger.push_back(candidate);
        continue;
      }
      total_age -= candidate.age;
      const Bytes bytes = ReleaseSlow(*candidate.pool, candidate.pool->large, candidate.tile);
      released += bytes;
      any |= bytes > 0;
    }
    candidates = std::move(younger);
  }
  if (released > 0) context_.SampleDeviceUsed();
}

}  // namespace offcut
