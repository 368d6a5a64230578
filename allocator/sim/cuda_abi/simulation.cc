#include "allocator/sim/cuda_abi/simulation.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/sim/cards.h"

namespace offcut::cuda_abi {
namespace {

Simulation* Create() {
  const char* const text = std::getenv("OFFCUT_SIM");
  absl::StatusOr<sim::SimOptions> machine =
      text == nullptr || *text == '\0' ? sim::SimOptions() : sim::ParseSimOptions(text);
  if (!machine.ok()) {
    Report("OFFCUT_SIM: %s", std::string(machine.status().message()).c_str());
    return nullptr;
  }
  sim::ModelOptions options;
  options.machine = *machine;
  options.backing = sim::Backing::kHostMemory;
  options.clock = sim::ClockKind::kReal;
  absl::StatusOr<std::unique_ptr<sim::DeviceModel>> model = sim::DeviceModel::Create(options);
  if (!model.ok()) {
    Report("%s", std::string(model.status().message()).c_str());
    return nullptr;
  }
  return new Simulation(*std::move(model));
}

bool IsWorthSaying(int code) {
  return code == CUDA_ERROR_NOT_SUPPORTED || code == CUDA_ERROR_INVALID_VALUE ||
         code == CUDA_ERROR_INVALID_HANDLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
         code == cudaErrorInvalidPitchValue;
}

}  // namespace

void* HandleSet::Create() {
  const absl::MutexLock lock(&mutex_);
  void* const handle = reinterpret_cast<void*>(next_ += 16);
  live_.insert(handle);
  return handle;
}

bool HandleSet::Contains(const void* handle) const {
  const absl::ReaderMutexLock lock(&mutex_);
  return live_.contains(handle);
}

bool HandleSet::Remove(const void* handle) {
  const absl::MutexLock lock(&mutex_);
  return live_.erase(handle) != 0;
}

Simulation* Simulation::Get() {
  static Simulation* const simulation = Create();
  return simulation;
}

absl::Status Simulation::CheckDevice(DeviceIndex device) const {
  if (device >= 0 && device < model_->device_count()) return absl::OkStatus();
  return Error(CUDA_ERROR_INVALID_DEVICE,
               absl::StrCat("device ", device, " of ", model_->device_count()));
}

DeviceIndex Simulation::RuntimeDevice() {
  ThreadState& thread = CurrentThread();
  if (thread.context_depth == 0) thread.contexts[thread.context_depth++] = 0;
  const DeviceIndex device = thread.contexts[thread.context_depth - 1];
  Activate(device);
  return device;
}

absl::StatusOr<DeviceIndex> Simulation::DriverDevice() {
  const ThreadState& thread = CurrentThread();
  if (thread.context_depth == 0) {
    return Error(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
  }
  return thread.contexts[thread.context_depth - 1];
}

CUcontext Simulation::ContextOf(DeviceIndex device) {
  return reinterpret_cast<CUcontext>(&active_contexts_[device]);
}

absl::StatusOr<DeviceIndex> Simulation::DeviceOfContext(CUcontext context) const {
  for (DeviceIndex device = 0; device < model_->device_count(); ++device) {
    if (reinterpret_cast<const void*>(&active_contexts_[device]) == context) return device;
  }
  return Error(CUDA_ERROR_INVALID_CONTEXT, "not a context of this process");
}

absl::Status Simulation::EnablePeer(DeviceIndex from, DeviceIndex to) {
  OFFCUT_RETURN_IF_ERROR(CheckDevice(to));
  if (from == to) return Error(CUDA_ERROR_INVALID_DEVICE, "a device is no peer of itself");
  const uint64_t bit = uint64_t{1} << to;
  if ((peers_[from].fetch_or(bit) & bit) == 0) return absl::OkStatus();
  return Error(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, absl::StrCat("from ", from, " to ", to));
}

absl::Status Simulation::DisablePeer(DeviceIndex from, DeviceIndex to) {
  OFFCUT_RETURN_IF_ERROR(CheckDevice(to));
  const uint64_t bit = uint64_t{1} << to;
  if ((peers_[from].fetch_and(~bit) & bit) != 0) return absl::OkStatus();
  return Error(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, absl::StrCat("from ", from, " to ", to));
}

absl::Status Simulation::Launch(DeviceIndex device, StreamHandle stream) {
  OFFCUT_RETURN_IF_ERROR(streams().Submit(device, stream).status());
  launches_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

int ErrorCode(const absl::Status& status) {
  if (status.ok()) return CUDA_SUCCESS;
  const int code = DriverErrorCode(status) > 0 ? DriverErrorCode(status) : CUDA_ERROR_UNKNOWN;
  if (IsWorthSaying(code)) Report("%s", std::string(status.message()).c_str());
  return code;
}

}  // namespace offcut::cuda_abi
