#include "pytorch_plugin/shim/history.h"

#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <optional>
#include <stack>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using cda::RecordContext;
using cda::TraceEntry;

// The context of the call that this thread makes now. A plain pointer: threads free tensors while
// they end, after what is destroyed with them.
thread_local const Context* current_context = nullptr;

// What native says of entries outside compiled regions.
constexpr char kNoCompileContext[] = "N/A";
thread_local std::stack<std::string> compile_contexts;
thread_local std::string user_metadata;

TraceEntry::Action ActionOf(offcut_action action) {
  switch (action) {
    case OFFCUT_BLOCK_ALLOCATED:
      return TraceEntry::ALLOC;
    case OFFCUT_FREE_REQUESTED:
      return TraceEntry::FREE_REQUESTED;
    case OFFCUT_FREE_COMPLETED:
      return TraceEntry::FREE_COMPLETED;
    case OFFCUT_SEGMENT_MADE:
      return TraceEntry::SEGMENT_ALLOC;
    case OFFCUT_SEGMENT_RELEASED:
      return TraceEntry::SEGMENT_FREE;
    case OFFCUT_RANGE_MAPPED:
      return TraceEntry::SEGMENT_MAP;
    case OFFCUT_RANGE_UNMAPPED:
      return TraceEntry::SEGMENT_UNMAP;
    case OFFCUT_REQUEST_FAILED:
      return TraceEntry::OOM;
  }
  TORCH_INTERNAL_ASSERT(false, "Offcut told of a change of an unknown kind: ", int{action});
}

unsigned Bit(TraceEntry::Action action) { return 1u << static_cast<unsigned>(action); }

bool BeginsSomething(TraceEntry::Action action) {
  return action == TraceEntry::ALLOC || action == TraceEntry::SEGMENT_ALLOC ||
         action == TraceEntry::SEGMENT_MAP;
}

bool EndsSomething(TraceEntry::Action action) {
  return action == TraceEntry::FREE_COMPLETED || action == TraceEntry::SEGMENT_FREE ||
         action == TraceEntry::SEGMENT_UNMAP;
}

bool IsOfBlock(TraceEntry::Action action) {
  return action == TraceEntry::ALLOC || action == TraceEntry::FREE_REQUESTED ||
         action == TraceEntry::FREE_COMPLETED;
}

TraceEntry MakeEntry(TraceEntry::Action action, int device, size_t address, size_t size,
                     void* stream, c10::MempoolId_t pool, Context context) {
  return TraceEntry(action, static_cast<c10::DeviceIndex>(device), address, size, stream, pool,
                    c10::getApproximateTime(), std::move(context),
                    compile_contexts.empty() ? kNoCompileContext : compile_contexts.top(),
                    user_metadata);
}

// Calibrated once: it measures 1,001 times.
c10::ApproximateClockToUnixTimeConverter& ClockConverter() {
  static auto* const converter = new c10::ApproximateClockToUnixTimeConverter();
  return *converter;
}

}  // namespace

ContextScope::ContextScope(Context context)
    : context_(std::move(context)), outer_(std::exchange(current_context, &context_)) {}
ContextScope::~ContextScope() { current_context = outer_; }

History& History::Get() {
  static auto* const history = new History();
  return *history;
}

Context History::Gather(RecordContext level) noexcept {
  const cda::CreateContextFn recorder = recorder_.load();
  if (!Wants(level) || recorder == nullptr) return nullptr;
  try {
    return recorder();
  } catch (...) {  // a free must not fail for want of a stack
    return nullptr;
  }
}

// --- Switching -----------------------------------------------------------------------------------

void History::Record(bool enabled, cda::CreateContextFn recorder, size_t max_entries,
                     RecordContext when, bool clear, const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(when == RecordContext::NEVER || recorder != nullptr,
              "recordHistory: contexts are to be recorded, and no function gathers them");
  unsigned skipped = 0;
  for (const std::string& action : skip_actions) skipped |= Bit(cda::parseTraceEntryAction(action));
  if (enabled) ClockConverter();

  // Contexts hold references to Python objects: they go without a lock.
  std::map<int, Device> dropped;
  std::deque<cda::AnnotationEntry> dropped_annotations;
  const std::lock_guard<std::mutex> switching(switching_mutex_);
  level_ = static_cast<int>(enabled ? when : RecordContext::NEVER);
  recorder_ = enabled ? recorder : nullptr;
  recording_ = enabled;
  bool tracked = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    max_entries_ = std::max<size_t>(1, max_entries);
    skipped_ = skipped;
    dropped_annotations.swap(annotations_);
    tracked = !trackers_->empty();
    if (!enabled) {
      dropped.swap(devices_);
    } else if (clear) {
      for (auto& [device, kept] : devices_) dropped[device].entries.swap(kept.entries);
    }
  }
  Observe(enabled || tracked);
}

void History::AddTracker(cda::AllocatorTraceTracker tracker) {
  const std::lock_guard<std::mutex> switching(switching_mutex_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto trackers = std::make_shared<Trackers>(*trackers_);
    trackers->push_back(std::move(tracker));
    trackers_ = std::move(trackers);
  }
  Observe(true);
}

void History::Observe(bool wanted) {
  if (wanted == observing_) return;
  observing_ = wanted;
  if (!wanted) {
    offcut_set_observer(nullptr, nullptr);
    return;
  }
  offcut_set_observer(
      [](void* history, const offcut_change* change) {
        static_cast<History*>(history)->OnChange(*change);
      },
      this);
}

// --- Changes -------------------------------------------------------------------------------------

void History::OnChange(const offcut_change& change) {
  Context dropped;  // the last of a block or segment that is gone; outlives the lock
  std::optional<TraceEntry> entry;
  std::shared_ptr<const Trackers> trackers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Device& device = devices_[change.device];
    entry.emplace(EntryOf(change, device, dropped));
    trackers = Add(device, *entry);
  }
  for (const auto& track : *trackers) track(*entry);
}

TraceEntry History::EntryOf(const offcut_change& change, Device& device, Context& dropped) {
  const TraceEntry::Action action = ActionOf(change.action);
  auto& contexts = IsOfBlock(action) ? device.blocks : device.segments;
  Context context = current_context != nullptr ? *current_context : nullptr;
  if (BeginsSomething(action)) {
    if (context != nullptr) contexts[change.address] = context;
  } else if (action != TraceEntry::OOM) {
    if (const auto known = contexts.find(change.address); known != contexts.end()) {
      // As native: where nobody asks for the stacks of frees, they bear those of allocations.
      if (context == nullptr) context = known->second;
      if (EndsSomething(action)) {
        dropped = std::move(known->second);
        contexts.erase(known);
      }
    }
  }
  if (!Wants(RecordContext::ALLOC)) context = nullptr;
  const bool failed = action == TraceEntry::OOM;
  return MakeEntry(action, change.device, failed ? change.device_free : change.address,
                   IsOfBlock(action) ? change.requested : change.size, change.stream,
                   {change.pool.first, change.pool.second}, std::move(context));
}

std::shared_ptr<const History::Trackers> History::Add(Device& device, const TraceEntry& entry) {
  if (recording_ && (skipped_ & Bit(entry.action_)) == 0) {
    while (device.entries.size() >= max_entries_) device.entries.pop_front();
    device.entries.push_back(entry);
  }
  return trackers_;
}

void History::AddSnapshotEntry(int device, c10::MempoolId_t pool, size_t active_bytes) {
  const TraceEntry entry = MakeEntry(TraceEntry::SNAPSHOT, /*device=*/0, /*address=*/0,
                                     active_bytes, nullptr, pool, nullptr);
  std::shared_ptr<const Trackers> trackers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    trackers = Add(devices_[device], entry);
  }
  for (const auto& track : *trackers) track(entry);
}

void History::Annotate(const std::vector<std::pair<std::string, std::string>>& metadata) {
  if (!recording()) return;
  cda::AnnotationEntry entry(c10::cuda::current_device(), c10::getApproximateTime());
  for (const auto& [name, value] : metadata) entry.recordUserMetadata(name, value);
  const std::lock_guard<std::mutex> lock(mutex_);
  while (annotations_.size() >= max_entries_) annotations_.pop_front();
  annotations_.push_back(std::move(entry));
}

// --- Reading -------------------------------------------------------------------------------------

History::Device History::CopyOf(int device, bool with_entries) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = devices_.find(device);
  if (found == devices_.end()) return {};
  Device copy = {.blocks = found->second.blocks, .segments = found->second.segments};
  if (with_entries) copy.entries = found->second.entries;
  return copy;
}

std::vector<cda::AnnotationEntry> History::Annotations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {annotations_.begin(), annotations_.end()};
}

std::function<int64_t(c10::approx_time_t)> History::ToUnixMicroseconds() {
  const auto to_ns = ClockConverter().makeConverter();
  return [to_ns](c10::approx_time_t time) { return to_ns(time) / 1000; };
}

// --- TorchAllocator's part -----------------------------------------------------------------------

bool TorchAllocator::isHistoryEnabled() { return History::Get().recording(); }

void TorchAllocator::recordHistory(bool enabled, cca::CreateContextFn recorder, size_t max_entries,
                                   cca::RecordContext when, bool clear,
                                   const std::vector<std::string>& skip_actions) {
  History::Get().Record(enabled, recorder, max_entries, when, clear, skip_actions);
}

void TorchAllocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  History::Get().Annotate(metadata);
}

void TorchAllocator::attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) {
  History::Get().AddTracker(std::move(tracker));
}

void TorchAllocator::pushCompileContext(std::string& name) { compile_contexts.push(name); }

void TorchAllocator::popCompileContext() {
  if (!compile_contexts.empty()) compile_contexts.pop();
}

void TorchAllocator::setUserMetadata(const std::string& metadata) { user_metadata = metadata; }

std::string TorchAllocator::getUserMetadata() { return user_metadata; }

}  // namespace offcut::torch_shim
