// History: what happened to memory of late, as torch.cuda.memory._record_memory_history asks for
// it.
//
// Owns, for each device, the last trace entries and the contexts (stacks) of live blocks and of
// segments; the annotations; who else follows the trace (trackers). Told of changes by offcut.h's
// observer, which is set only while somebody wants to know: else an allocation pays one load. One
// per process, as the observer is; never destroyed. Thread-safe.
//
// A context is gathered by its thread before a call into the library, never under a lock: gathering
// takes the GIL. What that call changes, on that thread, bears it.

#ifndef OFFCUT_PYTORCH_PLUGIN_SHIM_HISTORY_H_
#define OFFCUT_PYTORCH_PLUGIN_SHIM_HISTORY_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/offcut.h"

namespace offcut::torch_shim {

namespace cda = c10::CachingDeviceAllocator;
using Context = std::shared_ptr<c10::GatheredContext>;

class History {
 public:
  static History& Get();

  // --- The hot path ---
  // Whether a context is to be gathered for events of this level.
  static bool Wants(cda::RecordContext level) {
    return static_cast<int>(level) <= level_.load(std::memory_order_relaxed);
  }
  // nullptr where none is wanted, or gathering fails. Takes the GIL: not under any lock.
  static Context Gather(cda::RecordContext level) noexcept;

  // --- Switching ---
  // As torch.cuda.memory._record_memory_history. What was kept is dropped if `clear`, or if it is
  // switched off: then the contexts of live blocks too.
  void Record(bool enabled, cda::CreateContextFn recorder, size_t max_entries,
              cda::RecordContext when, bool clear, const std::vector<std::string>& skip_actions);
  bool recording() const { return recording_.load(); }
  // Called for each trace entry, whether or not it is kept, under the device's lock.
  void AddTracker(cda::AllocatorTraceTracker tracker);

  // --- Annotations ---
  void Annotate(const std::vector<std::pair<std::string, std::string>>& metadata);

  // --- Reading ---
  // What was kept of one device, contexts by address.
  struct Device {
    std::deque<cda::TraceEntry> entries;  // the oldest first
    std::unordered_map<uint64_t, Context> blocks;
    std::unordered_map<uint64_t, Context> segments;
  };
  Device CopyOf(int device, bool with_entries);
  std::vector<cda::AnnotationEntry> Annotations();
  // From the times of entries and annotations.
  static std::function<int64_t(c10::approx_time_t)> ToUnixMicroseconds();
  // A snapshot of a device with `active_bytes` was taken.
  void AddSnapshotEntry(int device, c10::MempoolId_t pool, size_t active_bytes);

 private:
  using Trackers = std::vector<cda::AllocatorTraceTracker>;

  void OnChange(const offcut_change& change);
  // `dropped`: a context that is to outlive the lock.
  cda::TraceEntry EntryOf(const offcut_change& change, Device& device, Context& dropped);
  // Keeps the entry if it is to be kept. Returns the trackers, to be called without mutex_.
  std::shared_ptr<const Trackers> Add(Device& device, const cda::TraceEntry& entry);
  // Whether the library has to tell us of changes. Requires: switching_mutex_.
  void Observe(bool wanted);

  inline static std::atomic<int> level_{static_cast<int>(cda::RecordContext::NEVER)};
  inline static std::atomic<cda::CreateContextFn> recorder_{nullptr};
  std::atomic<bool> recording_{false};

  std::mutex switching_mutex_;  // taken before a device's lock
  bool observing_ = false;

  mutable std::mutex mutex_;  // taken under a device's lock, and no other within
  size_t max_entries_ = 1;
  unsigned skipped_ = 0;  // a bit for each action
  std::map<int, Device> devices_;
  std::deque<cda::AnnotationEntry> annotations_;
  std::shared_ptr<const Trackers> trackers_ = std::make_shared<Trackers>();
};

// While it lives, what this thread changes bears the context.
class ContextScope {
 public:
  explicit ContextScope(Context context);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

 private:
  const Context context_;
  const Context* const outer_;
};

// Calls `act`, with a context of the level where one is wanted.
template <typename Act>
auto WithContext(cda::RecordContext level, Act act) {
  if (C10_LIKELY(!History::Wants(level))) return act();
  const ContextScope scope(History::Gather(level));
  return act();
}

}  // namespace offcut::torch_shim

#endif  // OFFCUT_PYTORCH_PLUGIN_SHIM_HISTORY_H_
