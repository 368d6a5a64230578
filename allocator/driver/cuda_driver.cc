#include "allocator/driver/cuda_driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <chrono>
#include <thread>

#include <atomic>
#include <optional>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

#define OFFCUT_CUDA_RESULT(name, number, cuda_name, status_code) static_assert(cuda_name == number);
#include "allocator/driver/cuda_results.def"
#undef OFFCUT_CUDA_RESULT

// The functions of libcuda.so.1 that we call, once. Looked up under the name that cuda.h gives
// them, with its version suffix: those are exported for good.
#define OFFCUT_CUDA_FUNCTIONS(F)       \
  F(cuInit)                            \
  F(cuDriverGetVersion)                \
  F(cuDeviceGetCount)                  \
  F(cuDeviceGetName)                   \
  F(cuDeviceTotalMem)                  \
  F(cuDeviceGetAttribute)              \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuCtxGetCurrent)                   \
  F(cuCtxPushCurrent)                  \
  F(cuCtxPopCurrent)                   \
  F(cuCtxSynchronize)                  \
  F(cuMemGetInfo)                      \
  F(cuMemGetAllocationGranularity)     \
  F(cuMemAddressReserve)               \
  F(cuMemAddressFree)                  \
  F(cuMemCreate)                       \
  F(cuMemRelease)                      \
  F(cuMemMap)                          \
  F(cuMemSetAccess)                    \
  F(cuMemUnmap)                        \
  F(cuMemcpyHtoD_v2)                   \
  F(cuMemcpyDtoH_v2)                   \
  F(cuMemAlloc)                        \
  F(cuMemFree)                         \
  F(cuMemPoolCreate)                   \
  F(cuMemPoolDestroy)                  \
  F(cuMemPoolSetAttribute)             \
  F(cuMemPoolGetAttribute)             \
  F(cuMemPoolTrimTo)                   \
  F(cuMemPoolSetAccess)                \
  F(cuMemAllocFromPoolAsync)           \
  F(cuMemFreeAsync)                    \
  F(cuStreamGetId)                     \
  F(cuStreamIsCapturing)               \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuStreamWaitEvent)                 \
  F(cuEventCreate)                     \
  F(cuEventDestroy)                    \
  F(cuEventRecord)                     \
  F(cuEventQuery)                      \
  F(cuEventSynchronize)

// Those that an older driver lacks.
#define OFFCUT_CUDA_OPTIONAL_FUNCTIONS(F) F(cuCtxRecordEvent) F(cuStreamGetCaptureInfo)

#define OFFCUT_STRINGIFY_INNER(x) #x
#define OFFCUT_STRINGIFY(x) OFFCUT_STRINGIFY_INNER(x)

struct CudaFunctions {
#define OFFCUT_MEMBER(name) decltype(&::name) name = nullptr;
  OFFCUT_CUDA_FUNCTIONS(OFFCUT_MEMBER)
  OFFCUT_CUDA_OPTIONAL_FUNCTIONS(OFFCUT_MEMBER)
#undef OFFCUT_MEMBER
};

// cuStreamGetId, without which a reused stream handle cannot be told from the old one.
constexpr int kDriverVersionMin = 12000;

constexpr char kRemedy[] =
    "; install the NVIDIA driver, or preload liboffcut_cudasim.so to simulate one";

// What SynchronizeDevice allocates and frees, in bytes.
constexpr size_t kSmallestBlock = 512;

// ", for RDMA, for export as a descriptor"
std::string Named(const MemoryFlags& flags) {
  return absl::StrCat(flags.rdma ? ", for RDMA" : "",
                      flags.export_fd ? ", for export as a descriptor" : "",
                      flags.export_fabric ? ", for export over the fabric" : "");
}

std::string At(DevicePtr address, Bytes bytes) {
  return absl::StrFormat("%d bytes at %#x", bytes, address);
}

// The same error, as one that no retry will cure on this machine.
absl::Status AsUnavailable(const absl::Status& error) {
  absl::Status unavailable(absl::StatusCode::kUnavailable, absl::StrCat(error.message(), kRemedy));
  error.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    unavailable.SetPayload(url, payload);
  });
  return unavailable;
}

absl::StatusOr<CudaFunctions> LoadFunctions() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return absl::UnavailableError(absl::StrCat(
        "libcuda.so.1 could not be loaded: ", error != nullptr ? error : "unknown error", kRemedy));
  }
  CudaFunctions functions;
  absl::string_view missing;
#define OFFCUT_LOAD_OPTIONAL(name) \
  functions.name =                 \
      reinterpret_cast<decltype(functions.name)>(dlsym(library, OFFCUT_STRINGIFY(name)));
#define OFFCUT_LOAD(name)    \
  OFFCUT_LOAD_OPTIONAL(name) \
  if (functions.name == nullptr && missing.empty()) missing = OFFCUT_STRINGIFY(name);
  OFFCUT_CUDA_FUNCTIONS(OFFCUT_LOAD)
  OFFCUT_CUDA_OPTIONAL_FUNCTIONS(OFFCUT_LOAD_OPTIONAL)
#undef OFFCUT_LOAD
#undef OFFCUT_LOAD_OPTIONAL
  if (!missing.empty()) {
    return absl::UnavailableError(
        absl::StrCat("libcuda.so.1 has no function ", missing,
                     "; install an NVIDIA driver of at least version 525 (CUDA 12.0)"));
  }
  return functions;
}

}  // namespace

struct CudaDriver::Cuda {
  struct Device {
    CUcontext context = nullptr;
    std::atomic<bool> has_pools{false};      // made by CreateDriverPool, at some time
    absl::Status status = absl::OkStatus();  // of retaining the context
    absl::once_flag once;
  };

  CudaFunctions f;
  absl::Mutex mutex;
  std::optional<absl::Status> initialize_status ABSL_GUARDED_BY(mutex);
  // Set last, when everything above and below can be used.
  std::atomic<int> device_count{0};
  std::vector<Device> devices;

  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckInitialized() const;
  // The device, with its primary context retained.
  absl::StatusOr<Device*> Retain(DeviceIndex device);
};

namespace {

CUmemAllocationHandleType HandleTypes(const MemoryFlags& flags) {
  return static_cast<CUmemAllocationHandleType>(
      (flags.export_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0) |
      (flags.export_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0));
}

CUmemAccessDesc OpenTo(DeviceIndex device) {
  CUmemAccessDesc access = {};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

CUmemAllocationProp MemoryOn(DeviceIndex device, const MemoryFlags& flags) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.allocFlags.gpuDirectRDMACapable = flags.rdma;
  properties.requestedHandleTypes = HandleTypes(flags);
  return properties;
}

// Makes `context` current while it lives, if it is not already.
class ContextScope {
 public:
  ContextScope(const CudaFunctions& f, CUcontext context) : f_(f) {
    CUcontext current = nullptr;
    if (f_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return;
    pushed_ = f_.cuCtxPushCurrent(context) == CUDA_SUCCESS;
  }
  ~ContextScope() {
    CUcontext popped;
    if (pushed_) f_.cuCtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CudaFunctions& f_;
  bool pushed_ = false;
};

// Lets the calling thread make calls that would otherwise end a stream capture under way, and that
// are harmless to it: without this, one cuEventQuery kills the capture of another thread.
class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const CudaFunctions& f) : f_(f) { Exchange(); }
  ~RelaxedCaptureScope() { Exchange(); }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  void Exchange() { f_.cuThreadExchangeStreamCaptureMode(&mode_); }

  const CudaFunctions& f_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

// --- Start ---

absl::Status CudaDriver::Cuda::Load() {
  OFFCUT_ASSIGN_OR_RETURN(f, LoadFunctions());
  if (const CUresult result = f.cuInit(0); result != CUDA_SUCCESS) {
    return AsUnavailable(DriverError(result, "cuInit"));
  }
  int version = 0;
  if (const CUresult result = f.cuDriverGetVersion(&version); result != CUDA_SUCCESS) {
    return AsUnavailable(DriverError(result, "cuDriverGetVersion"));
  }
  if (version < kDriverVersionMin) {
    return absl::UnavailableError(
        absl::StrCat("the NVIDIA driver is too old: it serves CUDA ", version / 1000, ".",
                     version % 1000 / 10, ", and 12.0 is the least; install version 525 or newer"));
  }
  int count = 0;
  if (const CUresult result = f.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return AsUnavailable(DriverError(result, "cuDeviceGetCount"));
  }
  if (count == 0) return AsUnavailable(DriverError(CudaResult::kNoDevice, "cuDeviceGetCount"));
  devices = std::vector<Device>(count);
  device_count.store(count, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status CudaDriver::Cuda::CheckInitialized() const {
  if (device_count.load(std::memory_order_acquire) != 0) return absl::OkStatus();
  return DriverError(CudaResult::kNotInitialized, "CudaDriver: Initialize() has not succeeded");
}

absl::StatusOr<CudaDriver::Cuda::Device*> CudaDriver::Cuda::Retain(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(CheckInitialized());
  const int count = device_count.load(std::memory_order_relaxed);
  if (device < 0 || device >= count) {
    return DriverError(CudaResult::kInvalidDevice, absl::StrCat("device ", device, " of ", count));
  }
  Device& found = devices[device];
  absl::call_once(found.once, [&] {
    found.status = DriverError(f.cuDevicePrimaryCtxRetain(&found.context, device),
                               absl::StrCat("cuDevicePrimaryCtxRetain(device ", device, ")"));
  });
  OFFCUT_RETURN_IF_ERROR(found.status);
  return &found;
}

CudaDriver::CudaDriver() : cuda_(std::make_unique<Cuda>()) {}

CudaDriver::~CudaDriver() = default;

absl::Status CudaDriver::Initialize() {
  if (cuda_->device_count.load(std::memory_order_acquire) != 0) return absl::OkStatus();
  absl::MutexLock lock(&cuda_->mutex);
  if (!cuda_->initialize_status.has_value()) cuda_->initialize_status = cuda_->Load();
  return *cuda_->initialize_status;
}

// --- Devices ---

absl::StatusOr<int> CudaDriver::DeviceCount() {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  return cuda_->device_count.load(std::memory_order_relaxed);
}

absl::StatusOr<DeviceProperties> CudaDriver::GetProperties(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const CudaFunctions& f = cuda_->f;
  DeviceProperties properties;
  char name[256] = "";
  size_t total_bytes = 0;
  CUresult result = f.cuDeviceGetName(name, sizeof(name), device);
  if (result == CUDA_SUCCESS) result = f.cuDeviceTotalMem(&total_bytes, device);
  const auto attribute = [&](CUdevice_attribute which, int* value) {
    if (result == CUDA_SUCCESS) result = f.cuDeviceGetAttribute(value, which, device);
  };
  // A driver that is older than an attribute fails: no.
  const auto has = [&](CUdevice_attribute which) {
    int value = 0;
    return f.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value != 0;
  };
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &properties.compute_major);
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &properties.compute_minor);
  properties.name = name;
  properties.total_bytes = total_bytes;
  properties.virtual_memory = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  properties.memory_flags = {
      .rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
      .export_fd = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
      .export_fabric = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)};
  properties.driver_pools = has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  if (result == CUDA_SUCCESS && properties.virtual_memory) {
    const CUmemAllocationProp memory = MemoryOn(device, {});
    size_t granularity = 0;
    result =
        f.cuMemGetAllocationGranularity(&granularity, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    properties.granularity = granularity;
  }
  if (result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuDeviceGetAttribute(device ", device, ")"));
  }
  return properties;
}

absl::StatusOr<MemoryInfo> CudaDriver::GetMemoryInfo(DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  size_t free_bytes = 0, total_bytes = 0;
  if (const CUresult result = cuda_->f.cuMemGetInfo(&free_bytes, &total_bytes);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemGetInfo(device ", device, ")"));
  }
  return MemoryInfo{.free_bytes = free_bytes, .total_bytes = total_bytes};
}

absl::Status CudaDriver::SynchronizeDevice(DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  // cuCtxSynchronize ends every capture on the device, and nothing tells of those on streams that
  // we have never seen. cuMemFree waits for the same work, and in the relaxed mode it harms none;
  // but the driver's pools do not learn of it that what they hold is idle.
  CUdeviceptr block = 0;
  if (!on->has_pools.load(std::memory_order_relaxed) &&
      cuda_->f.cuMemAlloc(&block, kSmallestBlock) == CUDA_SUCCESS) {
    const CUresult result = cuda_->f.cuMemFree(block);
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    return DriverError(result, absl::StrCat("cuMemFree(", kSmallestBlock, " bytes on device ",
                                            device, "), for its wait"));
  }
  if (const CUresult result = cuda_->f.cuCtxSynchronize(); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuCtxSynchronize(device ", device, ")"));
  }
  return absl::OkStatus();
}

// --- Address space and physical memory ---

absl::StatusOr<DevicePtr> CudaDriver::ReserveAddress(DeviceIndex device, Bytes bytes,
                                                     Bytes alignment, DevicePtr hint) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUdeviceptr address = 0;
  if (const CUresult result = cuda_->f.cuMemAddressReserve(&address, bytes, alignment, hint, 0);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemAddressReserve(", At(hint, bytes), ", alignment ",
                                            alignment, ")"));
  }
  return address;
}

absl::Status CudaDriver::FreeAddress(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemAddressFree(address, bytes); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemAddressFree(", At(address, bytes), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PhysicalHandle> CudaDriver::CreateMemory(DeviceIndex device, Bytes bytes,
                                                        const MemoryFlags& flags) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  const CUmemAllocationProp properties = MemoryOn(device, flags);
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult result = cuda_->f.cuMemCreate(&handle, bytes, &properties, 0);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemCreate(", bytes, " bytes on device ", device,
                                            Named(flags), ")"));
  }
  return handle;
}

absl::Status CudaDriver::ReleaseMemory(PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemRelease(handle); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemRelease(handle ", handle, ")"));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemMap(address, bytes, 0, handle, 0);
      result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrCat("cuMemMap(", At(address, bytes), ", handle ", handle, ")"));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  const CUmemAccessDesc access = OpenTo(device);
  if (const CUresult result = cuda_->f.cuMemSetAccess(address, bytes, &access, 1);
      result != CUDA_SUCCESS) {
    return DriverError(
        result, absl::StrCat("cuMemSetAccess(", At(address, bytes), ", device ", device, ")"));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::Unmap(DevicePtr address, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemUnmap(address, bytes); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemUnmap(", At(address, bytes), ")"));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::WriteWord(DeviceIndex device, DevicePtr address, uint32_t word) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemcpyHtoD_v2(address, &word, sizeof(word));
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemcpyHtoD(", At(address, sizeof(word)), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> CudaDriver::ReadWord(DeviceIndex device, DevicePtr address) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  uint32_t word = 0;
  if (const CUresult result = cuda_->f.cuMemcpyDtoH_v2(&word, address, sizeof(word));
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemcpyDtoH(", At(address, sizeof(word)), ")"));
  }
  return word;
}

// --- Memory with an address of its own ---

absl::StatusOr<DevicePtr> CudaDriver::AllocateMemory(DeviceIndex device, Bytes bytes) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUdeviceptr address = 0;
  if (const CUresult result = cuda_->f.cuMemAlloc(&address, bytes); result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrCat("cuMemAlloc(", bytes, " bytes on device ", device, ")"));
  }
  return address;
}

absl::Status CudaDriver::FreeMemory(DeviceIndex device, DevicePtr address) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemFree(address); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuMemFree(%#x on device %d)", address, device));
  }
  return absl::OkStatus();
}

// --- Pools of stream-ordered memory ---

absl::StatusOr<DriverPool> CudaDriver::CreateDriverPool(DeviceIndex device,
                                                        const MemoryFlags& flags) {
  OFFCUT_ASSIGN_OR_RETURN(Cuda::Device* const on, cuda_->Retain(device));
  if (flags.rdma) {
    return DriverError(CudaResult::kInvalidValue, "cuMemPoolCreate: a pool has no flag for RDMA");
  }
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.handleTypes = HandleTypes(flags);
  CUmemoryPool pool = nullptr;
  if (const CUresult result = cuda_->f.cuMemPoolCreate(&pool, &properties);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuMemPoolCreate(device ", device, Named(flags), ")"));
  }
  on->has_pools.store(true, std::memory_order_relaxed);
  return pool;
}

absl::Status CudaDriver::DestroyDriverPool(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemPoolDestroy(pool); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuMemPoolDestroy(pool %p)", pool));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::SetDriverPoolOptions(DriverPool pool, const DriverPoolOptions& options) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUresult result = CUDA_SUCCESS;
  const auto set = [&](CUmemPool_attribute attribute, auto value) {
    if (result == CUDA_SUCCESS) result = cuda_->f.cuMemPoolSetAttribute(pool, attribute, &value);
  };
  set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuuint64_t{options.release_threshold_bytes});
  set(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, int{options.reuse_follow_events});
  set(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, int{options.reuse_opportunistic});
  set(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, int{options.reuse_internal_dependencies});
  return DriverError(result, absl::StrFormat("cuMemPoolSetAttribute(pool %p)", pool));
}

absl::StatusOr<DriverPoolUsage> CudaDriver::GetDriverPoolUsage(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUresult result = CUDA_SUCCESS;
  const auto get = [&](CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    if (result == CUDA_SUCCESS) result = cuda_->f.cuMemPoolGetAttribute(pool, attribute, &value);
    return Bytes{value};
  };
  const DriverPoolUsage usage{.reserved_bytes = get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
                              .reserved_bytes_max = get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
                              .used_bytes = get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                              .used_bytes_max = get(CU_MEMPOOL_ATTR_USED_MEM_HIGH)};
  OFFCUT_RETURN_IF_ERROR(
      DriverError(result, absl::StrFormat("cuMemPoolGetAttribute(pool %p)", pool)));
  return usage;
}

absl::StatusOr<Bytes> CudaDriver::GetDriverPoolReserved(DriverPool pool) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  cuuint64_t reserved = 0;
  if (const CUresult result =
          cuda_->f.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuMemPoolGetAttribute(pool %p)", pool));
  }
  return reserved;
}

absl::Status CudaDriver::TrimDriverPool(DriverPool pool, Bytes keep_bytes) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemPoolTrimTo(pool, keep_bytes); result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrFormat("cuMemPoolTrimTo(pool %p, %d bytes)", pool, keep_bytes));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::OpenDriverPoolTo(DriverPool pool, DeviceIndex peer) {
  OFFCUT_RETURN_IF_ERROR(cuda_->CheckInitialized());
  const RelaxedCaptureScope relaxed(cuda_->f);
  const CUmemAccessDesc access = OpenTo(peer);
  if (const CUresult result = cuda_->f.cuMemPoolSetAccess(pool, &access, 1);
      result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrFormat("cuMemPoolSetAccess(pool %p, device %d)", pool, peer));
  }
  return absl::OkStatus();
}

absl::StatusOr<DevicePtr> CudaDriver::AllocateAsync(DriverPool pool, Bytes bytes,
                                                    DeviceIndex device, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  CUdeviceptr address = 0;
  if (const CUresult result = cuda_->f.cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
      result != CUDA_SUCCESS) {
    return DriverError(
        result, absl::StrFormat("cuMemAllocFromPoolAsync(%d bytes of pool %p)", bytes, pool));
  }
  return address;
}

absl::Status CudaDriver::FreeAsync(DevicePtr address, DeviceIndex device, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuMemFreeAsync(address, stream); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuMemFreeAsync(%#x, stream %p)", address, stream));
  }
  return absl::OkStatus();
}

// --- Streams and events ---

absl::StatusOr<StreamId> CudaDriver::GetStreamId(DeviceIndex device, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  unsigned long long id = 0;
  if (const CUresult result = cuda_->f.cuStreamGetId(stream, &id); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuStreamGetId(stream %p)", stream));
  }
  return id;
}

absl::StatusOr<bool> CudaDriver::IsCapturing(DeviceIndex device, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuda_->f.cuStreamIsCapturing(stream, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuStreamIsCapturing(stream %p)", stream));
  }
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

absl::StatusOr<uint64_t> CudaDriver::GetCaptureId(DeviceIndex device, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  if (cuda_->f.cuStreamGetCaptureInfo == nullptr) {
    return DriverError(CudaResult::kNotSupported,
                       "cuStreamGetCaptureInfo: this driver does not have it as CUDA 12.3 does");
  }
  const ContextScope current(cuda_->f, on->context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult result =
      cuda_->f.cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
  if (result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuStreamGetCaptureInfo(stream %p)", stream));
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

absl::StatusOr<EventHandle> CudaDriver::CreateEvent(DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  CUevent event = nullptr;
  if (const CUresult result = cuda_->f.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrCat("cuEventCreate(device ", device, ")"));
  }
  return event;
}

absl::Status CudaDriver::DestroyEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  if (const CUresult result = cuda_->f.cuEventDestroy(event); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuEventDestroy(event %p)", event));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  if (const CUresult result = cuda_->f.cuEventRecord(event, stream); result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrFormat("cuEventRecord(event %p, stream %p)", event, stream));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::WaitForEvent(DeviceIndex device, StreamHandle stream, EventHandle event) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  if (const CUresult result = cuda_->f.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
      result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrFormat("cuStreamWaitEvent(stream %p, event %p)", stream, event));
  }
  return absl::OkStatus();
}

absl::Status CudaDriver::RecordDeviceEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  if (cuda_->f.cuCtxRecordEvent == nullptr) {
    return DriverError(
        CudaResult::kNotSupported,
        "cuCtxRecordEvent: this driver has no such function, CUDA 12.5 is the first");
  }
  if (const CUresult result = cuda_->f.cuCtxRecordEvent(on->context, event);
      result != CUDA_SUCCESS) {
    return DriverError(result,
                       absl::StrFormat("cuCtxRecordEvent(event %p, device %d)", event, device));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaDriver::QueryEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  const CUresult result = cuda_->f.cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuEventQuery(event %p)", event));
  }
  return true;
}

absl::Status CudaDriver::SynchronizeEvent(DeviceIndex device, EventHandle event) {
  OFFCUT_ASSIGN_OR_RETURN(const Cuda::Device* on, cuda_->Retain(device));
  const ContextScope current(cuda_->f, on->context);
  const RelaxedCaptureScope relaxed(cuda_->f);
  if (const CUresult result = cuda_->f.cuEventSynchronize(event); result != CUDA_SUCCESS) {
    return DriverError(result, absl::StrFormat("cuEventSynchronize(event %p)", event));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaDriver::AwaitEvent(DeviceIndex device, EventHandle event,
                                            uint64_t max_ns) {
  // Short against the stalls that it bounds, long against a query.
  constexpr std::chrono::microseconds kPause(20);
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    OFFCUT_ASSIGN_OR_RETURN(const bool done, QueryEvent(device, event));
    if (done) return true;
    if (std::chrono::steady_clock::now() - start >= std::chrono::nanoseconds(max_ns)) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace offcut
