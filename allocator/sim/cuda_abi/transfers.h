// Copies, fills and page-locked host memory: what the runtime and the driver offer under two names.
//
// Bytes really move wherever host memory is on one side. The device's side is checked by the model;
// of the host's side only that it is no device address and not null. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_TRANSFERS_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_TRANSFERS_H_

#include "allocator/sim/cuda_abi/simulation.h"

namespace offcut::cuda_abi {

// Whether the call returns before the work is done.
enum class Completion { kAsynchronous, kSynchronous };

struct Lane {
  DeviceIndex device;
  StreamHandle stream;
  Completion completion;
};

// `direction` is checked against what the addresses are; cudaMemcpyDefault takes them as they are.
absl::Status CopyBytes(Simulation& s, const Lane& lane, void* to, const void* from, size_t bytes,
                       cudaMemcpyKind direction);
absl::Status CopyRows(Simulation& s, const Lane& lane, void* to, size_t to_pitch, const void* from,
                      size_t from_pitch, size_t width, size_t rows, cudaMemcpyKind direction);

// `unit` 1 or 4: the bytes of `value` that are repeated. Device memory only.
absl::Status FillBytes(Simulation& s, const Lane& lane, DevicePtr address, uint32_t value, int unit,
                       size_t count);

absl::Status AllocateHost(Simulation& s, DeviceIndex device, void** pointer, size_t bytes);
absl::Status FreeHost(Simulation& s, void* pointer);

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_TRANSFERS_H_
