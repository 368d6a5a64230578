// The driver's functions on devices, contexts, errors and entry points.

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/device_facts.h"
#include "allocator/sim/cuda_abi/function_list.h"
#include "allocator/sim/cuda_abi/simulation.h"

using offcut::DeviceIndex;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

template <typename Answer>
CUresult AboutDevice(CUdevice device, const Answer& answer) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(device));
    return answer(s);
  });
}

absl::Status Push(DeviceIndex device) {
  ThreadState& thread = CurrentThread();
  if (thread.context_depth == kContextDepthMax) {
    return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat(kContextDepthMax, " contexts are pushed"));
  }
  thread.contexts[thread.context_depth++] = device;
  return absl::OkStatus();
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) {
  return AnswerDriver([](Simulation&) { return absl::OkStatus(); });
}

CUresult cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return CUDA_SUCCESS;
}

// --- Errors ---

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (static_cast<int>(error)) {
#define OFFCUT_CUDA_RESULT(our_name, number, cuda_name, status_code) \
  case number:                                                       \
    *name = #cuda_name;                                              \
    return CUDA_SUCCESS;
#include "allocator/driver/cuda_results.def"
#undef OFFCUT_CUDA_RESULT
    default:
      *name = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const char* name;
  if (cuGetErrorName(error, &name) != CUDA_SUCCESS) {
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

// --- Entry points ---

CUresult cuGetProcAddress(const char* symbol, void** address, int, cuuint64_t,
                          CUdriverProcAddressQueryResult* found) {
  *address = FindFunction(Library::kDriver, symbol);
  if (*address == nullptr) SayUnknown(symbol);
  if (found != nullptr) {
    *found =
        *address == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return *address == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

// --- Devices ---

CUresult cuDeviceGetCount(int* count) {
  return AnswerDriver([&](Simulation& s) {
    *count = s.model().device_count();
    return absl::OkStatus();
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return AboutDevice(ordinal, [&](Simulation&) {
    *device = ordinal;
    return absl::OkStatus();
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return AboutDevice(device, [&](Simulation& s) {
    std::snprintf(name, static_cast<size_t>(length), "%s", s.model().card().name);
    return absl::OkStatus();
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return AboutDevice(device, [&](Simulation& s) {
    *uuid = DeviceProperties(s.model().machine(), device).uuid;
    return absl::OkStatus();
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return AboutDevice(device, [&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.memory().GetInfo(device));
    *bytes = info.total_bytes;
    return absl::OkStatus();
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return AboutDevice(device, [&](Simulation& s) -> absl::Status {
    const auto known = DeviceAttribute(s.model().machine(), device, attribute);
    if (!known.has_value()) {
      return Error(CUDA_ERROR_INVALID_VALUE,
                   absl::StrCat("device attribute ", static_cast<int>(attribute)));
    }
    *value = *known;
    return absl::OkStatus();
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return AboutDevice(device, [&](Simulation&) {
    std::snprintf(text, static_cast<size_t>(length), "%s", PciBusId(device).c_str());
    return absl::OkStatus();
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  return AboutDevice(from, [&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(to));
    *can = from != to;
    return absl::OkStatus();
  });
}

// --- Primary contexts: the only ones there are ---

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return AboutDevice(device, [&](Simulation& s) {
    s.Activate(device);
    *context = s.ContextOf(device);
    return absl::OkStatus();
  });
}

// The runtime holds a reference of its own, and so the context stays.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return AboutDevice(device, [](Simulation&) { return absl::OkStatus(); });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return AboutDevice(device, [&](Simulation& s) {
    *flags = 0;
    *active = s.IsActive(device);
    return absl::OkStatus();
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return AnswerDriver([&](Simulation& s) {
    const auto device = s.DriverDevice();
    *context = device.ok() ? s.ContextOf(*device) : nullptr;
    return absl::OkStatus();
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    ThreadState& thread = CurrentThread();
    if (context == nullptr) {
      if (thread.context_depth > 0) --thread.context_depth;
      return absl::OkStatus();
    }
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DeviceOfContext(context));
    if (thread.context_depth == 0) return Push(device);
    thread.contexts[thread.context_depth - 1] = device;
    return absl::OkStatus();
  });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DeviceOfContext(context));
    return Push(device);
  });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    --CurrentThread().context_depth;
    if (context != nullptr) *context = s.ContextOf(device);
    return absl::OkStatus();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*device, s.DriverDevice());
    return absl::OkStatus();
  });
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned int* version) {
  *version = kCudaVersion;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  if (lowest != nullptr) *lowest = kStreamPriorityLowest;
  if (highest != nullptr) *highest = kStreamPriorityHighest;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  return AnswerDriver([](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    return s.streams().SynchronizeDevice(device);
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned int) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex from, s.DriverDevice());
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex to, s.DeviceOfContext(context));
    return s.EnablePeer(from, to);
  });
}

}  // extern "C"
