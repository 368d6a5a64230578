// DeviceMutex: the lock of one device's allocator; DeviceMutexLock: holds it for a scope.
//
// Made for a lock that is held for some tens of nanoseconds by each allocation and each free, and
// now and then for milliseconds by a slow path. Giving it back is a plain store, not an atomic
// exchange: nobody is woken, and whoever found the lock taken looks again by itself, at first at
// once, then after naps that grow up to 0.1 ms. That is 3 of 28 ns for an allocation and its free,
// beside absl::Mutex (bench/micro), and under contention one thread works on in its own cache lines
// instead of handing them around. The price: not fair, and a thread that waits out a slow path may
// learn of its end by one nap too late.
//
// Not recursive. Thread-safe; no thread may end while it holds one.

#ifndef OFFCUT_ALLOCATOR_CORE_DEVICE_MUTEX_H_
#define OFFCUT_ALLOCATOR_CORE_DEVICE_MUTEX_H_

#include <atomic>

#include "absl/base/optimization.h"
#include "absl/base/thread_annotations.h"

namespace offcut {

class ABSL_LOCKABLE DeviceMutex {
 public:
  DeviceMutex() = default;
  DeviceMutex(const DeviceMutex&) = delete;
  DeviceMutex& operator=(const DeviceMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (ABSL_PREDICT_FALSE(taken_.exchange(true, std::memory_order_acquire))) LockSlow();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { taken_.store(false, std::memory_order_release); }

 private:
  void LockSlow();

  // Alone in its line: those who wait must not slow the holder's own work down.
  alignas(ABSL_CACHELINE_SIZE) std::atomic<bool> taken_{false};
  [[maybe_unused]] char rest_of_line_[ABSL_CACHELINE_SIZE - sizeof(taken_)] = {};
};

class ABSL_SCOPED_LOCKABLE DeviceMutexLock {
 public:
  explicit DeviceMutexLock(DeviceMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~DeviceMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  DeviceMutexLock(const DeviceMutexLock&) = delete;
  DeviceMutexLock& operator=(const DeviceMutexLock&) = delete;

 private:
  DeviceMutex& mutex_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_DEVICE_MUTEX_H_
