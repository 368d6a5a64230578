// The runtime's functions on devices, versions, errors and entry points.

#include <cstring>

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/device_facts.h"
#include "allocator/sim/cuda_abi/function_list.h"
#include "allocator/sim/cuda_abi/simulation.h"

using offcut::DeviceIndex;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

extern "C" {

// --- Devices ---

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return AnswerRuntime([&](Simulation& s) {
    *count = s.model().device_count();
    return absl::OkStatus();
  });
}

cudaError_t cudaGetDevice(int* device) {
  return AnswerRuntime([&](Simulation&) {
    const ThreadState& thread = CurrentThread();
    *device = thread.context_depth == 0 ? 0 : thread.contexts[thread.context_depth - 1];
    return absl::OkStatus();
  });
}

cudaError_t cudaSetDevice(int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    ThreadState& thread = CurrentThread();
    if (thread.context_depth == 0) thread.context_depth = 1;
    thread.contexts[thread.context_depth - 1] = device;
    s.Activate(device);
    return absl::OkStatus();
  });
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    s.Activate(device);
    return absl::OkStatus();
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    *properties = DeviceProperties(s.model().machine(), device);
    return absl::OkStatus();
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    const auto known = DeviceAttribute(s.model().machine(), device, attribute);
    if (!known.has_value()) {
      return Error(CUDA_ERROR_INVALID_VALUE,
                   absl::StrCat("device attribute ", static_cast<int>(attribute)));
    }
    *value = *known;
    return absl::OkStatus();
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    const std::string id = PciBusId(device);
    if (length < 1 || id.size() >= static_cast<size_t>(length)) {
      return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat("room for ", length, " characters"));
    }
    std::strcpy(text, id.c_str());
    return absl::OkStatus();
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    for (DeviceIndex each = 0; each < s.model().device_count(); ++each) {
      if (PciBusId(each) == text) {
        *device = each;
        return absl::OkStatus();
      }
    }
    return Error(CUDA_ERROR_INVALID_DEVICE, absl::StrCat("PCI bus id '", text, "'"));
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return AnswerRuntime([&](Simulation&) {
    if (lowest != nullptr) *lowest = kStreamPriorityLowest;
    if (highest != nullptr) *highest = kStreamPriorityHighest;
    return absl::OkStatus();
  });
}

cudaError_t cudaDeviceSynchronize() {
  return AnswerRuntime(
      [](Simulation& s) { return s.streams().SynchronizeDevice(s.RuntimeDevice()); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(from));
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(to));
    *can = from != to;
    return absl::OkStatus();
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int to, unsigned int) {
  return AnswerRuntime([&](Simulation& s) { return s.EnablePeer(s.RuntimeDevice(), to); });
}

cudaError_t cudaDeviceDisablePeerAccess(int to) {
  return AnswerRuntime([&](Simulation& s) { return s.DisablePeer(s.RuntimeDevice(), to); });
}

// --- Versions ---

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

// --- Errors ---

cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(CurrentThread().last_error); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  CurrentThread().last_error = 0;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (static_cast<int>(error)) {
#define OFFCUT_RUNTIME_ERROR(number, name, text) \
  case number:                                   \
    return #name;
#include "allocator/sim/cuda_abi/runtime_errors.def"
#undef OFFCUT_RUNTIME_ERROR
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (static_cast<int>(error)) {
#define OFFCUT_RUNTIME_ERROR(number, name, text) \
  case number:                                   \
    return text;
#include "allocator/sim/cuda_abi/runtime_errors.def"
#undef OFFCUT_RUNTIME_ERROR
    default:
      return "unrecognized error code";
  }
}

// --- Entry points of the driver ---

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** address, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *address = FindFunction(Library::kDriver, symbol);
  if (*address == nullptr) SayUnknown(symbol);
  if (found != nullptr) {
    *found = *address == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** address, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(symbol, address, kCudaVersion, flags, found);
}

}  // extern "C"
