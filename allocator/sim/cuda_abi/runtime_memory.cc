// The runtime's functions on memory. Translation only: DeviceModel and transfers.h do the work.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/simulation.h"
#include "allocator/sim/cuda_abi/transfers.h"

using offcut::Bytes;
using offcut::DeviceIndex;
using offcut::DevicePtr;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

Lane Asynchronous(Simulation& s, cudaStream_t stream) {
  return {s.RuntimeDevice(), stream, Completion::kAsynchronous};
}

Lane Synchronous(Simulation& s) { return {s.RuntimeDevice(), nullptr, Completion::kSynchronous}; }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    if (pointer == nullptr) return Error(CUDA_ERROR_INVALID_VALUE, "cudaMalloc without a pointer");
    *pointer = nullptr;
    if (bytes == 0) return absl::OkStatus();
    OFFCUT_ASSIGN_OR_RETURN(const DevicePtr address,
                            s.model().AllocateMemory(s.RuntimeDevice(), bytes));
    *pointer = PointerTo(address);
    return absl::OkStatus();
  });
}

cudaError_t cudaFree(void* pointer) {
  return AnswerRuntime([&](Simulation& s) {
    s.RuntimeDevice();  // cudaFree(nullptr) is how programs create the context
    return s.model().FreeMemory(AddressOf(pointer));
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.memory().GetInfo(s.RuntimeDevice()));
    if (free_bytes != nullptr) *free_bytes = info.free_bytes;
    if (total_bytes != nullptr) *total_bytes = info.total_bytes;
    return absl::OkStatus();
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    if (attributes == nullptr) return Error(CUDA_ERROR_INVALID_VALUE, "nowhere to answer to");
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(pointer);
    const auto info = s.model().LookUp(AddressOf(pointer));
    if (!info.has_value() || info->kind == offcut::sim::PointerKind::kReserved) {
      return absl::OkStatus();
    }
    const bool host = info->kind == offcut::sim::PointerKind::kHost;
    attributes->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = info->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    if (!host) attributes->hostPointer = nullptr;
    return absl::OkStatus();
  });
}

// --- Page-locked host memory ---

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return AnswerRuntime(
      [&](Simulation& s) { return AllocateHost(s, s.RuntimeDevice(), pointer, bytes); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, 0);
}

cudaError_t cudaFreeHost(void* pointer) {
  return AnswerRuntime([&](Simulation& s) { return FreeHost(s, pointer); });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int) {
  return AnswerRuntime([&](Simulation& s) {
    return s.memory().RegisterHost(AddressOf(pointer), bytes, s.RuntimeDevice());
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.memory().UnregisterHost(AddressOf(pointer)); });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned int) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    const auto info = s.model().LookUp(AddressOf(host_pointer));
    if (device_pointer == nullptr || !info.has_value() ||
        info->kind != offcut::sim::PointerKind::kHost) {
      return Error(CUDA_ERROR_INVALID_VALUE, "cudaHostGetDevicePointer: not page-locked memory");
    }
    *device_pointer = host_pointer;
    return absl::OkStatus();
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host_pointer) {
  void* same;
  const cudaError_t error = cudaHostGetDevicePointer(&same, host_pointer, 0);
  if (error == cudaSuccess && flags != nullptr)
    *flags = cudaHostAllocPortable | cudaHostAllocMapped;
  return error;
}

// --- Copies and fills ---

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return AnswerRuntime(
      [&](Simulation& s) { return CopyBytes(s, Synchronous(s), to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return AnswerRuntime(
      [&](Simulation& s) { return CopyBytes(s, Asynchronous(s, stream), to, from, bytes, kind); });
}

cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t rows, cudaMemcpyKind kind) {
  return AnswerRuntime([&](Simulation& s) {
    return CopyRows(s, Synchronous(s), to, to_pitch, from, from_pitch, width, rows, kind);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) {
    return CopyRows(s, Asynchronous(s, stream), to, to_pitch, from, from_pitch, width, rows, kind);
  });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return AnswerRuntime([&](Simulation& s) {
    return FillBytes(s, Synchronous(s), AddressOf(address), static_cast<uint8_t>(value), 1, bytes);
  });
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) {
    return FillBytes(s, Asynchronous(s, stream), AddressOf(address), static_cast<uint8_t>(value), 1,
                     bytes);
  });
}

cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width, size_t rows,
                              cudaStream_t stream) {
  for (size_t row = 0; row < rows; ++row) {
    void* const start = static_cast<char*>(address) + row * pitch;
    const cudaError_t error = cudaMemsetAsync(start, value, width, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemset2D(void* address, size_t pitch, int value, size_t width, size_t rows) {
  return cudaMemset2DAsync(address, pitch, value, width, rows, nullptr);
}

}  // extern "C"
