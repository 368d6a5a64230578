#include "allocator/core/stream_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"
#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

// cuda.h: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. The second names another stream on each
// thread.
const StreamHandle kLegacyStream = reinterpret_cast<StreamHandle>(0x1);
const StreamHandle kPerThreadStream = reinterpret_cast<StreamHandle>(0x2);

}  // namespace

StreamLedger::~StreamLedger() {
  for (EventHandle event : spare_events_) driver_.DestroyEvent(device_, event).IgnoreError();
  for (const std::deque<PendingUse>& queue : queues_) {
    for (const PendingUse& use : queue) driver_.DestroyEvent(device_, use.event).IgnoreError();
  }
  for (const std::deque<ClosedEpoch>& queue : closed_epochs_) {
    for (const ClosedEpoch& closed : queue) {
      driver_.DestroyEvent(device_, closed.event).IgnoreError();
    }
  }
}

absl::StatusOr<StreamLedger::Stream*> StreamLedger::FindAmongAll(StreamHandle handle) {
  if (handle == kLegacyStream) handle = nullptr;
  if (const auto it = by_handle_.find(handle); it != by_handle_.end()) {
    return last_found_ = it->second;
  }
  OFFCUT_ASSIGN_OR_RETURN(const StreamId id, driver_.GetStreamId(device_, handle));
  if (const auto it = by_id_.find(id); it != by_id_.end()) return it->second;
  streams_.push_back(
      std::make_unique<Stream>(Stream{.handle = handle,
                                      .id = id,
                                      .index = static_cast<uint32_t>(streams_.size()),
                                      .ordered = handle != kPerThreadStream}));
  Stream* stream = streams_.back().get();
  queues_.emplace_back();
  closed_epochs_.emplace_back();
  by_id_.emplace(id, stream);
  if (handle != kPerThreadStream) by_handle_.emplace(handle, stream);
  emitter_.Emit({.address = id,
                 .bytes = reinterpret_cast<uint64_t>(handle),
                 .extra = stream->index,
                 .kind = EventKind::kStreamSeen});
  return stream;
}

absl::StatusOr<bool> StreamLedger::IsCapturing(const Stream& stream) const {
  return driver_.IsCapturing(device_, stream.handle);
}

bool StreamLedger::AddUse(Block& block, const Stream& stream, bool captured) {
  if (block.uses == nullptr) block.uses = new StreamUses();
  std::vector<StreamUse>& uses = block.uses->uses;
  const auto known = std::find_if(uses.begin(), uses.end(),
                                  [&](const StreamUse& use) { return use.stream == stream.index; });
  if (known != uses.end()) {
    known->captured &= captured;
    return false;
  }
  uses.push_back({.stream = stream.index, .captured = captured});
  return true;
}

void StreamLedger::Pend(Block* block) {
  ++pending_blocks_;
  block->uses->unfinished = static_cast<uint32_t>(block->uses->uses.size());
  for (const StreamUse& use : block->uses->uses) {
    if (!RecordUse(block, use)) postponed_.push_back({block, use});
  }
}

EventHandle StreamLedger::RecordEvent(Stream& stream, bool* retry) {
  // An event on another stream with the same handle would tell nothing of this one.
  const absl::StatusOr<StreamId> id = driver_.GetStreamId(device_, stream.handle);
  if (!id.ok()) return nullptr;
  if (*id != stream.id) {
    if (stream.ordered) Forget(stream);
    return nullptr;
  }
  const absl::StatusOr<bool> capturing = IsCapturing(stream);
  // Without an answer, an event might be recorded into a capture, and asking it would end that.
  if (!capturing.ok()) return nullptr;
  if (*capturing) {
    *retry = true;
    return nullptr;
  }
  EventHandle event = TakeEvent();
  if (event == nullptr) return nullptr;
  if (const absl::Status recorded = driver_.RecordEvent(device_, event, stream.handle);
      !recorded.ok()) {
    *retry = absl::IsFailedPrecondition(recorded);
    spare_events_.push_back(event);
    return nullptr;
  }
  return event;
}

void StreamLedger::Forget(Stream& stream) {
  stream.ordered = false;
  by_handle_.erase(stream.handle);
  last_found_ = nullptr;
}

EventHandle StreamLedger::TakeEvent() {
  if (spare_events_.empty()) {
    absl::StatusOr<EventHandle> event = driver_.CreateEvent(device_);
    return event.ok() ? *event : nullptr;
  }
  EventHandle event = spare_events_.back();
  spare_events_.pop_back();
  return event;
}

void StreamLedger::RecordPostponed(OnFinished finished) {
  std::vector<Postponed> still;
  // One question per stream: in a long capture every request comes by here.
  std::vector<bool> known(streams_.size()), capturing(streams_.size());
  for (const Postponed& postponed : std::exchange(postponed_, {})) {
    const auto [block, use] = postponed;
    if (!known[use.stream]) {
      const absl::StatusOr<bool> answer = IsCapturing(*streams_[use.stream]);
      known[use.stream] = true;
      capturing[use.stream] = answer.ok() && *answer;
    }
    if (capturing[use.stream]) {
      still.push_back(postponed);
    } else if (use.captured) {
      FinishUse(block, finished);
    } else if (!RecordUse(block, use)) {
      still.push_back(postponed);
    }
  }
  postponed_ = std::move(still);
}

bool StreamLedger::RecordUse(Block* block, const StreamUse& use) {
  bool retry = false;
  if (const EventHandle event = RecordEvent(*streams_[use.stream], &retry); event != nullptr) {
    queues_[use.stream].push_back({block, event, emitter_.clock().NowNs()});
    return true;
  }
  if (!retry) unprovable_.push_back(block);
  return !retry;
}

void StreamLedger::Poll(OnFinished finished) {
  if (!postponed_.empty()) RecordPostponed(finished);
  for (std::deque<PendingUse>& queue : queues_) {
    while (!queue.empty() && IsDone(queue.front().event)) {
      const PendingUse use = queue.front();
      queue.pop_front();
      spare_events_.push_back(use.event);
      FinishUse(use.block, finished);
    }
  }
}

bool StreamLedger::IsDone(EventHandle event) {
  const absl::StatusOr<bool> done = driver_.QueryEvent(device_, event);
  // A driver that cannot answer has not said that the stream is past it.
  return done.ok() && *done;
}

std::vector<EventHandle> StreamLedger::EventsOfPending() const {
  std::vector<EventHandle> events;
  for (const std::deque<PendingUse>& queue : queues_) {
    if (!queue.empty()) events.push_back(queue.back().event);
  }
  return events;
}

bool StreamLedger::CloseEpoch(Stream& stream) {
  std::deque<ClosedEpoch>& queue = closed_epochs_[stream.index];
  if (!stream.ordered || queue.size() >= kMaxOpenEpochs) return false;
  bool retry = false;
  const EventHandle event = RecordEvent(stream, &retry);
  if (event == nullptr) return false;
  stream.closed_at_ns = emitter_.clock().NowNs();
  queue.push_back({stream.epoch++, event, stream.closed_at_ns});
  return true;
}

void StreamLedger::PollEpochs(Stream& stream) {
  std::deque<ClosedEpoch>& queue = closed_epochs_[stream.index];
  while (!queue.empty() &&
         (queue.front().epoch <= stream.idle_epoch || IsDone(queue.front().event))) {
    stream.idle_epoch = std::max(stream.idle_epoch, queue.front().epoch);
    spare_events_.push_back(queue.front().event);
    queue.pop_front();
  }
}

EventHandle StreamLedger::OldestEvent(absl::Span<Stream* const> streams) const {
  EventHandle oldest = nullptr;
  uint64_t oldest_ns = std::numeric_limits<uint64_t>::max();
  const auto consider = [&](const auto& queue) {
    if (queue.empty() || queue.front().recorded_ns >= oldest_ns) return;
    oldest = queue.front().event;
    oldest_ns = queue.front().recorded_ns;
  };
  for (const std::deque<PendingUse>& queue : queues_) consider(queue);
  for (const Stream* stream : streams) consider(closed_epochs_[stream->index]);
  return oldest;
}

StreamLedger::DeviceWait StreamLedger::BeginDeviceWait(OnFinished finished) {
  // Events that could not be recorded before may be among what the wait is for.
  if (!postponed_.empty()) RecordPostponed(finished);
  DeviceWait wait;
  for (const std::unique_ptr<Stream>& stream : streams_) wait.epochs.push_back(stream->epoch++);
  wait.unprovable = std::exchange(unprovable_, {});
  return wait;
}

void StreamLedger::EndDeviceWait(DeviceWait wait, bool succeeded, OnFinished finished) {
  if (!succeeded) {
    unprovable_.insert(unprovable_.end(), wait.unprovable.begin(), wait.unprovable.end());
    return;
  }
  for (size_t i = 0; i < wait.epochs.size(); ++i) {
    streams_[i]->idle_epoch = std::max(streams_[i]->idle_epoch, wait.epochs[i]);
    streams_[i]->device_idle_epoch = std::max(streams_[i]->device_idle_epoch, wait.epochs[i]);
    PollEpochs(*streams_[i]);
  }
  for (Block* block : wait.unprovable) FinishUse(block, finished);
  Poll(finished);
}

bool StreamLedger::AnyCapturing() const {
  return std::any_of(streams_.begin(), streams_.end(), [this](const auto& stream) {
    const absl::StatusOr<bool> capturing = IsCapturing(*stream);
    // Without an answer it may be; but one that was destroyed never answers again.
    if (!capturing.ok()) return DriverErrorCode(capturing.status()) != CudaResult::kInvalidHandle;
    return *capturing;
  });
}

void StreamLedger::FinishUse(Block* block, OnFinished finished) {
  if (--block->uses->unfinished > 0) return;
  --pending_blocks_;
  finished(block);
}

}  // namespace offcut
