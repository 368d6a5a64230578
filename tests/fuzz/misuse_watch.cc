#include "tests/fuzz/misuse_watch.h"

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_results.h"

namespace offcut::fuzz {
namespace {

bool IsMisuse(DriverCall call, const absl::Status& status) {
  if (status.ok()) return false;
  switch (call) {
    case DriverCall::kCreateMemory:
      // Flags that a device claims and refuses are found out by trying.
      return !absl::IsResourceExhausted(status) &&
             DriverErrorCode(status) != CudaResult::kNotPermitted;
    case DriverCall::kReserveAddress:
    case DriverCall::kAllocateMemory:
    case DriverCall::kAllocateAsync:
      return !absl::IsResourceExhausted(status);
    case DriverCall::kGetStreamId:
    case DriverCall::kIsCapturing:
    case DriverCall::kRecordEvent:
      return DriverErrorCode(status) != CudaResult::kInvalidHandle;
    default:
      return true;
  }
}

}  // namespace

absl::Status MisuseWatch::Verdict() const {
  absl::MutexLock lock(&mutex_);
  return first_;
}

void MisuseWatch::After(DriverCall call, const absl::Status& status) {
  if (!IsMisuse(call, status)) return;
  absl::MutexLock lock(&mutex_);
  if (first_.ok()) first_ = absl::InternalError(absl::StrCat("misuse: ", status.message()));
}

}  // namespace offcut::fuzz
