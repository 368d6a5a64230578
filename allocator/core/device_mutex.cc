#include "allocator/core/device_mutex.h"

#include <time.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace offcut {
namespace {

// About as long as a few allocations: a thread that takes longer is in a slow path, or was
// descheduled with the lock in its hand.
constexpr int kLooks = 40;
constexpr long kNapMinNs = 2'000;
constexpr long kNapMaxNs = 100'000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void DeviceMutex::LockSlow() {
  for (long nap_ns = kNapMinNs;; nap_ns = std::min(2 * nap_ns, kNapMaxNs)) {
    for (int look = 0; look < kLooks; ++look) {
      if (!taken_.load(std::memory_order_relaxed) &&
          !taken_.exchange(true, std::memory_order_acquire)) {
        return;
      }
      Pause();
    }
    const timespec nap = {.tv_sec = 0, .tv_nsec = nap_ns};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace offcut
