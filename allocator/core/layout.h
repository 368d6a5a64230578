// Layout: how the memory of a device's pools is laid out, and where it comes from.
//
// A layout finds free blocks, takes them back, and gets and releases memory. It does not know which
// blocks the program holds, who asked, or what PyTorch is; it never waits, and it proves nothing:
// its owner, the DeviceAllocator, holds the device's lock, waits without it, and says through the
// streams' epochs what the device is done with. A layout states what it does to memory as events;
// the events of blocks are its owner's. Not thread-safe: guarded by the device's lock, which
// TakeStep and ReleaseIdle may give up while they make many driver calls.
//
// Implementations: ArenaLayout (virtual memory), SegmentsLayout (PyTorch's native algorithm),
// AsyncLayout (the driver's stream-ordered pools).

#ifndef OFFCUT_ALLOCATOR_CORE_LAYOUT_H_
#define OFFCUT_ALLOCATOR_CORE_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/block.h"
#include "allocator/core/block_table.h"
#include "allocator/core/device_mutex.h"
#include "allocator/core/granule_pool.h"
#include "allocator/core/pool.h"
#include "allocator/core/private_pools.h"
#include "allocator/core/segment_counters.h"
#include "allocator/core/size_options.h"
#include "allocator/core/state_view.h"
#include "allocator/core/stream_ledger.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"
#include "allocator/events/event.h"

namespace offcut {

// What the layouts of one device share with its allocator, which owns all of it and outlives them.
struct LayoutContext {
  Driver& driver;
  const DeviceIndex device;
  const DeviceProperties& properties;
  const Config& config;
  AddressMap& address_map;
  Emitter& emitter;
  BlockStore& blocks;
  GranulePool& granules;
  StreamLedger& streams;
  const BlockTable& taken;  // live and pending blocks
  const PrivatePools& private_pools;
  DeviceMutex& mutex;                 // the device's lock
  bool second_mappings_work = false;  // as a test of the device has shown
  Bytes limit = 0;                    // on reserved memory; kNoLimit: none
  Bytes largest_live = 0;  // the most live bytes there ever were, up to the last slow path
  SegmentCounters segment_counters{};

  Bytes growing_bytes = 0;  // of granules that requests are making now, without the lock

  // The limit holds for it.
  Bytes reserved_and_growing_bytes() const { return reserved_bytes() + growing_bytes; }
  Bytes reserved_bytes() const {
    return static_cast<Bytes>(emitter.counters().reserved_bytes[0].current);
  }
  // Device memory in use by everyone, asked now and stated as an event.
  Bytes SampleDeviceUsed();
};

class Layout {
 public:
  explicit Layout(LayoutContext& context) : context_(context) {}
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  // Everything goes back to the driver. Requires: the device is idle.
  virtual ~Layout() = default;

  // From now on; what was rounded or cut by others stays as it is.
  virtual void SetSizeOptions(const SizeOptions& /*options*/) {}
  virtual std::unique_ptr<Pool> NewPool(uint16_t index, StreamLedger::Stream& stream) = 0;

  // --- The hot path ---
  // A block of this pool that holds `requested` bytes, in state kLive; nullptr if no free one fits.
  // Requires: 0 < requested <= policy::kRequestMax.
  virtual Block* Take(Pool& pool, Bytes requested) = 0;
  // Takes back a block that Take gave, freed in `epoch` of its pool's stream: it is free for that
  // stream at once.
  virtual void GiveBack(Block* block, uint64_t epoch) = 0;
  // The program has freed the block; it comes back later, since other streams still use it.
  virtual void NotePending(const Block& /*block*/) {}

  // --- The slow path ---
  // The steps for a request that Take could not serve, in order; see device_allocator_slow.cc for
  // those that the allocator itself takes.
  virtual absl::Span<const ReclaimStep> ladder() const = 0;
  // Whether the step would do anything for the request. If not it is skipped, and with it the wait
  // that it may begin with.
  virtual bool Applies(ReclaimStep step, const Pool& pool, Bytes requested) const { return true; }
  // Takes one step for the request. OK if Take may succeed now. ResourceExhausted: memory or the
  // limit does not suffice, a later step may help; any other error ends the climb.
  virtual absl::Status TakeStep(ReclaimStep step, Pool& pool, Bytes requested) = 0;
  // As Take, right after TakeStep returned, and before anything else happens.
  virtual Block* TakeAfterStep(Pool& pool, Bytes requested) { return Take(pool, requested); }
  // What a wait could set free for the request: the streams whose epochs, closed now, hold free
  // memory back, beside all pending blocks.
  struct WaitPlan {
    bool worthwhile = false;  // else it is too little, whatever is waited for
    std::vector<StreamLedger::Stream*> streams;
  };
  virtual WaitPlan PlanWait(Pool& /*pool*/, Bytes /*requested*/) { return {}; }
  // Reserved memory by which a request would have to grow, if nothing that is free could serve it.
  virtual Bytes GrowthFor(Bytes requested) const = 0;
  // Whether the driver itself waits for the device before it takes memory of this layout back.
  virtual bool ReleaseWaits() const { return false; }
  // Gives memory back to the driver that no block lies in and that the epochs of all streams
  // concerned prove idle. `only`: of this pool; nullptr: of all. Returns the bytes released.
  virtual Bytes ReleaseIdle(const Pool* only) = 0;
  // Frees that the driver did not take when they were made are tried again. True if it took any, of
  // these or others, since this was last called: a wait that begins now sets their memory free.
  virtual bool RetryFrees() { return false; }
  // Blocks, those there and those to come, are open to work on `peer` too.
  virtual absl::Status OpenTo(DeviceIndex peer) = 0;

  // What the layout knows only by asking the driver is asked now, and stated as events.
  virtual void Refresh() {}
  // A use of the private pool ends, and with it perhaps a graph whose memory lies there.
  virtual void BeforeRelease(const PrivatePool& /*pool*/) {}

  // --- Checkpoints ---
  // The first blocks of the pool's segments, linked to the rest of each; Unimplemented where memory
  // has no fixed segments.
  virtual absl::StatusOr<std::vector<Block*>> SegmentsOf(const Pool& /*pool*/) const {
    return absl::UnimplementedError("this layout has no fixed segments to make a checkpoint of");
  }
  // Cuts a segment, which is one free block, into blocks of these sizes, all of them in state
  // kLive, in order of address. Requires: the sizes are multiples of 512 and add up to the
  // segment's.
  virtual std::vector<Block*> Cut(Block* /*segment*/, absl::Span<const Bytes> /*sizes*/) {
    return {};
  }

  // --- Questions ---
  // Whether any memory lies in the pool. Yes where the layout does not know.
  virtual bool HoldsMemory(const Pool& /*pool*/) const { return true; }
  // Size of the largest request that Take would serve; 0 if none.
  virtual Bytes LargestFree(const Pool& pool) const = 0;
  // The contiguous range that the block was cut from: an arena, a segment.
  struct Range {
    DevicePtr address = 0;
    Bytes bytes = 0;
  };
  virtual Range RangeOf(const Block& block) const = 0;
  // Adds its arenas (segments), free indexes and granules.
  virtual void AddTo(StateView& view) const = 0;

 protected:
  LayoutContext& context_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_LAYOUT_H_
