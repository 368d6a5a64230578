// ForwardingDriver: hands every call to another Driver, between two hooks. The base of drivers that
// change or watch some calls and leave the others as they are.
//
// As thread-safe as the hooks; the other driver must outlive it.

#ifndef OFFCUT_ALLOCATOR_DRIVER_FORWARDING_DRIVER_H_
#define OFFCUT_ALLOCATOR_DRIVER_FORWARDING_DRIVER_H_

#include "allocator/driver/driver.h"

namespace offcut {

class ForwardingDriver : public Driver {
 public:
  explicit ForwardingDriver(Driver* driver) : driver_(driver) {}

  absl::Status Initialize() override;
  absl::StatusOr<int> DeviceCount() override;
  absl::StatusOr<DeviceProperties> GetProperties(DeviceIndex device) override;
  absl::StatusOr<MemoryInfo> GetMemoryInfo(DeviceIndex device) override;
  absl::Status SynchronizeDevice(DeviceIndex device) override;

  absl::StatusOr<DevicePtr> ReserveAddress(DeviceIndex device, Bytes bytes, Bytes alignment,
                                           DevicePtr hint) override;
  absl::Status FreeAddress(DevicePtr address, Bytes bytes) override;
  absl::StatusOr<PhysicalHandle> CreateMemory(DeviceIndex device, Bytes bytes,
                                              const MemoryFlags& flags) override;
  absl::Status ReleaseMemory(PhysicalHandle handle) override;
  absl::Status Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) override;
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) override;
  absl::Status Unmap(DevicePtr address, Bytes bytes) override;
  absl::Status WriteWord(DeviceIndex device, DevicePtr address, uint32_t word) override;
  absl::StatusOr<uint32_t> ReadWord(DeviceIndex device, DevicePtr address) override;

  absl::StatusOr<DevicePtr> AllocateMemory(DeviceIndex device, Bytes bytes) override;
  absl::Status FreeMemory(DeviceIndex device, DevicePtr address) override;

  absl::StatusOr<DriverPool> CreateDriverPool(DeviceIndex device,
                                              const MemoryFlags& flags) override;
  absl::Status DestroyDriverPool(DriverPool pool) override;
  absl::Status SetDriverPoolOptions(DriverPool pool, const DriverPoolOptions& options) override;
  absl::StatusOr<DriverPoolUsage> GetDriverPoolUsage(DriverPool pool) override;
  absl::StatusOr<Bytes> GetDriverPoolReserved(DriverPool pool) override;
  absl::Status TrimDriverPool(DriverPool pool, Bytes keep_bytes) override;
  absl::Status OpenDriverPoolTo(DriverPool pool, DeviceIndex peer) override;
  absl::StatusOr<DevicePtr> AllocateAsync(DriverPool pool, Bytes bytes, DeviceIndex device,
                                          StreamHandle stream) override;
  absl::Status FreeAsync(DevicePtr address, DeviceIndex device, StreamHandle stream) override;

  absl::StatusOr<StreamId> GetStreamId(DeviceIndex device, StreamHandle stream) override;
  absl::StatusOr<bool> IsCapturing(DeviceIndex device, StreamHandle stream) override;
  absl::StatusOr<uint64_t> GetCaptureId(DeviceIndex device, StreamHandle stream) override;
  absl::StatusOr<EventHandle> CreateEvent(DeviceIndex device) override;
  absl::Status DestroyEvent(DeviceIndex device, EventHandle event) override;
  absl::Status RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) override;
  absl::Status WaitForEvent(DeviceIndex device, StreamHandle stream, EventHandle event) override;
  absl::Status RecordDeviceEvent(DeviceIndex device, EventHandle event) override;
  absl::StatusOr<bool> QueryEvent(DeviceIndex device, EventHandle event) override;
  absl::Status SynchronizeEvent(DeviceIndex device, EventHandle event) override;
  absl::StatusOr<bool> AwaitEvent(DeviceIndex device, EventHandle event, uint64_t max_ns) override;

 private:
  // Before each call: an error is what the call returns, and the other driver never hears of it.
  virtual absl::Status Before(DriverCall call) { return absl::OkStatus(); }
  // After each call that the other driver answered.
  virtual void After(DriverCall call, const absl::Status& status) {}

  template <typename Call>
  auto Forward(DriverCall name, Call call) -> decltype(call());

  Driver* const driver_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_DRIVER_FORWARDING_DRIVER_H_
