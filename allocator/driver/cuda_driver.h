// CudaDriver: the Driver over NVIDIA's CUDA driver, or over whatever is loaded as libcuda.so.1.
//
// The library is loaded by Initialize(), never linked, and never unloaded. Uses each device's
// primary context, as PyTorch's runtime does, and retains it at the first call that needs it: a
// device that nobody asks for costs no memory. Contexts stay retained until the process ends; once
// CUDA is shut down, calls answer Unavailable.
//
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
#define OFFCUT_ALLOCATOR_DRIVER_CUDA_DRIVER_H_

#include <memory>

#include "allocator/driver/driver.h"

namespace offcut {

class CudaDriver final : public Driver {
 public:
  CudaDriver();
  ~CudaDriver() override;

  // The outcome of the first call is final.
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
  struct Cuda;
  const std::unique_ptr<Cuda> cuda_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
