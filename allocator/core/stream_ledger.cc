#include "allocator/core/stream_ledger.h"

#include <algorithm>
#include <utility>

#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"

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
}

absl::StatusOr<const StreamLedger::Stream*> StreamLedger::Find(StreamHandle handle) {
  if (handle == kLegacyStream) handle = nullptr;
  if (const auto it = by_handle_.find(handle); it != by_handle_.end()) return it->second;
  OFFCUT_ASSIGN_OR_RETURN(const StreamId id, driver_.GetStreamId(device_, handle));
  if (const auto it = by_id_.find(id); it != by_id_.end()) return it->second;
  streams_.push_back(std::make_unique<Stream>(
      Stream{.handle = handle, .id = id, .index = static_cast<uint32_t>(streams_.size())}));
  const Stream* stream = streams_.back().get();
  queues_.emplace_back();
  by_id_.emplace(id, stream);
  if (handle != kPerThreadStream) by_handle_.emplace(handle, stream);
  emitter_.Emit({.address = id,
                 .bytes = reinterpret_cast<uint64_t>(handle),
                 .extra = stream->index,
                 .kind = EventKind::kStreamSeen});
  return stream;
}

absl::StatusOr<bool> StreamLedger::IsCapturing(const Stream& stream) const {
  if (stream.handle == nullptr) return false;
  return driver_.IsCapturing(device_, stream.handle);
}

bool StreamLedger::AddUse(Block& block, const Stream& stream) {
  if (block.uses == nullptr) block.uses = new StreamUses();
  std::vector<uint32_t>& streams = block.uses->streams;
  if (std::find(streams.begin(), streams.end(), stream.index) != streams.end()) return false;
  streams.push_back(stream.index);
  return true;
}

void StreamLedger::Pend(Block* block) {
  ++pending_blocks_;
  block->uses->unfinished = static_cast<uint32_t>(block->uses->streams.size());
  for (uint32_t index : block->uses->streams) {
    bool retry = false;
    if (EventHandle event = RecordEvent(*streams_[index], &retry); event != nullptr) {
      queues_[index].push_back({block, event});
    } else if (retry) {
      postponed_.push_back({block, index});
    } else {
      unprovable_.push_back(block);
    }
  }
}

EventHandle StreamLedger::RecordEvent(const Stream& stream, bool* retry) {
  const absl::StatusOr<bool> capturing = IsCapturing(stream);
  if (capturing.ok() && *capturing) {
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

EventHandle StreamLedger::TakeEvent() {
  if (spare_events_.empty()) {
    absl::StatusOr<EventHandle> event = driver_.CreateEvent(device_);
    return event.ok() ? *event : nullptr;
  }
  EventHandle event = spare_events_.back();
  spare_events_.pop_back();
  return event;
}

void StreamLedger::RecordPostponed() {
  std::vector<Postponed> still;
  for (const Postponed& use : std::exchange(postponed_, {})) {
    bool retry = false;
    if (EventHandle event = RecordEvent(*streams_[use.stream], &retry); event != nullptr) {
      queues_[use.stream].push_back({use.block, event});
    } else if (retry) {
      still.push_back(use);
    } else {
      unprovable_.push_back(use.block);
    }
  }
  postponed_ = std::move(still);
}

void StreamLedger::Poll(OnFinished finished) {
  if (!postponed_.empty()) RecordPostponed();
  for (std::deque<PendingUse>& queue : queues_) {
    while (!queue.empty()) {
      const PendingUse use = queue.front();
      const absl::StatusOr<bool> done = driver_.QueryEvent(device_, use.event);
      // A driver that cannot answer has not said that the stream is past the free.
      if (!done.ok() || !*done) break;
      queue.pop_front();
      spare_events_.push_back(use.event);
      FinishUse(use.block, finished);
    }
  }
}

void StreamLedger::Wait(OnFinished finished) {
  if (!postponed_.empty()) RecordPostponed();
  for (std::deque<PendingUse>& queue : queues_) {
    if (queue.empty()) continue;
    const EventHandle last = queue.back().event;
    TimedCall(emitter_, DriverCall::kSynchronizeEvent, 0, [&] {
      return driver_.SynchronizeEvent(device_, last);
    }).IgnoreError();  // Poll finds out what is done.
  }
  Poll(finished);
}

void StreamLedger::DeviceIsIdle(OnFinished finished) {
  for (Block* block : std::exchange(unprovable_, {})) FinishUse(block, finished);
  Poll(finished);
}

void StreamLedger::FinishUse(Block* block, OnFinished finished) {
  if (--block->uses->unfinished > 0) return;
  --pending_blocks_;
  finished(block);
}

}  // namespace offcut
