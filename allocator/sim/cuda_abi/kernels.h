// Kernels and device variables: what registration tells of them, and the checks that a launch gets
// although it does nothing.
//
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_KERNELS_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_KERNELS_H_

#include "allocator/sim/cuda_abi/simulation.h"

namespace offcut::cuda_abi {

// Plausible for every kernel: nobody has compiled one here.
inline constexpr int kRegistersPerThread = 32;
inline constexpr int kThreadsPerBlockMax = 1024;

void RegisterKernel(const void* stub, const char* name);
// CUDA_ERROR_INVALID_HANDLE for what is no registered stub.
absl::Status CheckKernel(const void* kernel);
const char* KernelName(const void* kernel);

absl::Status CheckLaunchShape(dim3 grid, dim3 block);

// Puts a host function into the stream. *run: the caller is to call it now.
absl::Status PlaceHostFunction(Simulation& s, DeviceIndex device, StreamHandle stream, bool* run);

struct Variable {
  DevicePtr address;
  size_t bytes;
};
void RegisterVariable(const void* symbol, const char* name, size_t bytes);
// Allocates the variable on `device` at its first use.
absl::StatusOr<Variable> FindVariable(Simulation& s, DeviceIndex device, const void* symbol);

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_KERNELS_H_
