#include "allocator/driver/faulty_driver.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"

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

absl::Status FaultyDriver::Enter(DriverCall call) {
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

absl::Status FaultyDriver::Initialize() {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kInitialize));
  return driver_->Initialize();
}

absl::StatusOr<int> FaultyDriver::DeviceCount() {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kDeviceCount));
  return driver_->DeviceCount();
}

absl::StatusOr<DeviceProperties> FaultyDriver::GetProperties(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetProperties));
  return driver_->GetProperties(device);
}

absl::StatusOr<MemoryInfo> FaultyDriver::GetMemoryInfo(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetMemoryInfo));
  return driver_->GetMemoryInfo(device);
}

absl::StatusOr<DeviceIndex> FaultyDriver::CurrentDevice() {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCurrentDevice));
  return driver_->CurrentDevice();
}

absl::Status FaultyDriver::SynchronizeDevice(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSynchronizeDevice));
  return driver_->SynchronizeDevice(device);
}

absl::StatusOr<DevicePtr> FaultyDriver::ReserveAddress(DeviceIndex device, Bytes bytes,
                                                       Bytes alignment, DevicePtr hint) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kReserveAddress));
  return driver_->ReserveAddress(device, bytes, alignment, hint);
}

absl::Status FaultyDriver::FreeAddress(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kFreeAddress));
  return driver_->FreeAddress(address, bytes);
}

absl::StatusOr<PhysicalHandle> FaultyDriver::CreateMemory(DeviceIndex device, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCreateMemory));
  return driver_->CreateMemory(device, bytes);
}

absl::Status FaultyDriver::ReleaseMemory(PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kReleaseMemory));
  return driver_->ReleaseMemory(handle);
}

absl::Status FaultyDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kMap));
  return driver_->Map(address, bytes, handle);
}

absl::Status FaultyDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSetAccess));
  return driver_->SetAccess(address, bytes, device);
}

absl::Status FaultyDriver::Unmap(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kUnmap));
  return driver_->Unmap(address, bytes);
}

absl::StatusOr<StreamId> FaultyDriver::GetStreamId(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetStreamId));
  return driver_->GetStreamId(device, stream);
}

absl::StatusOr<bool> FaultyDriver::IsCapturing(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kIsCapturing));
  return driver_->IsCapturing(device, stream);
}

absl::StatusOr<EventHandle> FaultyDriver::CreateEvent(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCreateEvent));
  return driver_->CreateEvent(device);
}

absl::Status FaultyDriver::DestroyEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kDestroyEvent));
  return driver_->DestroyEvent(device, event);
}

absl::Status FaultyDriver::RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kRecordEvent));
  return driver_->RecordEvent(device, event, stream);
}

absl::StatusOr<bool> FaultyDriver::QueryEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kQueryEvent));
  return driver_->QueryEvent(device, event);
}

absl::Status FaultyDriver::SynchronizeEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSynchronizeEvent));
  return driver_->SynchronizeEvent(device, event);
}

}  // namespace offcut
