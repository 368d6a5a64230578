// SegmentsLayout: PyTorch's native allocator (2.11), step for step.
//
// Memory comes in segments, each for one pool and for small or for large requests, in the sizes of
// policy/native_sizes.h. A request gets the best fit among the free blocks of its pool; its front
// is handed out, and the rest split off if the rules say so. Freed blocks merge with free
// neighbours at once. A segment goes back to the driver when it is one free block: all of them when
// memory is out, the oldest above garbage_collection_threshold, oversize ones when
// max_split_size_mb keeps them from serving anything else. Where several free blocks are equal the
// one at the lowest address is taken, so the same requests with the same segments' addresses give
// the same blocks as in PyTorch.
//
// Differs from PyTorch in one thing: a block that came free while the ladder was climbed serves a
// request that PyTorch would fail.
//
// A pool whose memory comes from an allocator of somebody else's (ForeignAllocator) gets its
// segments from the DeviceAllocator, which calls that allocator without the lock; see
// segments_foreign.cc.
//
// Not thread-safe: guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_SEGMENTS_LAYOUT_H_
#define OFFCUT_ALLOCATOR_CORE_SEGMENTS_LAYOUT_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/core/free_index.h"
#include "allocator/core/granule_pool.h"
#include "allocator/core/layout.h"
#include "allocator/core/segment.h"
#include "allocator/policy/native_sizes.h"

namespace offcut {

class SegmentsLayout final : public Layout {
 public:
  SegmentsLayout(LayoutContext& context, SegmentSource source);
  ~SegmentsLayout() override;

  void SetSizeOptions(const SizeOptions& options) override;
  std::unique_ptr<Pool> NewPool(uint16_t index, StreamLedger::Stream& stream) override;
  Block* Take(Pool& pool, Bytes requested) override;
  Block* TakeAfterStep(Pool& pool, Bytes requested) override;
  void GiveBack(Block* block, uint64_t epoch) override;
  void NotePending(const Block& block) override;
  absl::Span<const ReclaimStep> ladder() const override;
  bool Applies(ReclaimStep step, const Pool& pool, Bytes requested) const override;
  absl::Status TakeStep(ReclaimStep step, Pool& pool, Bytes requested) override;
  Bytes GrowthFor(Bytes requested) const override;
  bool ReleaseWaits() const override { return source_ == SegmentSource::kDriver; }
  Bytes ReleaseIdle(const Pool* only) override;
  absl::Status OpenTo(DeviceIndex peer) override { return context_.granules.OpenTo(peer); }
  absl::StatusOr<std::vector<Block*>> SegmentsOf(const Pool& pool) const override;
  std::vector<Block*> Cut(Block* segment, absl::Span<const Bytes> sizes) override;
  bool HoldsMemory(const Pool& pool) const override;
  Bytes LargestFree(const Pool& pool) const override;
  Range RangeOf(const Block& block) const override;
  void AddTo(StateView& view) const override;

  // ResourceExhausted if the limit leaves no room for as many bytes more.
  absl::Status CheckLimit(Bytes bytes) const;

  // --- Foreign memory: segments_foreign.cc ---
  // The allocator of the pool gave `address` for a request that needs a segment: TakeAfterStep
  // serves it from there. An error if the memory cannot be what the allocator says; it is not
  // entered then.
  absl::Status EnterForeign(Pool& pool, Bytes requested, DevicePtr address);
  // The allocator of the pool, called for such a request, asks us for memory: a segment of ours.
  absl::StatusOr<DevicePtr> Lend(Pool& pool, Bytes requested, Bytes bytes);
  // The allocator frees what was lent to it. False if nothing that it may free was lent there.
  bool TakeBack(DevicePtr address);
  // Requested bytes of the live blocks in foreign memory.
  Bytes LiveBytes() const;
  // A segment that ReleaseIdle let go of, and that is to be given back to its allocator now.
  struct Return {
    std::shared_ptr<const ForeignAllocator> to;
    DevicePtr address = 0;
    Bytes bytes = 0;
  };
  std::optional<Return> NextReturn();
  // It was given back.
  void FinishReturn(DevicePtr address);

 private:
  // The segments of one pool for requests of one kind.
  struct SegmentSet {
    FreeIndex free;
    std::vector<std::unique_ptr<Segment>> segments;
    bool small = false;
  };
  struct SegmentPool final : Pool {
    SegmentPool(uint16_t pool_index, StreamLedger::Stream& pool_stream, Layout& pool_layout)
        : Pool(pool_index, pool_stream, pool_layout) {
      small.small = true;
    }
    SegmentSet small;
    SegmentSet large;
  };

  static SegmentPool& Cast(Pool& pool) { return static_cast<SegmentPool&>(pool); }
  static const SegmentPool& Cast(const Pool& pool) { return static_cast<const SegmentPool&>(pool); }
  static SegmentSet& SetOf(SegmentPool& pool, bool small) {
    return small ? pool.small : pool.large;
  }

  Bytes BlockSize(Bytes requested) const;
  void CountSearch(const SegmentPool& pool, const SegmentSet& set);
  Block* TakeFrom(SegmentPool& pool, SegmentSet& set, Block* tile, Bytes size);
  void EnterFree(SegmentSet& set, Block* tile);
  // A new segment, one block in `state`, which is in no index.
  Block* AddSegment(SegmentPool& pool, SegmentSet& set, DevicePtr address, Bytes bytes,
                    GranuleIndex granule, BlockState state);

  // --- Statistics ---
  // A free block was handed out, whole or its front; `rest` of it stays free.
  void CountTaken(const Block& taken, const Block* rest);
  // The block was freed, or is pending.
  void CountFreed(const Block& block);
  // A block, free now, has taken in `joined` free blocks of `joined_bytes` in all.
  void CountJoined(const Block& block, uint64_t joined, Bytes joined_bytes);
  void CountSegment(Bytes bytes, bool small, bool made);

  // --- segments_growth.cc: the slow path ---
  absl::Status GrowSlow(SegmentPool& pool, Bytes requested);
  bool AboveGarbageThreshold() const;
  Bytes GarbageThreshold() const;
  void CollectGarbageSlow();
  // Visits the segments of the default pools' large requests that are one free block, by (stream,
  // size, address).
  void ForEachCollectable(absl::FunctionRef<void(SegmentPool&, Block&)> visit) const;
  absl::Status ReleaseFittingSlow(SegmentPool& pool, Bytes requested);
  // The free block, a whole segment, goes back to the driver. Returns its bytes; 0 if it stays,
  // because the device may not be done with it or the driver refused.
  Bytes ReleaseSlow(SegmentPool& pool, SegmentSet& set, Block* tile);
  Bytes ReleaseAllOf(SegmentPool& pool, SegmentSet& set);
  void ForgetSegment(SegmentSet& set, const Segment* segment);
  // The segment at `address` that is on its way back, or lent and not in its pool; nullptr: none.
  Segment* FindReturning(DevicePtr address) const;
  void RemoveReturning(Segment* segment);
  // PyTorch keeps the blocks of all streams together, in order of the streams' handles.
  std::vector<SegmentPool*> PoolsByStream() const;

  const SegmentSource source_;
  SizeOptions options_;
  std::vector<SegmentPool*> pools_;
  // How often large requests searched the default pools for a block, if garbage is collected; the
  // age of a free block is by how much this grew since.
  uint32_t searches_ = 0;
  // The segment that was made for the request that is being served.
  Block* fresh_ = nullptr;
  std::vector<Segment*> to_return_;  // let go of, and not yet given back
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SEGMENTS_LAYOUT_H_
