// StreamLedger: the streams that a device's blocks belong to or are used on, and the pending frees.
//
// A block freed on its own stream may be reused on that stream at once: stream order makes that
// safe. A block that other streams use too (record_stream) is pending until an event recorded on
// each of them at the free is done. Events come from a pool; a stream's events finish in order, so
// only the oldest of each stream is asked for. Not thread-safe: guarded by the device's lock.
//
// While a stream is being captured into a graph no event can be recorded on it, and if the driver
// refuses one for another reason (the stream was destroyed) no event will ever tell: such uses
// wait, the former for the end of the capture, the latter for the next time the whole device was
// waited for.

#ifndef OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_
#define OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/core/block.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"

namespace offcut {

// The streams, other than its own, that use a block.
struct StreamUses {
  std::vector<uint32_t> streams;  // indices, without repetition
  uint32_t unfinished = 0;        // of a pending block: uses that are not known to be done
};

class StreamLedger {
 public:
  struct Stream {
    StreamHandle handle = nullptr;
    StreamId id = 0;
    uint32_t index = 0;
  };
  using OnFinished = absl::FunctionRef<void(Block*)>;

  StreamLedger(Driver& driver, DeviceIndex device, Emitter& emitter)
      : driver_(driver), device_(device), emitter_(emitter) {}
  StreamLedger(const StreamLedger&) = delete;
  StreamLedger& operator=(const StreamLedger&) = delete;
  ~StreamLedger();

  // The stream behind a handle; seen for the first time, it gets an index and is stated as an
  // event.
  absl::StatusOr<const Stream*> Find(StreamHandle handle);

  // Whether work on the stream is being captured. The legacy stream never is, and is not asked:
  // asking would end the capture of a blocking stream.
  absl::StatusOr<bool> IsCapturing(const Stream& stream) const;

  // Notes that `block` is used on a stream that is not its own. True if that was not known yet.
  bool AddUse(Block& block, const Stream& stream);

  // Takes in a block, state kPending with uses, that the program freed just now.
  void Pend(Block* block);

  // Calls `finished` for each pending block that all its streams are known to have passed.
  void Poll(OnFinished finished);
  // As Poll, after waiting for the events of all pending blocks. Uses without an event stay.
  void Wait(OnFinished finished);
  // As Poll, after the caller has waited for the whole device.
  void DeviceIsIdle(OnFinished finished);

  bool has_pending() const { return pending_blocks_ > 0; }
  size_t pending_blocks() const { return pending_blocks_; }

 private:
  struct PendingUse {
    Block* block;
    EventHandle event;  // nullptr: could not be recorded
  };

  // nullptr if the stream is being captured or the driver refuses; `*retry` tells the two apart.
  EventHandle RecordEvent(const Stream& stream, bool* retry);
  void RecordPostponed();
  void FinishUse(Block* block, OnFinished finished);
  EventHandle TakeEvent();

  Driver& driver_;
  const DeviceIndex device_;
  Emitter& emitter_;
  std::vector<std::unique_ptr<Stream>> streams_;
  absl::flat_hash_map<StreamHandle, const Stream*> by_handle_;
  absl::flat_hash_map<StreamId, const Stream*> by_id_;

  std::vector<std::deque<PendingUse>> queues_;  // by stream index; events finish in order
  struct Postponed {
    Block* block;
    uint32_t stream;
  };
  std::vector<Postponed> postponed_;  // uses whose stream was being captured
  std::vector<Block*> unprovable_;    // one entry per use that only a wait for the device can close
  size_t pending_blocks_ = 0;
  std::vector<EventHandle> spare_events_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_STREAM_LEDGER_H_
