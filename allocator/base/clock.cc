#include "allocator/base/clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace offcut {
namespace {

uint64_t ReadClockNs(clockid_t id) {
  timespec now;
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

#if defined(__x86_64__)
// Only an invariant counter runs at one rate through sleep states and frequency changes (Intel SDM
// volume 3, "Invariant TSC": CPUID 80000007H, EDX bit 8).
bool HasInvariantTickCounter() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 8)) != 0;
}
#endif

}  // namespace

const Clock& Clock::Real() {
  static const Clock* const clock = new Clock();
  return *clock;
}

Clock::Clock() {
  monotonic_origin_ns_ = ReadClockNs(CLOCK_MONOTONIC);
  epoch_unix_ns_ = ReadClockNs(CLOCK_REALTIME);
#if defined(__x86_64__)
  tick_origin_ = __rdtsc();
  if (!HasInvariantTickCounter()) return;
  // 2 ms against clock_gettime's resolution of 1 ns and a jitter below 1 us: an error under 0.1 %,
  // which orders and spaces events well enough; absolute time comes from the epoch.
  constexpr uint64_t kCalibrationNs = 2'000'000;
  uint64_t now_ns = monotonic_origin_ns_;
  while (now_ns - monotonic_origin_ns_ < kCalibrationNs) now_ns = ReadClockNs(CLOCK_MONOTONIC);
  const uint64_t ticks = __rdtsc() - tick_origin_;
  if (ticks == 0) return;
  tick_multiplier_ = static_cast<uint64_t>(
      (static_cast<unsigned __int128>(now_ns - monotonic_origin_ns_) << kTickShift) / ticks);
#endif
}

uint64_t Clock::MonotonicNs() const { return ReadClockNs(CLOCK_MONOTONIC) - monotonic_origin_ns_; }

}  // namespace offcut
