#include "allocator/sim/sim_driver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

std::unique_ptr<sim::DeviceModel> UnbackedModel(const sim::SimOptions& machine) {
  auto model = sim::DeviceModel::Create({.machine = machine});
  OFFCUT_CHECK(model.ok(), model.status().message());
  return *std::move(model);
}

// As CudaDriver does for calls that a capture would forbid (see its file).
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope()
      : previous_(sim::StreamModel::ExchangeThreadCaptureMode(sim::CaptureMode::kRelaxed)) {}
  ~RelaxedCaptureScope() { sim::StreamModel::ExchangeThreadCaptureMode(previous_); }

 private:
  const sim::CaptureMode previous_;
};

}  // namespace

SimDriver::SimDriver(const sim::SimOptions& machine) : SimDriver(UnbackedModel(machine)) {}

SimDriver::SimDriver(std::unique_ptr<sim::DeviceModel> model) : model_(std::move(model)) {}

absl::StatusOr<std::unique_ptr<SimDriver>> SimDriver::Create(const sim::ModelOptions& options) {
  OFFCUT_ASSIGN_OR_RETURN(auto model, sim::DeviceModel::Create(options));
  return std::make_unique<SimDriver>(std::move(model));
}

uint64_t SimDriver::CallCount() const {
  uint64_t sum = 0;
  for (const auto& count : call_counts_) sum += count.load(std::memory_order_relaxed);
  return sum;
}

absl::Status SimDriver::Enter(DriverCall call) {
  const uint8_t number = static_cast<uint8_t>(call);
  call_counts_[number].fetch_add(1, std::memory_order_relaxed);
  if (initialized_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return DriverError(CudaResult::kNotInitialized,
                     absl::StrCat(DriverCallName(number), ": Initialize() was not called"));
}

absl::Status SimDriver::Initialize() {
  initialized_.store(true, std::memory_order_relaxed);
  return Enter(DriverCall::kInitialize);
}

// --- Devices ---

absl::StatusOr<int> SimDriver::DeviceCount() {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kDeviceCount));
  return model_->device_count();
}

absl::StatusOr<DeviceProperties> SimDriver::GetProperties(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetProperties));
  OFFCUT_ASSIGN_OR_RETURN(const auto info, model_->memory().GetInfo(device));
  const sim::Card& card = model_->card();
  return DeviceProperties{.name = card.name,
                          .total_bytes = info.total_bytes,
                          .granularity = sim::kGranularity,
                          .virtual_memory = true,
                          .compute_major = card.major,
                          .compute_minor = card.minor,
                          .memory_flags = model_->memory().claimed_memory_flags(),
                          .driver_pools = true};
}

absl::StatusOr<MemoryInfo> SimDriver::GetMemoryInfo(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetMemoryInfo));
  OFFCUT_ASSIGN_OR_RETURN(const auto info, model_->memory().GetInfo(device));
  return MemoryInfo{.free_bytes = info.free_bytes, .total_bytes = info.total_bytes};
}

absl::Status SimDriver::SynchronizeDevice(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSynchronizeDevice));
  return model_->streams().WaitForDevice(device);
}

// --- Address space and physical memory ---

absl::StatusOr<DevicePtr> SimDriver::ReserveAddress(DeviceIndex device, Bytes bytes,
                                                    Bytes alignment, DevicePtr hint) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kReserveAddress));
  if (const DevicePtr fixed = fixed_reservation_.exchange(0, std::memory_order_relaxed);
      fixed != 0) {
    hint = fixed;
  }
  return model_->memory().ReserveAddress(device, bytes, alignment, hint);
}

absl::Status SimDriver::FreeAddress(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kFreeAddress));
  return model_->memory().FreeAddress(address, bytes);
}

absl::StatusOr<PhysicalHandle> SimDriver::CreateMemory(DeviceIndex device, Bytes bytes,
                                                       const MemoryFlags& flags) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCreateMemory));
  return model_->CreateMemory(device, bytes, flags);
}

absl::Status SimDriver::ReleaseMemory(PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kReleaseMemory));
  return model_->memory().ReleaseMemory(handle);
}

absl::Status SimDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kMap));
  return model_->memory().Map(address, bytes, /*offset=*/0, handle);
}

absl::Status SimDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSetAccess));
  return model_->memory().SetAccess(address, bytes, device, sim::Access::kReadWrite);
}

absl::Status SimDriver::Unmap(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kUnmap));
  return model_->memory().Unmap(address, bytes);
}

absl::Status SimDriver::WriteWord(DeviceIndex device, DevicePtr address, uint32_t word) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kWriteWord));
  RelaxedCaptureScope relaxed;
  OFFCUT_RETURN_IF_ERROR(model_->streams().SynchronizeStream(device, nullptr));
  return model_->memory().WriteWord(address, word, device);
}

absl::StatusOr<uint32_t> SimDriver::ReadWord(DeviceIndex device, DevicePtr address) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kReadWord));
  RelaxedCaptureScope relaxed;
  OFFCUT_RETURN_IF_ERROR(model_->streams().SynchronizeStream(device, nullptr));
  return model_->memory().ReadWord(address, device);
}

// --- Memory with an address of its own ---

absl::StatusOr<DevicePtr> SimDriver::AllocateMemory(DeviceIndex device, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kAllocateMemory));
  RelaxedCaptureScope relaxed;
  return model_->AllocateMemory(device, bytes,
                                fixed_allocation_.exchange(0, std::memory_order_relaxed));
}

absl::Status SimDriver::FreeMemory(DeviceIndex device, DevicePtr address) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kFreeMemory));
  RelaxedCaptureScope relaxed;
  return model_->FreeMemory(address);
}

// --- Pools of stream-ordered memory ---

absl::StatusOr<DriverPool> SimDriver::CreateDriverPool(DeviceIndex device,
                                                       const MemoryFlags& flags) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCreateDriverPool));
  RelaxedCaptureScope relaxed;
  if (flags.rdma) {
    return DriverError(CudaResult::kInvalidValue, "cuMemPoolCreate: a pool has no flag for RDMA");
  }
  return model_->pools().CreatePool(device);
}

absl::Status SimDriver::DestroyDriverPool(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kDestroyDriverPool));
  RelaxedCaptureScope relaxed;
  return model_->pools().DestroyPool(pool);
}

absl::Status SimDriver::SetDriverPoolOptions(DriverPool pool, const DriverPoolOptions& options) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSetDriverPoolOptions));
  RelaxedCaptureScope relaxed;
  return model_->pools().SetOptions(pool, options);
}

absl::StatusOr<DriverPoolUsage> SimDriver::GetDriverPoolUsage(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetDriverPoolUsage));
  RelaxedCaptureScope relaxed;
  return model_->pools().GetUsage(pool);
}

absl::StatusOr<Bytes> SimDriver::GetDriverPoolReserved(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetDriverPoolReserved));
  RelaxedCaptureScope relaxed;
  OFFCUT_ASSIGN_OR_RETURN(const DriverPoolUsage usage, model_->pools().GetUsage(pool));
  return usage.reserved_bytes;
}

absl::Status SimDriver::TrimDriverPool(DriverPool pool, Bytes keep_bytes) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kTrimDriverPool));
  RelaxedCaptureScope relaxed;
  return model_->pools().Trim(pool, keep_bytes);
}

absl::Status SimDriver::OpenDriverPoolTo(DriverPool pool, DeviceIndex peer) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kOpenDriverPoolTo));
  RelaxedCaptureScope relaxed;
  return model_->pools().SetAccess(pool, peer, sim::Access::kReadWrite);
}

absl::StatusOr<DevicePtr> SimDriver::AllocateAsync(DriverPool pool, Bytes bytes, DeviceIndex device,
                                                   StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kAllocateAsync));
  RelaxedCaptureScope relaxed;
  return model_->pools().Allocate(pool, bytes, device, stream);
}

absl::Status SimDriver::FreeAsync(DevicePtr address, DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kFreeAsync));
  RelaxedCaptureScope relaxed;
  return model_->pools().Free(address, device, stream);
}

// --- Streams and events ---

absl::StatusOr<StreamId> SimDriver::GetStreamId(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetStreamId));
  OFFCUT_ASSIGN_OR_RETURN(const sim::StreamInfo info, model_->streams().GetStream(device, stream));
  return info.id;
}

absl::StatusOr<bool> SimDriver::IsCapturing(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kIsCapturing));
  const absl::StatusOr<sim::CaptureInfo> capture = model_->streams().GetCapture(device, stream);
  if (DriverErrorCode(capture.status()) == CudaResult::kStreamCaptureImplicit) return true;
  OFFCUT_RETURN_IF_ERROR(capture.status());
  return capture->status != sim::CaptureStatus::kNone;
}

absl::StatusOr<uint64_t> SimDriver::GetCaptureId(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kGetCaptureId));
  OFFCUT_ASSIGN_OR_RETURN(const sim::CaptureInfo capture,
                          model_->streams().GetCapture(device, stream));
  return capture.id;
}

absl::StatusOr<EventHandle> SimDriver::CreateEvent(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kCreateEvent));
  return model_->streams().CreateEvent(device, {.timing = false});
}

absl::Status SimDriver::DestroyEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kDestroyEvent));
  return model_->streams().DestroyEvent(event);
}

absl::Status SimDriver::RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kRecordEvent));
  return model_->streams().RecordEvent(device, event, stream);
}

absl::Status SimDriver::WaitForEvent(DeviceIndex device, StreamHandle stream, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kWaitForEvent));
  return model_->streams().StreamWaitEvent(device, stream, event);
}

absl::Status SimDriver::RecordDeviceEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kRecordDeviceEvent));
  return model_->streams().RecordEventOnDevice(device, event);
}

absl::StatusOr<bool> SimDriver::QueryEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kQueryEvent));
  RelaxedCaptureScope relaxed;
  return model_->streams().QueryEvent(event);
}

absl::Status SimDriver::SynchronizeEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kSynchronizeEvent));
  RelaxedCaptureScope relaxed;
  return model_->streams().SynchronizeEvent(event);
}

absl::StatusOr<bool> SimDriver::AwaitEvent(DeviceIndex device, EventHandle event, uint64_t max_ns) {
  OFFCUT_RETURN_IF_ERROR(Enter(DriverCall::kAwaitEvent));
  RelaxedCaptureScope relaxed;
  return model_->streams().AwaitEvent(event, max_ns);
}

}  // namespace offcut
