// StreamLedger: the streams that a device's blocks belong to or are used on, and the pending frees.
//
// A block freed on its own stream may be reused on that stream at once: stream order makes that
// safe. A block that other streams use too (record_stream) is pending until an event recorded on
// each of them at the free is done. Such a stream may be one of another device, a peer: its events
// are that device's. Events come from a pool; a stream's events finish in order, so only the oldest
// of each stream is asked for. Not thread-safe: guarded by the device's lock.
//
// While a stream is being captured into a graph no event can be recorded on it, and if the driver
// refuses one for another reason (the stream was destroyed) no event will ever tell: such uses
// wait, the former for the end of the capture, the latter for the next time the stream's whole
// device was waited for. A use that was itself captured ends with the capture: nothing has run, and
// where the graph's launches may find the block is a matter of its private pool.
//
// Epochs tell when a stream has passed a plain free, for which nothing is recorded. Each stream has
// an epoch, a number that freed memory carries as a stamp. Closing it records an event and begins
// the next; once that event is done, whatever bears this epoch or an earlier one is idle as far as
// the stream goes. So one event answers for all that was freed before it.

#ifndef OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_
#define OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/core/block.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"

namespace offcut {

// A stream, other than its own, that uses a block.
struct StreamUse {
  uint32_t stream = 0;    // index
  bool captured = false;  // what uses it was captured into a graph, not run
};

struct StreamUses {
  std::vector<StreamUse> uses;  // without repetition of streams
  uint64_t epoch = 0;           // of a pending block: of its own stream, when it was freed
  uint32_t unfinished = 0;      // of a pending block: uses that are not known to be done
};

class StreamLedger {
 public:
  struct Stream {
    StreamHandle handle = nullptr;
    DeviceIndex device = 0;  // a peer's for a stream that only uses blocks
    StreamId id = 0;
    uint32_t index = 0;
    // The handle names this stream only: work submitted through it comes in one order. False for
    // the per-thread default stream, whose handle is another stream on each thread.
    bool ordered = true;
    uint64_t epoch = 1;       // stamps what is freed now
    uint64_t idle_epoch = 0;  // the stream is done with what bears this epoch or an earlier one
    uint64_t device_idle_epoch = 0;  // so is every other stream: the whole device was waited for
    uint64_t closed_at_ns = 0;       // when the epoch before the current one was closed
  };
  using OnFinished = absl::FunctionRef<void(Block*)>;
  // An event and the device that it is of.
  struct RecordedEvent {
    DeviceIndex device = 0;
    EventHandle event = nullptr;
  };

  StreamLedger(Driver& driver, DeviceIndex device, Emitter& emitter)
      : driver_(driver), device_(device), emitter_(emitter) {}
  StreamLedger(const StreamLedger&) = delete;
  StreamLedger& operator=(const StreamLedger&) = delete;
  ~StreamLedger();

  // The stream of this device behind a handle; seen for the first time, it gets an index and is
  // stated as an event.
  absl::StatusOr<Stream*> Find(StreamHandle handle) {
    if (Stream* const stream = FindLast(handle); stream != nullptr) return stream;
    return FindAmongAll(handle);
  }
  // The same, if it is the one found before, as it is for most requests; nullptr if not.
  Stream* FindLast(StreamHandle handle) const {
    return last_found_ != nullptr && handle == last_found_->handle ? last_found_ : nullptr;
  }
  // As Find, of any device.
  absl::StatusOr<Stream*> FindOn(DeviceIndex device, StreamHandle handle) {
    return device == device_ ? Find(handle) : FindOfPeer(device, handle);
  }

  // Whether work on the stream is being captured; of the legacy stream, whether a capture of a
  // blocking stream forbids to record an event on it.
  absl::StatusOr<bool> IsCapturing(const Stream& stream) const;

  // What becomes of work that is submitted through the stream's handle now.
  enum class Standing : uint8_t {
    kRuns,       // it runs, in the stream's order
    kCapturing,  // see IsCapturing
    kUnknown,    // the handle is another stream's, or none, or the driver does not answer
  };
  Standing Ask(Stream& stream);

  // Notes that `block` is used on a stream that is not its own, by captured work or by work that
  // runs. True if the stream was not known to use it yet.
  bool AddUse(Block& block, const Stream& stream, bool captured);

  // Takes in a block, state kPending with uses, that the program freed just now.
  void Pend(Block* block);

  // Calls `finished` for each pending block that all its streams are known to have passed.
  void Poll(OnFinished finished);
  // The events that all pending blocks wait for, one per stream, to be waited for without the lock:
  // an event may by then be recorded anew, and waiting takes longer, no more. Uses without an event
  // are not among them; Poll first, to have the fewest of those.
  std::vector<RecordedEvent> EventsOfPending() const;

  // --- Epochs ---
  // Closes the stream's epoch. Without effect, returning false, if no event can be recorded: the
  // stream is being captured, is not ordered, is gone, or kMaxOpenEpochs events are under way.
  bool CloseEpoch(Stream& stream);
  // Brings idle_epoch up to date.
  void PollEpochs(Stream& stream);
  // The event recorded first of those under way: of the epochs of `streams`, and of all pending
  // blocks. Its event is nullptr if there is none.
  RecordedEvent OldestEvent(absl::Span<Stream* const> streams) const;
  // Open epochs of one stream, and so events under way, at most: a device that hangs must not use
  // up the host.
  static constexpr size_t kMaxOpenEpochs = 1024;

  // --- Waiting for a whole device ---
  // What the device will be done with after a wait that begins now.
  struct Unprovable {
    Block* block;
    DeviceIndex device;  // of the stream that uses it
  };
  struct DeviceWait {
    std::vector<uint64_t> epochs;  // by stream index; 0 of other devices' streams
    std::vector<Unprovable> unprovable;
  };
  DeviceWait BeginDeviceWait(DeviceIndex device, OnFinished finished);
  // The wait is over. As Poll. `succeeded` false: nothing was learnt.
  void EndDeviceWait(DeviceWait wait, bool succeeded, OnFinished finished);
  // The peers with a use that only a wait for the whole device can close.
  std::vector<DeviceIndex> PeersToWaitFor() const;

  // Whether any stream known here is being captured.
  bool AnyCapturing() const;

  // All streams seen, by index.
  absl::Span<const std::unique_ptr<Stream>> streams() const { return streams_; }

  bool has_pending() const { return pending_blocks_ > 0; }
  size_t pending_blocks() const { return pending_blocks_; }

 private:
  absl::StatusOr<Stream*> FindAmongAll(StreamHandle handle);
  absl::StatusOr<Stream*> FindOfPeer(DeviceIndex peer, StreamHandle handle);
  absl::StatusOr<Stream*> FindById(DeviceIndex device, StreamHandle handle);
  struct PendingUse {
    Block* block;
    EventHandle event;
    uint64_t recorded_ns;
  };

  // nullptr if the stream is being captured or the driver refuses; `*retry` tells the two apart.
  EventHandle RecordEvent(Stream& stream, bool* retry);
  // The stream was destroyed, and its handle is another stream's now: only a wait for the device
  // tells when it is done.
  void Forget(Stream& stream);
  // False if that has to be tried again later.
  bool RecordUse(Block* block, const StreamUse& use);
  bool IsDone(const Stream& stream, EventHandle event);
  void RecordPostponed(OnFinished finished);
  void FinishUse(Block* block, OnFinished finished);
  std::vector<EventHandle>& SpareEvents(DeviceIndex device);
  EventHandle TakeEvent(DeviceIndex device);

  Driver& driver_;
  const DeviceIndex device_;
  Emitter& emitter_;
  std::vector<std::unique_ptr<Stream>> streams_;
  absl::flat_hash_map<StreamHandle, Stream*> by_handle_;  // of this device
  Stream* last_found_ = nullptr;                          // in by_handle_
  absl::flat_hash_map<std::pair<DeviceIndex, StreamId>, Stream*> by_id_;

  struct ClosedEpoch {
    uint64_t epoch;
    EventHandle event;
    uint64_t recorded_ns;
  };
  std::vector<std::deque<ClosedEpoch>> closed_epochs_;  // by stream index, in order

  std::vector<std::deque<PendingUse>> queues_;  // by stream index; events finish in order
  struct Postponed {
    Block* block;
    StreamUse use;
  };
  std::vector<Postponed> postponed_;    // uses whose stream was being captured
  std::vector<Unprovable> unprovable_;  // uses that only a wait for the device can close
  size_t pending_blocks_ = 0;
  std::vector<std::vector<EventHandle>> spare_events_;  // by device
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_
