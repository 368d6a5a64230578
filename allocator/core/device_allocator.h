// DeviceAllocator: the caching allocator of one device.
//
// Owns the pools of its device and the layouts that their memory lies in; one lock guards all of
// it. Serves a request from a free block of the stream's own pool, or of the private pool that it
// is routed to, where one fits (no driver call, no heap allocation, one event), and climbs the
// reclaim ladder where none does. Promises: addresses are multiples of 512; a block freed on its
// stream serves that stream at once and never another; a block with recorded streams is reused only
// after events on all of them; memory of a private pool stays where it is while anybody uses the
// pool; frees never fail loudly; no call that a stream capture forbids is made while one is known.
// States every change as an event. Thread-safe.
//
// Private pools may have their memory from an allocator of somebody else's, which is called without
// the lock and may in turn ask for memory here.
//
// Does not do: sharing with other processes.

#ifndef OFFCUT_ALLOCATOR_CORE_DEVICE_ALLOCATOR_H_
#define OFFCUT_ALLOCATOR_CORE_DEVICE_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/block.h"
#include "allocator/core/block_table.h"
#include "allocator/core/device_mutex.h"
#include "allocator/core/layout.h"
#include "allocator/core/pool.h"
#include "allocator/core/pool_checkpoint.h"
#include "allocator/core/private_pools.h"
#include "allocator/core/segments_layout.h"
#include "allocator/core/state_view.h"
#include "allocator/core/stream_ledger.h"
#include "allocator/driver/driver.h"
#include "allocator/events/accounting.h"
#include "allocator/events/counters.h"
#include "allocator/events/emitter.h"

namespace offcut {

// A live block, as the program may ask for it.
struct BlockInfo {
  DevicePtr address = 0;
  Bytes requested = 0;
  Bytes size = 0;
  StreamHandle stream = nullptr;
  DevicePtr range_address = 0;  // of the arena
  Bytes range_bytes = 0;
};

class DeviceAllocator {
 public:
  // `driver`, `clock`, `address_map` and the sinks outlive the allocator. `config` names the
  // layout, but a device gets another, with a notice, if it lacks what that needs; the limits in
  // it are its caller's to work out as `limit`. `sinks` see every event from the first.
  static absl::StatusOr<std::unique_ptr<DeviceAllocator>> Create(
      Driver& driver, DeviceIndex device, const Clock& clock, AddressMap& address_map,
      const Config& config, std::vector<EventSink*> sinks = {}, Bytes limit = kNoLimit);
  // For tests and replay: gives everything back. A process's own allocators live until it ends.
  ~DeviceAllocator();

  // Serves `requested` > 0 bytes for use on `stream`. ResourceExhausted when memory is out, with
  // the short report as its message and the whole one as its payload (memory_report.h); the error
  // of a route's filter, as it is.
  absl::StatusOr<DevicePtr> Allocate(StreamHandle stream, Bytes requested)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // InvalidArgument, counted and otherwise ignored, for an address where no live block starts.
  absl::Status Free(DevicePtr address) ABSL_LOCKS_EXCLUDED(mutex_);

  // The live block at `address` is also used on `stream` of `device`, which may be a peer.
  absl::Status RecordStream(DevicePtr address, DeviceIndex device, StreamHandle stream)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for the device and gives all idle memory back, of default pools and of released private
  // ones. Returns the bytes released; none while a stream is being captured.
  Bytes EmptyCache() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Private pools (device_allocator_pools.cc; see private_pools.h) ---
  // `foreign`: where its memory comes from, if the pool is made by this; nullptr: from the driver.
  absl::Status RetainPool(PrivatePoolId id,
                          std::shared_ptr<const ForeignAllocator> foreign = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ReleasePool(PrivatePoolId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // 0 if nobody uses it.
  uint32_t PoolUseCount(PrivatePoolId id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // NotFound if nobody uses it.
  absl::Status SetNoSplit(PrivatePoolId id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status SetUseOnOom(PrivatePoolId id, bool use) ABSL_LOCKS_EXCLUDED(mutex_);
  // `stream`: where the caller works now; if it is captured in what follows, that is known.
  absl::Status BeginAllocateToPool(PrivatePoolId id, StreamHandle stream,
                                   PrivatePools::Filter filter) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EndAllocateToPool(PrivatePoolId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // As EmptyCache, for the released private pools of this id; pools in use keep their memory.
  Bytes EmptyCacheOf(PrivatePoolId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the live blocks of the pool start at just these addresses.
  absl::StatusOr<bool> HasLiveBlocks(PrivatePoolId id, absl::Span<const DevicePtr> addresses) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The blocks of a pool in use, and the way back to them: all its live blocks are freed, and those
  // that lived then live again, where they were. FailedPrecondition if a block of the pool is
  // pending or used by another stream, or a segment is gone; then nothing has changed.
  absl::StatusOr<PoolCheckpoint> TakeCheckpoint(PrivatePoolId id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<RestoredBlocks> RestoreCheckpoint(const PoolCheckpoint& checkpoint)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Called, without the lock, when a request needs more than growing a little: says whether it has
  // freed anything. Empty: nobody. It may free, and must not allocate.
  void SetFreeMemoryCallback(std::function<bool()> callback) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for all that was submitted to the device. FailedPrecondition, without a wait, while a
  // stream known here is being captured: the wait would end that.
  absl::Status WaitForDevice() ABSL_LOCKS_EXCLUDED(mutex_);
  // How to wait for another device, on whose streams blocks of this one were used; called without
  // the lock. Its own allocator knows of captures there. Empty: the driver is asked directly.
  using WaitForPeer = std::function<absl::Status(DeviceIndex peer)>;
  void SetWaitForPeer(WaitForPeer wait) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks, those there and those to come, may be used by work on `peer` too.
  absl::Status OpenTo(DeviceIndex peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Requests from now on go by these.
  void SetSizeOptions(const SizeOptions& options) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reserved and foreign memory together do not grow beyond `limit` bytes; what there is stays.
  void SetLimit(Bytes limit) ABSL_LOCKS_EXCLUDED(mutex_);

  // The live block that `address` lies in.
  absl::StatusOr<BlockInfo> FindBlock(DevicePtr address) const ABSL_LOCKS_EXCLUDED(mutex_);
  Bytes LargestFreeBlock() const ABSL_LOCKS_EXCLUDED(mutex_);

  Counters counters() const ABSL_LOCKS_EXCLUDED(mutex_);
  SegmentCounters segment_counters() const ABSL_LOCKS_EXCLUDED(mutex_);
  void ResetPeaks() ABSL_LOCKS_EXCLUDED(mutex_);
  void ResetTotals() ABSL_LOCKS_EXCLUDED(mutex_);
  // `begin` gets the state as it is before the first event that the sink hears.
  void AddSink(EventSink* sink, absl::FunctionRef<void(const StateView&)> begin)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // It hears nothing more, and may go; so with all.
  void RemoveSink(EventSink* sink) ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveSinks() ABSL_LOCKS_EXCLUDED(mutex_);
  void MarkStep(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Samples the device's used memory and says where every byte is.
  Accounting Account() ABSL_LOCKS_EXCLUDED(mutex_);
  // Everything, for the audit, for snapshots and for tests; `at_moment` is called while it is so.
  // O(blocks).
  StateView View(absl::FunctionRef<void()> at_moment = [] {}) const ABSL_LOCKS_EXCLUDED(mutex_);

  const DeviceProperties& properties() const { return properties_; }
  // What the user should be told once: that the device lacks what an option asks for. "": nothing.
  const std::string& notice() const { return notice_; }

 private:
  DeviceAllocator(Driver& driver, DeviceIndex device, DeviceProperties properties,
                  LayoutKind layout, const Clock& clock, AddressMap& address_map,
                  const Config& config, std::vector<EventSink*> sinks);

  // --- Serving a request ---
  // nullptr: the request is for a foreign allocator that the calling thread is in a call of.
  absl::StatusOr<Pool*> PoolFor(StreamHandle stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Pool*> PoolForSlow(StreamHandle stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Layout& default_layout() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return *layouts_.front(); }
  Layout& private_layout() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return *private_layout_; }
  Pool* AddPool(Layout& layout, StreamLedger::Stream& stream, PrivatePool* owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits without the lock: what was found before may have changed when it returns.
  absl::StatusOr<Block*> ClimbReclaimLadderSlow(Pool& pool, Bytes requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the step makes sense for this request, and is allowed now.
  bool MayTakeStep(ReclaimStep step, const Pool& pool) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeStepSlow(ReclaimStep step, Pool& pool, Bytes requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CallFreeMemoryCallbackSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `wait_refused`: CUDA refused a wait without which memory could not be given back.
  absl::Status FailSlow(const Pool& pool, Bytes requested, const absl::Status& cause,
                        bool wait_refused = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the report of a failure goes among the events: not of each, where there are very many.
  bool MayRecordReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Waiting: each lets go of the lock meanwhile ---
  // For this device and what peers do with pending blocks; of the latter, what could not be waited
  // for stays in use.
  absl::Status WaitForDeviceSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // So that everything that is free is idle; twice, if frees had to wait for the first.
  absl::Status WaitToReleaseSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitForOneDeviceSlow(DeviceIndex device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNothingIsCaptured() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForPendingSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForEventSlow(StreamLedger::RecordedEvent recorded) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for one event after the other, the oldest first, until the step can be taken.
  absl::Status MoveAfterWaitSlow(Pool& pool, Bytes requested) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the event is done, after at most `max_ns`.
  bool AwaitEventSlow(StreamLedger::RecordedEvent recorded, uint64_t max_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Private pools ---
  Pool* PrivatePoolFor(PrivatePool& owner, StreamLedger::Stream& stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first blocks of all segments of the pool, whose pending frees that can be finished are.
  absl::StatusOr<std::vector<Block*>> SegmentsForCheckpoint(PrivatePoolId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The block that a layout gave is the program's from now on; or no longer.
  void EnterBlock(Block* block, Bytes requested) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeBlock(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* TakeOnOomSlow(const Pool& pool, Bytes requested) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Foreign memory: the allocators that it comes from are called without the lock ---
  absl::Status GrowForeignSlow(Pool& pool, Bytes requested) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether no live or pending block starts in the range.
  bool HoldsNoBlock(DevicePtr address, Bytes bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The calling thread is in such a call for this device.
  bool InForeignCall() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DevicePtr> LendSlow(Bytes requested) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives back what was let go of, and lets go of the allocators that no pool needs any more.
  void ReturnForeignSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateLimit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of default pools and of released private ones.
  Bytes ReleaseAllIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets released private pools that hold nothing any more.
  void RemoveReleasedPools() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Freeing ---
  absl::Status InvalidFreeSlow(DevicePtr address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishPendingFree(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void NoteLargestLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StateView ViewLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EmitBlock(EventKind kind, const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Driver& driver_;
  const DeviceIndex device_;
  const DeviceProperties properties_;
  const Config config_;
  std::string notice_;  // written by Create
  AddressMap& address_map_;

  mutable DeviceMutex mutex_;
  Emitter emitter_ ABSL_GUARDED_BY(mutex_);
  BlockStore blocks_ ABSL_GUARDED_BY(mutex_);
  GranulePool granules_ ABSL_GUARDED_BY(mutex_);
  StreamLedger streams_ ABSL_GUARDED_BY(mutex_);
  LayoutContext context_ ABSL_GUARDED_BY(mutex_);
  // That of the default pools, that of the private pools if they have another, and that of private
  // pools with foreign memory.
  std::vector<std::unique_ptr<Layout>> layouts_ ABSL_GUARDED_BY(mutex_);
  Layout* private_layout_ ABSL_GUARDED_BY(mutex_) = nullptr;          // in layouts_
  SegmentsLayout* foreign_layout_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in layouts_
  std::vector<std::shared_ptr<const ForeignAllocator>> unused_foreign_ ABSL_GUARDED_BY(mutex_);
  Bytes limit_ ABSL_GUARDED_BY(mutex_) = kNoLimit;  // on reserved and foreign memory
  // Reports among the events of late, and until when that was counted.
  uint32_t reports_recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t reports_counted_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  PrivatePools private_pools_ ABSL_GUARDED_BY(mutex_);
  std::function<bool()> free_memory_callback_ ABSL_GUARDED_BY(mutex_);
  WaitForPeer wait_for_peer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Pool>> pools_ ABSL_GUARDED_BY(mutex_);  // by index
  // Pools of the private layout that belong to no private pool now.
  std::vector<Pool*> spare_pools_ ABSL_GUARDED_BY(mutex_);
  std::vector<Pool*> pool_of_stream_ ABSL_GUARDED_BY(mutex_);  // by stream index
  // Live and pending blocks by address.
  BlockTable taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_DEVICE_ALLOCATOR_H_
