// Simulation: the simulated machine of this process, and how a CUDA function is answered from it.
//
// Made at the first CUDA call from OFFCUT_SIM, never destroyed: threads and destructors call CUDA
// until the very end. It adds to DeviceModel what belongs to CUDA's programming interface rather
// than to a device: primary contexts, peer access, handles of things that do nothing. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_SIMULATION_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_SIMULATION_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/cuda_abi/thread_state.h"
#include "allocator/sim/device_model.h"

namespace offcut::cuda_abi {

// Handles that stand for objects which do nothing. Values are never reused, so that a stale one
// fails.
class HandleSet {
 public:
  // `tag` is the high part of the values, to tell kinds apart in a debugger.
  explicit HandleSet(uint16_t tag) : next_(uint64_t{tag} << 40) {}
  void* Create();
  bool Contains(const void* handle) const;
  bool Remove(const void* handle);

 private:
  mutable absl::Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<const void*> live_ ABSL_GUARDED_BY(mutex_);
};

class Simulation {
 public:
  // nullptr if OFFCUT_SIM cannot be understood or the host lacks address space, which has then been
  // said on standard error.
  static Simulation* Get();

  explicit Simulation(std::unique_ptr<sim::DeviceModel> model) : model_(std::move(model)) {}

  sim::DeviceModel& model() { return *model_; }
  sim::MemoryModel& memory() { return model_->memory(); }
  sim::StreamModel& streams() { return model_->streams(); }

  absl::Status CheckDevice(DeviceIndex device) const;

  // --- Primary contexts ---
  // The calling thread's current device. The runtime creates and sets a context where there is
  // none; for the driver that is CUDA_ERROR_INVALID_CONTEXT.
  DeviceIndex RuntimeDevice();
  absl::StatusOr<DeviceIndex> DriverDevice();
  void Activate(DeviceIndex device) { active_contexts_[device].store(true); }
  void Deactivate(DeviceIndex device) { active_contexts_[device].store(false); }
  bool IsActive(DeviceIndex device) const { return active_contexts_[device].load(); }
  // A context's handle is the address of its entry.
  CUcontext ContextOf(DeviceIndex device);
  absl::StatusOr<DeviceIndex> DeviceOfContext(CUcontext context) const;

  // --- Peer access: from the first device to the memory of the second ---
  absl::Status EnablePeer(DeviceIndex from, DeviceIndex to);
  absl::Status DisablePeer(DeviceIndex from, DeviceIndex to);

  // A kernel, or anything else that a stream executes and that does nothing.
  absl::Status Launch(DeviceIndex device, StreamHandle stream);
  uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }

 private:
  const std::unique_ptr<sim::DeviceModel> model_;
  std::atomic<bool> active_contexts_[sim::kDevicesMax] = {};
  std::atomic<uint64_t> peers_[sim::kDevicesMax] = {};  // bit d of entry f: f may access d
  std::atomic<uint64_t> launches_{0};
};

// CUDA's error for `status`. For misuse and for what is not simulated, says on standard error what
// was wrong: C has no room for it, and the program may only say "invalid argument".
int ErrorCode(const absl::Status& status);

// An error of our own making, in the words of DriverError.
inline absl::Status Error(CUresult code, absl::string_view what) {
  return DriverError(static_cast<int>(code), what);
}

// Answers a function of the runtime from body(simulation), which returns an absl::Status.
template <typename Body>
cudaError_t AnswerRuntime(const Body& body) {
  Simulation* const simulation = Simulation::Get();
  const int code = simulation == nullptr ? CUDA_ERROR_UNKNOWN : ErrorCode(body(*simulation));
  return static_cast<cudaError_t>(SetRuntimeError(code));
}

// The same for the driver, which keeps no last error.
template <typename Body>
CUresult AnswerDriver(const Body& body) {
  Simulation* const simulation = Simulation::Get();
  if (simulation == nullptr) return CUDA_ERROR_UNKNOWN;
  return static_cast<CUresult>(ErrorCode(body(*simulation)));
}

inline DevicePtr AddressOf(const void* pointer) { return reinterpret_cast<DevicePtr>(pointer); }
inline void* PointerTo(DevicePtr address) { return reinterpret_cast<void*>(address); }

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_SIMULATION_H_
