// MisuseWatch: notes what the simulated driver, stricter than hardware, holds against its caller.
//
// Sits between the faults that a program injects and the simulation, so an error that it sees is
// the caller's own doing. Memory that is out is no misuse, nor is a stream that the program
// destroyed. Thread-safe.

#ifndef OFFCUT_TESTS_FUZZ_MISUSE_WATCH_H_
#define OFFCUT_TESTS_FUZZ_MISUSE_WATCH_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "allocator/driver/forwarding_driver.h"

namespace offcut::fuzz {

class MisuseWatch final : public ForwardingDriver {
 public:
  explicit MisuseWatch(Driver* driver) : ForwardingDriver(driver) {}

  // OK, or Internal with the first misuse.
  absl::Status Verdict() const;

 private:
  void After(DriverCall call, const absl::Status& status) override;

  mutable absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_MISUSE_WATCH_H_
