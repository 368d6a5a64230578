// The driver's functions on memory: physical handles, address space, allocations, copies, pointers.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/simulation.h"
#include "allocator/sim/cuda_abi/transfers.h"

using offcut::Bytes;
using offcut::DeviceIndex;
using offcut::DevicePtr;
using offcut::MemoryFlags;
using offcut::sim::Access;
using offcut::sim::PointerInfo;
using offcut::sim::PointerKind;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

// Address space belongs to no device for CUDA; the model only notes who asked.
DeviceIndex DeviceOrFirst(Simulation& s) { return s.DriverDevice().value_or(0); }

absl::Status CheckProperties(Simulation& s, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return Error(CUDA_ERROR_INVALID_VALUE, "cuMemCreate: not page-locked memory of a device");
  }
  const int types = properties->requestedHandleTypes;
  if ((types & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) != 0) {
    return Error(CUDA_ERROR_NOT_PERMITTED, absl::StrCat("cuMemCreate: handle types ", types));
  }
  return s.CheckDevice(properties->location.id);
}

MemoryFlags FlagsOf(const CUmemAllocationProp& properties) {
  const int types = properties.requestedHandleTypes;
  return {.rdma = properties.allocFlags.gpuDirectRDMACapable != 0,
          .export_fd = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
          .export_fabric = (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0};
}

template <typename Body>
CUresult OnLane(Completion completion, CUstream stream, const Body& body) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    return body(s, Lane{device, stream, completion});
  });
}

CUresult Copy(Completion completion, CUstream stream, DevicePtr to, DevicePtr from, size_t bytes,
              cudaMemcpyKind kind) {
  return OnLane(completion, stream, [&](Simulation& s, const Lane& lane) {
    return CopyBytes(s, lane, PointerTo(to), PointerTo(from), bytes, kind);
  });
}

CUresult Fill(Completion completion, CUstream stream, DevicePtr address, uint32_t value, int unit,
              size_t count) {
  return OnLane(completion, stream, [&](Simulation& s, const Lane& lane) {
    return FillBytes(s, lane, address, value, unit, count);
  });
}

template <typename T>
absl::Status Answer(void* data, T value) {
  *static_cast<T*>(data) = value;
  return absl::OkStatus();
}

absl::Status AnswerPointer(Simulation& s, CUpointer_attribute attribute, DevicePtr pointer,
                           const PointerInfo& info, void* data) {
  const bool host = info.kind == PointerKind::kHost;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Answer(data,
                    info.kind == PointerKind::kAllocation ? s.ContextOf(info.device) : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Answer(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Answer(data, CUdeviceptr{pointer});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (host) return Answer(data, PointerTo(pointer));
      return Error(CUDA_ERROR_INVALID_VALUE, "device memory has no host pointer");
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Answer(data, static_cast<unsigned long long>(info.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Answer(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Answer(data, int{info.device});
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Answer(data, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Answer(data, CUdeviceptr{info.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Answer(data, size_t{info.bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Answer(data, info.kind != PointerKind::kReserved ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Answer(data, 0u);
    default:
      return Error(
          CUDA_ERROR_NOT_SUPPORTED,
          absl::StrCat("pointer attribute ", static_cast<int>(attribute), " is not simulated"));
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.memory().GetInfo(device));
    *free_bytes = info.free_bytes;
    *total_bytes = info.total_bytes;
    return absl::OkStatus();
  });
}

// --- Physical memory and address space ---

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckProperties(s, properties));
    *granularity = offcut::sim::kGranularity;
    return absl::OkStatus();
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckProperties(s, properties));
    OFFCUT_ASSIGN_OR_RETURN(
        *handle, s.model().CreateMemory(properties->location.id, bytes, FlagsOf(*properties)));
    return absl::OkStatus();
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return AnswerDriver([&](Simulation& s) { return s.memory().ReleaseMemory(handle); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*handle, s.memory().RetainMemory(AddressOf(address)));
    return absl::OkStatus();
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.memory().GetHandle(handle));
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = info.device;
    properties->allocFlags.gpuDirectRDMACapable = info.flags.rdma;
    properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
        (info.flags.export_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0) |
        (info.flags.export_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0));
    return absl::OkStatus();
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*address,
                            s.memory().ReserveAddress(DeviceOrFirst(s), bytes, alignment, hint));
    return absl::OkStatus();
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return AnswerDriver([&](Simulation& s) { return s.memory().FreeAddress(address, bytes); });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  return AnswerDriver(
      [&](Simulation& s) { return s.memory().Map(address, bytes, offset, handle); });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return AnswerDriver([&](Simulation& s) { return s.memory().Unmap(address, bytes); });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                        size_t count) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    for (size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& wanted = descriptions[i];
      const Access access = wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::kReadWrite
                            : wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::kRead
                                                                               : Access::kNone;
      OFFCUT_RETURN_IF_ERROR(s.CheckDevice(wanted.location.id));
      OFFCUT_RETURN_IF_ERROR(s.memory().SetAccess(address, bytes, wanted.location.id, access));
    }
    return absl::OkStatus();
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(s.CheckDevice(location->id));
    OFFCUT_ASSIGN_OR_RETURN(const Access access, s.memory().GetAccess(address, location->id));
    *flags = access == Access::kReadWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : access == Access::kRead    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return absl::OkStatus();
  });
}

// --- Allocations ---

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    if (bytes == 0) return Error(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc(0 bytes)");
    OFFCUT_ASSIGN_OR_RETURN(*address, s.model().AllocateMemory(device, bytes));
    return absl::OkStatus();
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return AnswerDriver([&](Simulation& s) { return s.model().FreeMemory(address); });
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    return AllocateHost(s, device, pointer, bytes);
  });
}

CUresult cuMemFreeHost(void* pointer) {
  return AnswerDriver([&](Simulation& s) { return FreeHost(s, pointer); });
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    return s.memory().RegisterHost(AddressOf(pointer), bytes, device);
  });
}

CUresult cuMemHostUnregister(void* pointer) {
  return AnswerDriver([&](Simulation& s) { return s.memory().UnregisterHost(AddressOf(pointer)); });
}

// --- Copies and fills ---

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy(Completion::kSynchronous, nullptr, to, from, bytes, cudaMemcpyDefault);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Completion::kAsynchronous, stream, to, from, bytes, cudaMemcpyDefault);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return Copy(Completion::kSynchronous, nullptr, to, AddressOf(from), bytes,
              cudaMemcpyHostToDevice);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Copy(Completion::kAsynchronous, stream, to, AddressOf(from), bytes,
              cudaMemcpyHostToDevice);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return Copy(Completion::kSynchronous, nullptr, AddressOf(to), from, bytes,
              cudaMemcpyDeviceToHost);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Completion::kAsynchronous, stream, AddressOf(to), from, bytes,
              cudaMemcpyDeviceToHost);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy(Completion::kSynchronous, nullptr, to, from, bytes, cudaMemcpyDeviceToDevice);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Completion::kAsynchronous, stream, to, from, bytes, cudaMemcpyDeviceToDevice);
}
CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
  return Fill(Completion::kSynchronous, nullptr, address, value, 1, count);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return Fill(Completion::kAsynchronous, stream, address, value, 1, count);
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned int value, size_t count) {
  return Fill(Completion::kSynchronous, nullptr, address, value, 4, count);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) {
  return Fill(Completion::kAsynchronous, stream, address, value, 4, count);
}

// --- Pointers ---

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    const auto info = s.model().LookUp(address);
    if (!info.has_value() || info->kind == PointerKind::kHost) {
      return Error(CUDA_ERROR_NOT_FOUND,
                   absl::StrCat("no device memory at 0x", absl::Hex(address)));
    }
    if (base != nullptr) *base = info->base;
    if (bytes != nullptr) *bytes = info->bytes;
    return absl::OkStatus();
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    const auto info = s.model().LookUp(pointer);
    if (!info.has_value()) {
      // No misuse: this is how a program learns that memory is the host's.
      return Error(CUDA_ERROR_INVALID_VALUE, "");
    }
    return AnswerPointer(s, attribute, pointer, *info, data);
  });
}

// As in CUDA, what is unknown is answered with zero, not with an error.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  for (unsigned int i = 0; i < count; ++i) {
    if (cuPointerGetAttribute(data[i], attributes[i], pointer) != CUDA_SUCCESS) {
      *static_cast<uint32_t*>(data[i]) = 0;
    }
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
