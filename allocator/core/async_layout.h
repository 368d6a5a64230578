// AsyncLayout: the driver's pools of stream-ordered memory. A block is one allocation of the
// driver's (cuMemAllocFromPoolAsync) and goes back in the order of its stream (cuMemFreeAsync).
//
// All default pools share one pool of the driver's; each private pool has one of its own, made at
// its first request and destroyed once it is released and the device was waited for. Which free
// memory serves which stream is the driver's to decide, as the options async_reuse_* allow. What
// its pools hold is asked after each request, so reserved memory is known when it peaks; the driver
// may take idle memory back at any time, which is heard of at the next question. With a limit, an
// allocation that made the pools grow beyond it is undone before anything is served.
//
// A stream that is being captured allocates by nodes of its graph: the memory is the graph's, comes
// with each launch, and counts as reserved for as long as the program holds the block. A free is a
// node of the same capture where that leaves no work unjoined: on the stream that the capture's
// route was begun on. Else the memory is left to the graph, whose launches may be on any stream, at
// any time; what its last launch left is freed when its private pool is released, in the order of
// all work on the device.
//
// A free that cannot be handed to the driver now waits in `returns_`: on a stream that is being
// captured; on a stream that is gone, for a wait for the device; and what the driver refuses.
//
// Does not do: checkpoints, no_split (nothing is split here), splitting by PyTorch's options. Not
// thread-safe: guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_ASYNC_LAYOUT_H_
#define OFFCUT_ALLOCATOR_CORE_ASYNC_LAYOUT_H_

#include <array>
#include <memory>
#include <vector>

#include "allocator/core/layout.h"
#include "allocator/events/driver_pool_number.h"
#include "allocator/policy/native_sizes.h"

namespace offcut {

class AsyncLayout final : public Layout {
 public:
  explicit AsyncLayout(LayoutContext& context);
  ~AsyncLayout() override;

  std::unique_ptr<Pool> NewPool(uint16_t index, StreamLedger::Stream& stream) override;
  // Asks the driver. nullptr for whatever reason; the ladder asks again, and hears it.
  Block* Take(Pool& pool, Bytes requested) override;
  Block* TakeAfterStep(Pool& pool, Bytes requested) override;
  void GiveBack(Block* block, uint64_t epoch) override;
  absl::Span<const ReclaimStep> ladder() const override;
  absl::Status TakeStep(ReclaimStep step, Pool& pool, Bytes requested) override;
  Bytes GrowthFor(Bytes requested) const override;
  Bytes ReleaseIdle(const Pool* only) override;
  bool RetryFrees() override;
  absl::Status OpenTo(DeviceIndex peer) override;
  void Refresh() override;
  void BeforeRelease(const PrivatePool& pool) override;
  bool HoldsMemory(const Pool& pool) const override;
  // What is free in the driver's pool: how it is cut, the driver does not tell.
  Bytes LargestFree(const Pool& pool) const override;
  Range RangeOf(const Block& block) const override;
  void AddTo(StateView& view) const override;

 private:
  // A pool of the driver's, or the memory of graphs.
  struct DriverMemory {
    DriverPoolNumber number = kDefaultDriverPool;
    const PrivatePool* owner = nullptr;  // of a private pool's
    DriverPool handle = nullptr;         // nullptr: not made yet, or memory of graphs
    Bytes reserved_bytes = 0;            // as the driver said last, and at least taken_bytes
    Bytes taken_bytes = 0;               // of the blocks in it
    uint64_t allocations = 0;            // that the driver has not got back
    bool heard_of_late = false;          // the driver did not answer
  };
  struct AsyncPool final : Pool {
    using Pool::Pool;
    Block* first = nullptr;          // its blocks, linked
    DriverMemory* memory = nullptr;  // where it allocates; nullptr: has not yet
  };
  // What the program has freed and the driver may not have got back.
  struct Return {
    DevicePtr address;
    StreamLedger::Stream* stream;
    uint64_t epoch;  // of the stream, at the free
    DriverMemory* memory;
  };
  // Memory of a graph that the program has freed and the graph has not.
  struct LeftToGraph {
    DevicePtr address;
    AsyncPool* pool;
    uint64_t epoch;  // of the pool's stream, at the free
  };
  enum class Undo : uint8_t { kLater, kNow };

  static AsyncPool& Cast(Pool& pool) { return static_cast<AsyncPool&>(pool); }
  static const AsyncPool& Cast(const Pool& pool) { return static_cast<const AsyncPool&>(pool); }

  // --- Allocating ---
  Bytes BlockSize(Bytes requested) const;
  // A block from the driver. `undo`: how what went beyond the limit is given back.
  absl::StatusOr<Block*> Ask(AsyncPool& pool, Bytes requested, Undo undo);
  absl::StatusOr<Block*> AskForGraph(AsyncPool& pool, Bytes size);
  // Where the pool's allocations are made, so that they are usable in its stream's order.
  absl::StatusOr<StreamHandle> StreamToAskOn(const Pool& pool, bool capturing) const;
  absl::StatusOr<DevicePtr> Allocate(DriverPool pool, Bytes size, StreamHandle stream);
  bool IsNamed(DevicePtr address) const;
  absl::Status CheckLimit(const DriverMemory& memory, Bytes size);
  absl::StatusOr<Block*> Enter(AsyncPool& pool, DriverMemory& memory, DevicePtr address, Bytes size,
                               uint64_t capture);
  // The block is no more; its memory is still allocated.
  Return Leave(Block* block, uint64_t epoch);
  DriverMemory& MemoryOf(const Block& block);
  DriverMemory& GraphMemoryOf(const Pool& pool) { return graphs_[pool.private_pool != nullptr]; }

  // --- The driver's pools ---
  absl::StatusOr<DriverMemory*> MemoryFor(AsyncPool& pool);
  absl::Status Create(DriverMemory& memory);
  // Asks what the pool holds. Whether that has changed.
  bool Measure(DriverMemory& memory);
  void SetReserved(DriverMemory& memory, Bytes bytes);
  Bytes Trim(DriverMemory& memory);
  Bytes TrimAll();
  void DestroyIfGone(DriverMemory& memory);

  // --- Giving back to the driver ---
  // Whether the driver has it back; if not, that is to be tried again.
  bool HandBack(const Return& back);
  void HandBackAll();
  bool LegacyStreamRuns() const;
  // Whether the capture that allocated the memory frees it.
  bool FreeInCapture(DevicePtr address, const AsyncPool& pool, uint64_t capture);
  // Whether that is over: freed, or never there.
  bool FreeLaunched(DevicePtr address, StreamHandle stream);
  void FreeLeftToGraphs();
  // An event after all work on the device so far; nullptr if there can be none now.
  EventHandle RecordDeviceEvent();

  const DriverPoolOptions options_;
  const policy::native::Divisions divisions_;
  std::vector<AsyncPool*> pools_;
  std::vector<std::unique_ptr<DriverMemory>> memories_;  // the default pools' is the first
  std::array<DriverMemory, 2> graphs_;                   // of default pools, of private pools
  DriverPoolNumber next_number_ = kFirstPrivateDriverPool;
  std::vector<DeviceIndex> peers_;  // that all memory is open to
  Bytes reserved_bytes_ = 0;        // in all
  bool beyond_limit_ = false;       // what was undone for the limit has not gone back yet
  std::vector<Return> returns_;
  std::vector<LeftToGraph> left_to_graphs_;
  bool freed_since_retry_ = false;  // the driver took a free since RetryFrees was last called
  // The block that the step just taken got.
  Block* fresh_ = nullptr;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ASYNC_LAYOUT_H_
