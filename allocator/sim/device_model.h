// DeviceModel: one simulated machine with its GPUs. Memory, streams, pools and a clock, and what
// needs more than one of them: copies, fills, frees that wait, uses of memory by submitted work,
// memory that is short and idle in a pool.
//
// SimDriver calls it in process; sim/cuda_abi exports CUDA's functions over it. The parts are
// public and thread-safe by themselves; each says what it promises. It does not know contexts or a
// current device: callers name the device.
//
// Deterministic: without a real clock, the same calls give the same addresses, handles and times.

#ifndef OFFCUT_ALLOCATOR_SIM_DEVICE_MODEL_H_
#define OFFCUT_ALLOCATOR_SIM_DEVICE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/sim/cards.h"
#include "allocator/sim/memory_model.h"
#include "allocator/sim/pool_model.h"
#include "allocator/sim/sim_clock.h"
#include "allocator/sim/stream_model.h"

namespace offcut::sim {

// kNone: addresses are numbers, nothing holds data; for replays at millions of calls a second.
// kHostMemory: device addresses are addresses of this process; pages that nothing touches cost
// nothing.
enum class Backing { kNone, kHostMemory };

struct ModelOptions {
  SimOptions machine;
  Backing backing = Backing::kNone;
  ClockKind clock = ClockKind::kVirtual;
  DevicePtr address_base = 0x2000'0000'0000;  // with kHostMemory, where it is free
};

class DeviceModel {
 public:
  // Fails only where the host refuses the address space that kHostMemory needs.
  static absl::StatusOr<std::unique_ptr<DeviceModel>> Create(const ModelOptions& options);

  const SimOptions& machine() const { return machine_; }
  const Card& card() const { return *machine_.card; }
  int device_count() const { return machine_.devices; }

  SimClock& clock() { return clock_; }
  MemoryModel& memory() { return memory_; }
  StreamModel& streams() { return streams_; }
  PoolModel& pools() { return pools_; }

  // As MemoryModel's; what is idle in pools makes room.
  absl::StatusOr<PhysicalHandle> CreateMemory(DeviceIndex device, Bytes bytes,
                                              const MemoryFlags& flags);
  // cudaMalloc, likewise: an unsafe call during captures. Does not wait. `hint`: see MemoryModel.
  absl::StatusOr<DevicePtr> AllocateMemory(DeviceIndex device, Bytes bytes, DevicePtr hint = 0);
  // cudaFree, of a pool's memory too: as above, and waits for the whole device that owns the
  // memory. 0 is a no-op.
  absl::Status FreeMemory(DevicePtr address);

  // As MemoryModel's; of a pool's memory, only what is allocated is there.
  std::optional<PointerInfo> LookUp(DevicePtr address) const;
  absl::Status CheckAccess(DevicePtr address, Bytes bytes, DeviceIndex device, Access needed) const;

  // Work on `stream` that reads and writes the range: checked now, in use until the work is done.
  absl::Status UseMemory(DeviceIndex device, StreamHandle stream, DevicePtr address, Bytes bytes,
                         uint64_t duration_ns = 0);

  // A copy in stream order. Each side is device memory of this model (checked for access) or host
  // memory. The bytes move at once, if host memory is on one side or there are at most
  // kDeviceCopyMax of them, unless the stream is captured or the model is not backed. Kernels write
  // nothing, so large copies between devices would only turn untouched pages into real ones.
  // Does not wait: see StreamModel::SynchronizeStream.
  static constexpr Bytes kDeviceCopyMax = 1 * kMiB;
  absl::Status Copy(DeviceIndex device, StreamHandle stream, DevicePtr to, DevicePtr from,
                    Bytes bytes);
  // cudaMemsetAsync, in the same manner.
  absl::Status Fill(DeviceIndex device, StreamHandle stream, DevicePtr address, uint8_t value,
                    Bytes bytes);

 private:
  DeviceModel(const ModelOptions& options, std::unique_ptr<HostBacking> backing);

  absl::Status CheckCopySide(DevicePtr address, Bytes bytes, DeviceIndex device,
                             Access needed) const;

  const SimOptions machine_;
  SimClock clock_;
  MemoryModel memory_;
  StreamModel streams_;
  PoolModel pools_;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_DEVICE_MODEL_H_
