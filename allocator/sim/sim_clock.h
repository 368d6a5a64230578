// SimClock: the time of a simulated machine. The one place where time moves without anyone waiting.
//
// Virtual: stands still until Advance(). Real: runs with the process's clock, plus all that was
// skipped. Thread-safe; time never goes back.

#ifndef OFFCUT_ALLOCATOR_SIM_SIM_CLOCK_H_
#define OFFCUT_ALLOCATOR_SIM_SIM_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "allocator/base/clock.h"

namespace offcut::sim {

enum class ClockKind { kVirtual, kReal };

class SimClock {
 public:
  explicit SimClock(ClockKind kind) : kind_(kind) {}

  uint64_t NowNs() const {
    const uint64_t skipped_ns = skipped_ns_.load(std::memory_order_relaxed);
    return kind_ == ClockKind::kVirtual ? skipped_ns : Clock::Real().NowNs() + skipped_ns;
  }

  void Advance(uint64_t ns) { skipped_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // A host that waits for the device: skips to `time_ns` unless that is past.
  void WaitUntil(uint64_t time_ns) {
    const uint64_t now_ns = NowNs();
    if (time_ns <= now_ns) return;
    Advance(time_ns - now_ns);
    waited_ns_.fetch_add(time_ns - now_ns, std::memory_order_relaxed);
  }

  // What WaitUntil skipped in all: time that a real program would have spent waiting.
  uint64_t WaitedNs() const { return waited_ns_.load(std::memory_order_relaxed); }

  // Shows the same time. Only of a virtual clock, which must outlive it.
  Clock AsClock() const { return Clock(&skipped_ns_); }

 private:
  const ClockKind kind_;
  std::atomic<uint64_t> skipped_ns_{0};
  std::atomic<uint64_t> waited_ns_{0};
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_SIM_CLOCK_H_
