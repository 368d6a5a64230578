// Time as nanoseconds since the process's first look at the clock.
//
// The real clock reads the processor's invariant time stamp counter where there is one (about 10 ns
// instead of 20 for clock_gettime; measured, see bench/) and CLOCK_MONOTONIC elsewhere. A simulated
// world passes its own Clock, so tests never sleep. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_BASE_CLOCK_H_
#define OFFCUT_ALLOCATOR_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace offcut {

class Clock {
 public:
  // The process's real clock; calibrated against CLOCK_MONOTONIC on first use (about 2 ms).
  static const Clock& Real();

  // A clock that shows `*now_ns`, which must outlive it.
  explicit Clock(const std::atomic<uint64_t>* now_ns) : virtual_now_ns_(now_ns) {}

  uint64_t NowNs() const {
    if (virtual_now_ns_ != nullptr) return virtual_now_ns_->load(std::memory_order_relaxed);
#if defined(__x86_64__)
    if (tick_multiplier_ != 0) {
      const uint64_t ticks = __rdtsc() - tick_origin_;
      return static_cast<uint64_t>((static_cast<unsigned __int128>(ticks) * tick_multiplier_) >>
                                   kTickShift);
    }
#endif
    return MonotonicNs();
  }

  // Wall-clock time, in nanoseconds since the Unix epoch, at which NowNs() was 0. 0 for a virtual
  // clock.
  uint64_t EpochUnixNs() const { return epoch_unix_ns_; }

 private:
  static constexpr int kTickShift = 32;

  Clock();
  uint64_t MonotonicNs() const;

  const std::atomic<uint64_t>* virtual_now_ns_ = nullptr;
  uint64_t tick_origin_ = 0;
  uint64_t tick_multiplier_ = 0;  // nanoseconds per tick, times 2^kTickShift; 0: no usable counter
  uint64_t monotonic_origin_ns_ = 0;
  uint64_t epoch_unix_ns_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_BASE_CLOCK_H_
