// The functions of the driver and of the runtime on pools of stream-ordered memory: PoolModel does
// the work. The enumerations of both have the same numbers, so what differs is who answers.

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/simulation.h"

using offcut::DeviceIndex;
using offcut::DevicePtr;
using offcut::DriverPoolOptions;
using offcut::DriverPoolUsage;
using offcut::sim::Access;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

static_assert(int{CU_MEMPOOL_ATTR_RELEASE_THRESHOLD} == int{cudaMemPoolAttrReleaseThreshold});
static_assert(int{CU_MEMPOOL_ATTR_USED_MEM_HIGH} == int{cudaMemPoolAttrUsedMemHigh});
static_assert(int{CU_MEM_LOCATION_TYPE_DEVICE} == int{cudaMemLocationTypeDevice});
static_assert(int{CU_MEM_ACCESS_FLAGS_PROT_READWRITE} == int{cudaMemAccessFlagsProtReadWrite});

namespace {

absl::Status CheckLocation(Simulation& s, int type, int device, const char* function) {
  if (type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return Error(CUDA_ERROR_NOT_SUPPORTED, absl::StrCat(function, ": location type ", type));
  }
  return s.CheckDevice(device);
}

// Of CUmemPoolProps or cudaMemPoolProps.
template <typename Properties>
absl::Status Create(Simulation& s, CUmemoryPool* pool, const Properties* properties) {
  if (pool == nullptr || properties == nullptr ||
      int{properties->allocType} != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return Error(CUDA_ERROR_INVALID_VALUE, "cuMemPoolCreate: not page-locked memory of a device");
  }
  const int types = properties->handleTypes;
  if ((types & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) != 0) {
    return Error(CUDA_ERROR_NOT_SUPPORTED, absl::StrCat("cuMemPoolCreate: handle types ", types));
  }
  const int device = properties->location.id;
  OFFCUT_RETURN_IF_ERROR(
      CheckLocation(s, int{properties->location.type}, device, "cuMemPoolCreate"));
  OFFCUT_ASSIGN_OR_RETURN(*pool, s.model().pools().CreatePool(device, properties->maxSize));
  return absl::OkStatus();
}

// The flag that an attribute means, nullptr if none.
bool DriverPoolOptions::* FlagOf(int attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return &DriverPoolOptions::reuse_follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return &DriverPoolOptions::reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return &DriverPoolOptions::reuse_internal_dependencies;
    default:
      return nullptr;
  }
}

absl::Status NoAttribute(int attribute) {
  return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat("a pool's attribute ", attribute));
}

absl::Status SetAttribute(Simulation& s, CUmemoryPool pool, int attribute, const void* value) {
  auto& pools = s.model().pools();
  OFFCUT_ASSIGN_OR_RETURN(DriverPoolOptions options, pools.GetOptions(pool));
  if (const auto flag = FlagOf(attribute); flag != nullptr) {
    options.*flag = *static_cast<const int*>(value) != 0;
    return pools.SetOptions(pool, options);
  }
  const cuuint64_t number = *static_cast<const cuuint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    options.release_threshold_bytes = number;
    return pools.SetOptions(pool, options);
  }
  // Maxima can only be reset.
  if (number != 0) return NoAttribute(attribute);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) return pools.ResetReservedMax(pool);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) return pools.ResetUsedMax(pool);
  return NoAttribute(attribute);
}

absl::Status GetAttribute(Simulation& s, CUmemoryPool pool, int attribute, void* value) {
  OFFCUT_ASSIGN_OR_RETURN(const DriverPoolOptions options, s.model().pools().GetOptions(pool));
  OFFCUT_ASSIGN_OR_RETURN(const DriverPoolUsage usage, s.model().pools().GetUsage(pool));
  if (const auto flag = FlagOf(attribute); flag != nullptr) {
    *static_cast<int*>(value) = options.*flag ? 1 : 0;
    return absl::OkStatus();
  }
  auto* const number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = options.release_threshold_bytes;
      return absl::OkStatus();
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = usage.reserved_bytes;
      return absl::OkStatus();
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = usage.reserved_bytes_max;
      return absl::OkStatus();
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = usage.used_bytes;
      return absl::OkStatus();
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = usage.used_bytes_max;
      return absl::OkStatus();
    default:
      return NoAttribute(attribute);
  }
}

// Of CUmemAccessDesc or cudaMemAccessDesc.
template <typename Description>
absl::Status SetAccess(Simulation& s, CUmemoryPool pool, const Description* descriptions,
                       size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Description& wanted = descriptions[i];
    OFFCUT_RETURN_IF_ERROR(
        CheckLocation(s, int{wanted.location.type}, wanted.location.id, "cuMemPoolSetAccess"));
    const int flags = wanted.flags;
    const Access access = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::kReadWrite
                          : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::kRead
                                                                      : Access::kNone;
    OFFCUT_RETURN_IF_ERROR(s.model().pools().SetAccess(pool, wanted.location.id, access));
  }
  return absl::OkStatus();
}

template <typename Flags>
absl::Status GetAccess(Simulation& s, CUmemoryPool pool, int location_type, DeviceIndex device,
                       Flags* flags) {
  OFFCUT_RETURN_IF_ERROR(CheckLocation(s, location_type, device, "cuMemPoolGetAccess"));
  OFFCUT_ASSIGN_OR_RETURN(const Access access, s.model().pools().GetAccess(pool, device));
  *flags = static_cast<Flags>(access == Access::kReadWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                              : access == Access::kRead    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE);
  return absl::OkStatus();
}

absl::Status AllocateFor(Simulation& s, DeviceIndex device, CUmemoryPool pool, size_t bytes,
                         CUstream stream, DevicePtr* address) {
  if (pool == nullptr) {
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.streams().GetStream(device, stream));
    OFFCUT_ASSIGN_OR_RETURN(pool, s.model().pools().GetCurrentPool(info.device));
  }
  OFFCUT_ASSIGN_OR_RETURN(*address, s.model().pools().Allocate(pool, bytes, device, stream));
  return absl::OkStatus();
}

CUresult AllocateByDriver(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    DevicePtr allocated = 0;
    OFFCUT_RETURN_IF_ERROR(AllocateFor(s, device, pool, bytes, stream, &allocated));
    *address = allocated;
    return absl::OkStatus();
  });
}

cudaError_t AllocateByRuntime(void** pointer, size_t bytes, CUmemoryPool pool,
                              cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    if (pointer == nullptr) return Error(CUDA_ERROR_INVALID_VALUE, "cudaMallocAsync to nowhere");
    DevicePtr allocated = 0;
    const DeviceIndex device = s.RuntimeDevice();
    OFFCUT_RETURN_IF_ERROR(AllocateFor(s, device, pool, bytes, stream, &allocated));
    *pointer = PointerTo(allocated);
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

// --- The driver's ---

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*pool, s.model().pools().GetDefaultPool(device));
    return absl::OkStatus();
  });
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*pool, s.model().pools().GetCurrentPool(device));
    return absl::OkStatus();
  });
}
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return AnswerDriver(
      [&](Simulation& s) { return s.model().pools().SetCurrentPool(device, pool); });
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return AnswerDriver([&](Simulation& s) { return Create(s, pool, properties); });
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return AnswerDriver([&](Simulation& s) { return s.model().pools().DestroyPool(pool); });
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  return AnswerDriver([&](Simulation& s) { return s.model().pools().Trim(pool, keep_bytes); });
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return AnswerDriver([&](Simulation& s) { return SetAttribute(s, pool, attribute, value); });
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return AnswerDriver([&](Simulation& s) { return GetAttribute(s, pool, attribute, value); });
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* descriptions, size_t count) {
  return AnswerDriver([&](Simulation& s) { return SetAccess(s, pool, descriptions, count); });
}
CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  return AnswerDriver(
      [&](Simulation& s) { return GetAccess(s, pool, location->type, location->id, flags); });
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return AllocateByDriver(address, bytes, nullptr, stream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return AllocateByDriver(address, bytes, pool, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    return s.model().pools().Free(address, device, stream);
  });
}
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return AnswerDriver([&](Simulation& s) {
    s.model().pools().TrimGraphs();
    return s.CheckDevice(device);
  });
}

// --- The runtime's ---

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*pool, s.model().pools().GetDefaultPool(device));
    return absl::OkStatus();
  });
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*pool, s.model().pools().GetCurrentPool(device));
    return absl::OkStatus();
  });
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.model().pools().SetCurrentPool(device, pool); });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return AnswerRuntime([&](Simulation& s) { return Create(s, pool, properties); });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return AnswerRuntime([&](Simulation& s) { return s.model().pools().DestroyPool(pool); });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return AnswerRuntime([&](Simulation& s) { return s.model().pools().Trim(pool, keep_bytes); });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return AnswerRuntime([&](Simulation& s) { return SetAttribute(s, pool, attribute, value); });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return AnswerRuntime([&](Simulation& s) { return GetAttribute(s, pool, attribute, value); });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions,
                                 size_t count) {
  return AnswerRuntime([&](Simulation& s) { return SetAccess(s, pool, descriptions, count); });
}
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* location) {
  return AnswerRuntime(
      [&](Simulation& s) { return GetAccess(s, pool, location->type, location->id, flags); });
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return AllocateByRuntime(pointer, bytes, nullptr, stream);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return AllocateByRuntime(pointer, bytes, pool, stream);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) {
    return s.model().pools().Free(AddressOf(pointer), s.RuntimeDevice(), stream);
  });
}
cudaError_t cudaDeviceGraphMemTrim(int device) {
  return AnswerRuntime([&](Simulation& s) {
    s.model().pools().TrimGraphs();
    return s.CheckDevice(device);
  });
}

}  // extern "C"
