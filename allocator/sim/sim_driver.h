// SimDriver: the Driver over a simulated machine, in process. For tests, fuzzing, replay and
// tuning.
//
// Deterministic and strict (see MemoryModel). Scriptable and observable through model(): capacity
// (memory().SetTotalBytes), other users' memory (memory().SetOutsideBytes), lag
// (streams().SetLagNs), work on a stream (streams().Submit, UseMemory), leaks (Census).
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_SIM_DRIVER_H_
#define OFFCUT_ALLOCATOR_SIM_SIM_DRIVER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "allocator/driver/driver.h"
#include "allocator/sim/device_model.h"

namespace offcut {

class SimDriver final : public Driver {
 public:
  // A machine whose device addresses are only numbers: any number of calls, no memory.
  explicit SimDriver(const sim::SimOptions& machine = {});
  // As `options` say; see DeviceModel::Create for how that can fail.
  static absl::StatusOr<std::unique_ptr<SimDriver>> Create(const sim::ModelOptions& options);
  explicit SimDriver(std::unique_ptr<sim::DeviceModel> model);

  sim::DeviceModel& model() { return *model_; }
  // The machine's time. Requires a virtual clock.
  Clock clock() { return model_->clock().AsClock(); }
  void AdvanceNs(uint64_t ns) { model_->clock().Advance(ns); }

  // From now on the next reservation lands at `address`, whatever its hint, if that is free; each
  // later one of the calling program wherever it would have. 0: none pending.
  void FixNextReservation(DevicePtr address) {
    fixed_reservation_.store(address, std::memory_order_relaxed);
  }
  // The same for AllocateMemory, to play a run again at its recorded addresses. Without memory
  // behind them, all of [MemoryModel::kAddressMin, kAddressEnd) can be had.
  void FixNextAllocation(DevicePtr address) {
    fixed_allocation_.store(address, std::memory_order_relaxed);
  }

  // How often a call was made, failed or not.
  uint64_t CallCount(DriverCall call) const {
    return call_counts_[static_cast<uint8_t>(call)].load(std::memory_order_relaxed);
  }
  uint64_t CallCount() const;  // of all calls

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
  // Counts the call; an error before Initialize().
  absl::Status Enter(DriverCall call);

  const std::unique_ptr<sim::DeviceModel> model_;
  std::atomic<bool> initialized_{false};
  std::atomic<DevicePtr> fixed_reservation_{0};
  std::atomic<DevicePtr> fixed_allocation_{0};
  std::array<std::atomic<uint64_t>, 256> call_counts_{};
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_SIM_SIM_DRIVER_H_
