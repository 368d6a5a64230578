// Kernels: their registration by the fat binaries of libraries, their launches, which do nothing
// but take their place in the stream, and host functions, which really run.

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/device_facts.h"
#include "allocator/sim/cuda_abi/kernels.h"
#include "allocator/sim/cuda_abi/simulation.h"
#include "allocator/sim/cuda_abi/transfers.h"

using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global
using offcut::DevicePtr;

namespace offcut::cuda_abi {
namespace {

// What `kernel<<<...>>>` pushes for the stub that it then calls.
struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

std::vector<LaunchConfiguration>& Configurations() {
  thread_local std::vector<LaunchConfiguration> stack;
  return stack;
}

cudaError_t Launch(const void* kernel, dim3 grid, dim3 block, cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckKernel(kernel));
    OFFCUT_RETURN_IF_ERROR(CheckLaunchShape(grid, block));
    return s.Launch(s.RuntimeDevice(), stream);
  });
}

cudaError_t Occupancy(int* blocks, const void* kernel, int threads) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckKernel(kernel));
    *blocks = BlocksPerMultiprocessor(s.model().card(), threads);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace offcut::cuda_abi

extern "C" {

// --- Registration; called by static constructors of every library with kernels ---

void** __cudaRegisterFatBinary(void* fat_binary) {
  // The caller only passes it back.
  return static_cast<void**>(fat_binary);
}

void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  RegisterKernel(stub, name);
}

void __cudaRegisterVar(void**, char* symbol, char*, const char* name, int, size_t bytes, int, int) {
  RegisterVariable(symbol, name, bytes);
}

// --- Launches ---

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  Configurations().push_back({grid, block, shared_bytes, static_cast<cudaStream_t>(stream)});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (Configurations().empty()) {
    return static_cast<cudaError_t>(SetRuntimeError(cudaErrorMissingConfiguration));
  }
  const LaunchConfiguration configuration = Configurations().back();
  Configurations().pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

// A kernel's handle is its stub's address.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t,
                             cudaStream_t stream) {
  return Launch(kernel, grid, block, stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t,
                               cudaStream_t stream) {
  return Launch(kernel, grid, block, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void**, size_t,
                                        cudaStream_t stream) {
  return Launch(kernel, grid, block, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return Launch(kernel, config->gridDim, config->blockDim, config->stream);
}

// The device's order of work is kept by waiting for what was submitted before; a capture records a
// host function as a node, and graphs do nothing.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  bool run = false;
  const cudaError_t error = AnswerRuntime(
      [&](Simulation& s) { return PlaceHostFunction(s, s.RuntimeDevice(), stream, &run); });
  if (error == cudaSuccess && run) function(data);
  return error;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned int) {
  bool run = false;
  const cudaError_t error = AnswerRuntime(
      [&](Simulation& s) { return PlaceHostFunction(s, s.RuntimeDevice(), stream, &run); });
  if (error == cudaSuccess && run) callback(stream, cudaSuccess, data);
  return error;
}

// --- Facts about kernels ---

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckKernel(kernel));
    const offcut::sim::Card& card = s.model().card();
    *attributes = {};
    attributes->numRegs = kRegistersPerThread;
    attributes->maxThreadsPerBlock = kThreadsPerBlockMax;
    attributes->binaryVersion = attributes->ptxVersion = card.major * 10 + card.minor;
    attributes->maxDynamicSharedSizeBytes = card.shared_block_optin_bytes;
    return absl::OkStatus();
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  return AnswerRuntime([&](Simulation&) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckKernel(kernel));
    *name = KernelName(kernel);
    return absl::OkStatus();
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t) {
  return Occupancy(blocks, kernel, threads);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                   int threads, size_t,
                                                                   unsigned int) {
  return Occupancy(blocks, kernel, threads);
}

// --- Variables of kernels ---

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const Variable variable, FindVariable(s, s.RuntimeDevice(), symbol));
    *address = PointerTo(variable.address);
    return absl::OkStatus();
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const Variable variable, FindVariable(s, s.RuntimeDevice(), symbol));
    *bytes = variable.bytes;
    return absl::OkStatus();
  });
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  void* address;
  const cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  if (error != cudaSuccess) return error;
  return cudaMemcpyAsync(static_cast<char*>(address) + offset, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  void* address;
  const cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  if (error != cudaSuccess) return error;
  return cudaMemcpyAsync(to, static_cast<char*>(address) + offset, bytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr);
}

}  // extern "C"
