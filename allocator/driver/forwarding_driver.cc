#include "allocator/driver/forwarding_driver.h"

#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

}  // namespace

template <typename Call>
auto ForwardingDriver::Forward(DriverCall name, Call call) -> decltype(call()) {
  OFFCUT_RETURN_IF_ERROR(Before(name));
  auto result = call();
  After(name, StatusOf(result));
  return result;
}

absl::Status ForwardingDriver::Initialize() {
  return Forward(DriverCall::kInitialize, [&] { return driver_->Initialize(); });
}

absl::StatusOr<int> ForwardingDriver::DeviceCount() {
  return Forward(DriverCall::kDeviceCount, [&] { return driver_->DeviceCount(); });
}

absl::StatusOr<DeviceProperties> ForwardingDriver::GetProperties(DeviceIndex device) {
  return Forward(DriverCall::kGetProperties, [&] { return driver_->GetProperties(device); });
}

absl::StatusOr<MemoryInfo> ForwardingDriver::GetMemoryInfo(DeviceIndex device) {
  return Forward(DriverCall::kGetMemoryInfo, [&] { return driver_->GetMemoryInfo(device); });
}

absl::Status ForwardingDriver::SynchronizeDevice(DeviceIndex device) {
  return Forward(DriverCall::kSynchronizeDevice,
                 [&] { return driver_->SynchronizeDevice(device); });
}

absl::StatusOr<DevicePtr> ForwardingDriver::ReserveAddress(DeviceIndex device, Bytes bytes,
                                                           Bytes alignment, DevicePtr hint) {
  return Forward(DriverCall::kReserveAddress,
                 [&] { return driver_->ReserveAddress(device, bytes, alignment, hint); });
}

absl::Status ForwardingDriver::FreeAddress(DevicePtr address, Bytes bytes) {
  return Forward(DriverCall::kFreeAddress, [&] { return driver_->FreeAddress(address, bytes); });
}

absl::StatusOr<PhysicalHandle> ForwardingDriver::CreateMemory(DeviceIndex device, Bytes bytes,
                                                              const MemoryFlags& flags) {
  return Forward(DriverCall::kCreateMemory,
                 [&] { return driver_->CreateMemory(device, bytes, flags); });
}

absl::Status ForwardingDriver::ReleaseMemory(PhysicalHandle handle) {
  return Forward(DriverCall::kReleaseMemory, [&] { return driver_->ReleaseMemory(handle); });
}

absl::Status ForwardingDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  return Forward(DriverCall::kMap, [&] { return driver_->Map(address, bytes, handle); });
}

absl::Status ForwardingDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  return Forward(DriverCall::kSetAccess,
                 [&] { return driver_->SetAccess(address, bytes, device); });
}

absl::Status ForwardingDriver::Unmap(DevicePtr address, Bytes bytes) {
  return Forward(DriverCall::kUnmap, [&] { return driver_->Unmap(address, bytes); });
}

absl::Status ForwardingDriver::WriteWord(DeviceIndex device, DevicePtr address, uint32_t word) {
  return Forward(DriverCall::kWriteWord, [&] { return driver_->WriteWord(device, address, word); });
}

absl::StatusOr<uint32_t> ForwardingDriver::ReadWord(DeviceIndex device, DevicePtr address) {
  return Forward(DriverCall::kReadWord, [&] { return driver_->ReadWord(device, address); });
}

absl::StatusOr<DevicePtr> ForwardingDriver::AllocateMemory(DeviceIndex device, Bytes bytes) {
  return Forward(DriverCall::kAllocateMemory,
                 [&] { return driver_->AllocateMemory(device, bytes); });
}

absl::Status ForwardingDriver::FreeMemory(DeviceIndex device, DevicePtr address) {
  return Forward(DriverCall::kFreeMemory, [&] { return driver_->FreeMemory(device, address); });
}

absl::StatusOr<DriverPool> ForwardingDriver::CreateDriverPool(DeviceIndex device,
                                                              const MemoryFlags& flags) {
  return Forward(DriverCall::kCreateDriverPool,
                 [&] { return driver_->CreateDriverPool(device, flags); });
}

absl::Status ForwardingDriver::DestroyDriverPool(DriverPool pool) {
  return Forward(DriverCall::kDestroyDriverPool, [&] { return driver_->DestroyDriverPool(pool); });
}

absl::Status ForwardingDriver::SetDriverPoolOptions(DriverPool pool,
                                                    const DriverPoolOptions& options) {
  return Forward(DriverCall::kSetDriverPoolOptions,
                 [&] { return driver_->SetDriverPoolOptions(pool, options); });
}

absl::StatusOr<DriverPoolUsage> ForwardingDriver::GetDriverPoolUsage(DriverPool pool) {
  return Forward(DriverCall::kGetDriverPoolUsage,
                 [&] { return driver_->GetDriverPoolUsage(pool); });
}

absl::StatusOr<Bytes> ForwardingDriver::GetDriverPoolReserved(DriverPool pool) {
  return Forward(DriverCall::kGetDriverPoolReserved,
                 [&] { return driver_->GetDriverPoolReserved(pool); });
}

absl::Status ForwardingDriver::TrimDriverPool(DriverPool pool, Bytes keep_bytes) {
  return Forward(DriverCall::kTrimDriverPool,
                 [&] { return driver_->TrimDriverPool(pool, keep_bytes); });
}

absl::Status ForwardingDriver::OpenDriverPoolTo(DriverPool pool, DeviceIndex peer) {
  return Forward(DriverCall::kOpenDriverPoolTo,
                 [&] { return driver_->OpenDriverPoolTo(pool, peer); });
}

absl::StatusOr<DevicePtr> ForwardingDriver::AllocateAsync(DriverPool pool, Bytes bytes,
                                                          DeviceIndex device, StreamHandle stream) {
  return Forward(DriverCall::kAllocateAsync,
                 [&] { return driver_->AllocateAsync(pool, bytes, device, stream); });
}

absl::Status ForwardingDriver::FreeAsync(DevicePtr address, DeviceIndex device,
                                         StreamHandle stream) {
  return Forward(DriverCall::kFreeAsync,
                 [&] { return driver_->FreeAsync(address, device, stream); });
}

absl::StatusOr<StreamId> ForwardingDriver::GetStreamId(DeviceIndex device, StreamHandle stream) {
  return Forward(DriverCall::kGetStreamId, [&] { return driver_->GetStreamId(device, stream); });
}

absl::StatusOr<bool> ForwardingDriver::IsCapturing(DeviceIndex device, StreamHandle stream) {
  return Forward(DriverCall::kIsCapturing, [&] { return driver_->IsCapturing(device, stream); });
}

absl::StatusOr<uint64_t> ForwardingDriver::GetCaptureId(DeviceIndex device, StreamHandle stream) {
  return Forward(DriverCall::kGetCaptureId, [&] { return driver_->GetCaptureId(device, stream); });
}

absl::StatusOr<EventHandle> ForwardingDriver::CreateEvent(DeviceIndex device) {
  return Forward(DriverCall::kCreateEvent, [&] { return driver_->CreateEvent(device); });
}

absl::Status ForwardingDriver::DestroyEvent(DeviceIndex device, EventHandle event) {
  return Forward(DriverCall::kDestroyEvent, [&] { return driver_->DestroyEvent(device, event); });
}

absl::Status ForwardingDriver::RecordEvent(DeviceIndex device, EventHandle event,
                                           StreamHandle stream) {
  return Forward(DriverCall::kRecordEvent,
                 [&] { return driver_->RecordEvent(device, event, stream); });
}

absl::Status ForwardingDriver::WaitForEvent(DeviceIndex device, StreamHandle stream,
                                            EventHandle event) {
  return Forward(DriverCall::kWaitForEvent,
                 [&] { return driver_->WaitForEvent(device, stream, event); });
}

absl::Status ForwardingDriver::RecordDeviceEvent(DeviceIndex device, EventHandle event) {
  return Forward(DriverCall::kRecordDeviceEvent,
                 [&] { return driver_->RecordDeviceEvent(device, event); });
}

absl::StatusOr<bool> ForwardingDriver::QueryEvent(DeviceIndex device, EventHandle event) {
  return Forward(DriverCall::kQueryEvent, [&] { return driver_->QueryEvent(device, event); });
}

absl::Status ForwardingDriver::SynchronizeEvent(DeviceIndex device, EventHandle event) {
  return Forward(DriverCall::kSynchronizeEvent,
                 [&] { return driver_->SynchronizeEvent(device, event); });
}

absl::StatusOr<bool> ForwardingDriver::AwaitEvent(DeviceIndex device, EventHandle event,
                                                  uint64_t max_ns) {
  return Forward(DriverCall::kAwaitEvent,
                 [&] { return driver_->AwaitEvent(device, event, max_ns); });
}

}  // namespace offcut
