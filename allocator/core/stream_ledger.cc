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
  for (const std::unique_ptr<Stream>& stream : streams_) {
    std::vector<EventHandle>& spare = SpareEvents(stream->device);
    for (const PendingUse& use : queues_[stream->index]) spare.push_back(use.event);
    for (const ClosedEpoch& closed : closed_epochs_[stream->index]) spare.push_back(closed.event);
  }
  for (size_t device = 0; device < spare_events_.size(); ++device) {
    for (const EventHandle event : spare_events_[device]) {
      driver_.DestroyEvent(static_cast<DeviceIndex>(device), event).IgnoreError();
    }
  }
}

absl::StatusOr<StreamLedger::Stream*> StreamLedger::FindAmongAll(StreamHandle handle) {
  if (handle == kLegacyStream) handle = nullptr;
  if (const auto it = by_handle_.find(handle); it != by_handle_.end()) {
    return last_found_ = it->second;
  }
  return FindById(device_, handle);
}

absl::StatusOr<StreamLedger::Stream*> StreamLedger::FindOfPeer(DeviceIndex peer,
                                                               StreamHandle handle) {
  if (handle == kLegacyStream) handle = nullptr;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (stream->device == peer && stream->handle == handle && stream->ordered) return stream.get();
  }
  return FindById(peer, handle);
}

absl::StatusOr<StreamLedger::Stream*> StreamLedger::FindById(DeviceIndex device,
                                                             StreamHandle handle) {
  OFFCUT_ASSIGN_OR_RETURN(const StreamId id, driver_.GetStreamId(device, handle));
  if (const auto it = by_id_.find({device, id}); it != by_id_.end()) return it->second;
  streams_.push_back(
      std::make_unique<Stream>(Stream{.handle = handle,
                                      .device = device,
                                      .id = id,
                                      .index = static_cast<uint32_t>(streams_.size()),
                                      .ordered = handle != kPerThreadStream}));
  Stream* stream = streams_.back().get();
  queues_.emplace_back();
  closed_epochs_.emplace_back();
  by_id_.emplace(std::pair(device, id), stream);
  if (device == device_ && stream->ordered) by_handle_.emplace(handle, stream);
  emitter_.Emit({.address = id,
                 .bytes = reinterpret_cast<uint64_t>(handle),
                 .extra = stream->index,
                 .kind = EventKind::kStreamSeen});
  return stream;
}

absl::StatusOr<bool> StreamLedger::IsCapturing(const Stream& stream) const {
  return driver_.IsCapturing(stream.device, stream.handle);
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

StreamLedger::Standing StreamLedger::Ask(Stream& stream) {
  const absl::StatusOr<StreamId> id = driver_.GetStreamId(stream.device, stream.handle);
  if (!id.ok()) return Standing::kUnknown;
  if (*id != stream.id) {
    if (stream.ordered) Forget(stream);
    return Standing::kUnknown;
  }
  const absl::StatusOr<bool> capturing = IsCapturing(stream);
  if (!capturing.ok()) return Standing::kUnknown;
  return *capturing ? Standing::kCapturing : Standing::kRuns;
}

EventHandle StreamLedger::RecordEvent(Stream& stream, bool* retry) {
  // An event on another stream with the same handle would tell nothing of this one; one that is
  // recorded into a capture would end that when it is asked for.
  const Standing standing = Ask(stream);
  *retry = standing == Standing::kCapturing;
  if (standing != Standing::kRuns) return nullptr;
  EventHandle event = TakeEvent(stream.device);
  if (event == nullptr) return nullptr;
  if (const absl::Status recorded = driver_.RecordEvent(stream.device, event, stream.handle);
      !recorded.ok()) {
    *retry = absl::IsFailedPrecondition(recorded);
    SpareEvents(stream.device).push_back(event);
    return nullptr;
  }
  return event;
}

void StreamLedger::Forget(Stream& stream) {
  stream.ordered = false;
  if (stream.device != device_) return;
  by_handle_.erase(stream.handle);
  last_found_ = nullptr;
}

std::vector<EventHandle>& StreamLedger::SpareEvents(DeviceIndex device) {
  const size_t index = static_cast<size_t>(device);
  if (spare_events_.size() <= index) spare_events_.resize(index + 1);
  return spare_events_[index];
}

EventHandle StreamLedger::TakeEvent(DeviceIndex device) {
  std::vector<EventHandle>& spare = SpareEvents(device);
  if (spare.empty()) {
    absl::StatusOr<EventHandle> event = driver_.CreateEvent(device);
    return event.ok() ? *event : nullptr;
  }
  EventHandle event = spare.back();
  spare.pop_back();
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
  Stream& stream = *streams_[use.stream];
  if (const EventHandle event = RecordEvent(stream, &retry); event != nullptr) {
    queues_[use.stream].push_back({block, event, emitter_.clock().NowNs()});
    return true;
  }
  if (!retry) unprovable_.push_back({block, stream.device});
  return !retry;
}

void StreamLedger::Poll(OnFinished finished) {
  if (!postponed_.empty()) RecordPostponed(finished);
  for (const std::unique_ptr<Stream>& stream : streams_) {
    std::deque<PendingUse>& queue = queues_[stream->index];
    while (!queue.empty() && IsDone(*stream, queue.front().event)) {
      const PendingUse use = queue.front();
      queue.pop_front();
      SpareEvents(stream->device).push_back(use.event);
      FinishUse(use.block, finished);
    }
  }
}

bool StreamLedger::IsDone(const Stream& stream, EventHandle event) {
  const absl::StatusOr<bool> done = driver_.QueryEvent(stream.device, event);
  // A driver that cannot answer has not said that the stream is past it.
  return done.ok() && *done;
}

std::vector<StreamLedger::RecordedEvent> StreamLedger::EventsOfPending() const {
  std::vector<RecordedEvent> events;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    const std::deque<PendingUse>& queue = queues_[stream->index];
    if (!queue.empty()) events.push_back({stream->device, queue.back().event});
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
         (queue.front().epoch <= stream.idle_epoch || IsDone(stream, queue.front().event))) {
    stream.idle_epoch = std::max(stream.idle_epoch, queue.front().epoch);
    SpareEvents(stream.device).push_back(queue.front().event);
    queue.pop_front();
  }
}

StreamLedger::RecordedEvent StreamLedger::OldestEvent(absl::Span<Stream* const> streams) const {
  RecordedEvent oldest;
  uint64_t oldest_ns = std::numeric_limits<uint64_t>::max();
  const auto consider = [&](const Stream& stream, const auto& queue) {
    if (queue.empty() || queue.front().recorded_ns >= oldest_ns) return;
    oldest = {stream.device, queue.front().event};
    oldest_ns = queue.front().recorded_ns;
  };
  for (const std::unique_ptr<Stream>& stream : streams_) consider(*stream, queues_[stream->index]);
  for (const Stream* stream : streams) consider(*stream, closed_epochs_[stream->index]);
  return oldest;
}

StreamLedger::DeviceWait StreamLedger::BeginDeviceWait(DeviceIndex device, OnFinished finished) {
  // Events that could not be recorded before may be among what the wait is for.
  if (!postponed_.empty()) RecordPostponed(finished);
  DeviceWait wait;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    wait.epochs.push_back(stream->device == device ? stream->epoch++ : 0);
  }
  const auto others = std::partition(unprovable_.begin(), unprovable_.end(),
                                     [&](const Unprovable& use) { return use.device != device; });
  wait.unprovable.assign(others, unprovable_.end());
  unprovable_.erase(others, unprovable_.end());
  return wait;
}

std::vector<DeviceIndex> StreamLedger::PeersToWaitFor() const {
  std::vector<DeviceIndex> peers;
  for (const Unprovable& use : unprovable_) {
    const bool known = std::find(peers.begin(), peers.end(), use.device) != peers.end();
    if (use.device != device_ && !known) peers.push_back(use.device);
  }
  return peers;
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
  for (const Unprovable& use : wait.unprovable) FinishUse(use.block, finished);
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
