#include "allocator/driver/faulty_driver.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace offcut {

void FaultyDriver::Inject(const Fault& fault) {
  absl::MutexLock lock(&mutex_);
  faults_.push_back(fault);
}

void FaultyDriver::ClearFaults() {
  absl::MutexLock lock(&mutex_);
  faults_.clear();
}

uint64_t FaultyDriver::CallCount(DriverCall call) const {
  absl::MutexLock lock(&mutex_);
  return call_counts_[static_cast<uint8_t>(call)];
}

uint64_t FaultyDriver::CallCount() const {
  absl::MutexLock lock(&mutex_);
  return std::accumulate(call_counts_.begin(), call_counts_.end(), uint64_t{0});
}

uint64_t FaultyDriver::FaultCount() const {
  absl::MutexLock lock(&mutex_);
  return fault_count_;
}

absl::Status FaultyDriver::Before(DriverCall call) {
  absl::MutexLock lock(&mutex_);
  const uint8_t number = static_cast<uint8_t>(call);
  ++call_counts_[number];
  int cu_result = CudaResult::kSuccess;
  for (Fault& fault : faults_) {
    if (fault.times == 0 || (fault.call.has_value() && *fault.call != call)) continue;
    if (fault.nth > 1) {
      --fault.nth;
      continue;
    }
    --fault.times;
    cu_result = fault.cu_result;
  }
  if (cu_result == CudaResult::kSuccess) return absl::OkStatus();
  ++fault_count_;
  return DriverError(cu_result, absl::StrCat(DriverCallName(number), ": injected fault"));
}

}  // namespace offcut
