// FaultyDriver: forwards every call to another Driver, except those that it is told to fail. For
// tests that ask what happens when the n-th driver call fails, for every n.
//
// A call that it fails never reaches the other driver. Thread-safe; the other driver must outlive
// it.

#ifndef OFFCUT_ALLOCATOR_DRIVER_FAULTY_DRIVER_H_
#define OFFCUT_ALLOCATOR_DRIVER_FAULTY_DRIVER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/forwarding_driver.h"

namespace offcut {

class FaultyDriver final : public ForwardingDriver {
 public:
  struct Fault {
    std::optional<DriverCall> call;  // which calls count; none: all
    uint64_t nth = 1;                // fails the n-th of them from now on, counted from 1
    uint64_t times = 1;              // and those right after it
    int cu_result = CudaResult::kOutOfMemory;
  };

  explicit FaultyDriver(Driver* driver) : ForwardingDriver(driver) {}

  // In addition to earlier ones.
  void Inject(const Fault& fault);
  void ClearFaults();

  // Calls made, those that were failed too.
  uint64_t CallCount(DriverCall call) const;
  uint64_t CallCount() const;   // of all
  uint64_t FaultCount() const;  // how many were failed

 private:
  // Counts the call; the error that it is to fail with.
  absl::Status Before(DriverCall call) override;

  mutable absl::Mutex mutex_;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);  // `nth` and `times` are what is left
  std::array<uint64_t, 256> call_counts_ ABSL_GUARDED_BY(mutex_) = {};
  uint64_t fault_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_DRIVER_FAULTY_DRIVER_H_
