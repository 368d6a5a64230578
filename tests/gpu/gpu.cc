#include "tests/gpu/gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

#define OFFCUT_STRINGIFY_INNER(x) #x
#define OFFCUT_STRINGIFY(x) OFFCUT_STRINGIFY_INNER(x)

absl::StatusOr<CudaFunctions> LoadCuda() {
  if (getenv("OFFCUT_SIM") != nullptr) {
    return absl::UnavailableError("the simulated CUDA (OFFCUT_SIM) runs no kernels");
  }
  // What is loaded at a kernel's first launch may wait for kernels that run; ours wait for us.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/1);
  // Streams that share one of the device's queues wait for each other; the default is 8.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError("no NVIDIA driver on this machine (libcuda.so.1)");
  }
  CudaFunctions f;
#define OFFCUT_LOAD(name)                                                                  \
  f.name = reinterpret_cast<decltype(f.name)>(dlsym(library, OFFCUT_STRINGIFY(name)));     \
  if (f.name == nullptr) {                                                                 \
    return absl::UnavailableError("libcuda.so.1 has no function " OFFCUT_STRINGIFY(name)); \
  }
  OFFCUT_GPU_FUNCTIONS(OFFCUT_LOAD)
#undef OFFCUT_LOAD
  if (const CUresult result = f.cuInit(0); result != CUDA_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver does not start: ", result));
  }
  return f;
}

const absl::StatusOr<CudaFunctions>& Cuda() {
  static const auto& cuda = *new absl::StatusOr<CudaFunctions>(LoadCuda());
  return cuda;
}

// NVRTC as nvrtc.h declares it; the header is not among those that the build brings.
using NvrtcProgram = struct _nvrtcProgram*;
struct Nvrtc {
  int (*create)(NvrtcProgram*, const char* source, const char* name, int headers,
                const char* const* header_sources, const char* const* header_names);
  int (*compile)(NvrtcProgram, int options, const char* const* option_texts);
  int (*log_size)(NvrtcProgram, size_t*);
  int (*log)(NvrtcProgram, char*);
  int (*size)(NvrtcProgram, size_t*);
  int (*result)(NvrtcProgram, char*);
  int (*destroy)(NvrtcProgram*);
};

absl::StatusOr<Nvrtc> LoadNvrtc() {
  std::vector<std::string> places;
  // The plain names are also found in the folder of PyTorch's packages, which ./dev gpu-test adds
  // to LD_LIBRARY_PATH.
  for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
    for (const char* version : {"13", "12"}) {
      places.push_back(absl::StrCat(folder, "libnvrtc.so.", version));
    }
  }
  void* library = nullptr;
  for (const std::string& place : places) {
    if (library == nullptr) library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::UnavailableError(
        "no CUDA run-time compiler (libnvrtc.so.13 or .12); put its folder into LD_LIBRARY_PATH");
  }
  Nvrtc nvrtc;
  bool found = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    found = found && function != nullptr;
  };
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.size, "nvrtcGetCUBINSize");
  find(nvrtc.result, "nvrtcGetCUBIN");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  if (!found) return absl::UnavailableError("the CUDA run-time compiler lacks functions");
  return nvrtc;
}

const absl::StatusOr<Nvrtc>& Compiler() {
  static const auto& compiler = *new absl::StatusOr<Nvrtc>(LoadNvrtc());
  return compiler;
}

}  // namespace

absl::StatusOr<int> Gpu::Count() {
  OFFCUT_RETURN_IF_ERROR(Cuda().status());
  int count = 0;
  if (Cuda()->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
    return absl::UnavailableError("the NVIDIA driver sees no GPU");
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const int count, Count());
  if (device >= count) return absl::UnavailableError(absl::StrCat("there is no device ", device));
  OFFCUT_RETURN_IF_ERROR(Compiler().status());
  return std::unique_ptr<Gpu>(new Gpu(*Cuda(), device));
}

Gpu::Gpu(const CudaFunctions& f, DeviceIndex device) : f_(f), device_(device) {
  Must(f_.cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
  MakeCurrent();
  char name[256] = "";
  Must(f_.cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
  name_ = name;
  compute_capability_ = 10 * Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                        Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  processors_ = static_cast<uint32_t>(Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
}

int Gpu::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  Must(f_.cuDeviceGetAttribute(&value, attribute, device_), "cuDeviceGetAttribute");
  return value;
}

void Gpu::Must(CUresult result, absl::string_view what) const {
  if (result == CUDA_SUCCESS) return;
  const char* error = nullptr;
  f_.cuGetErrorName(result, &error);
  OFFCUT_CHECK(result == CUDA_SUCCESS, absl::StrCat(what, " on device ", device_, ": ",
                                                    error != nullptr ? error : "unknown error"));
}

CUmodule Gpu::Compile(const std::string& source) {
  const Nvrtc& nvrtc = *Compiler();
  NvrtcProgram program = nullptr;
  OFFCUT_CHECK(nvrtc.create(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr) == 0,
               "nvrtcCreateProgram");
  const std::string target = absl::StrCat("--gpu-architecture=sm_", compute_capability_);
  const char* options[] = {target.c_str(), "--std=c++17"};
  const int result = nvrtc.compile(program, 2, options);
  if (result != 0) {
    size_t size = 0;
    nvrtc.log_size(program, &size);
    std::string log(size, '\0');
    nvrtc.log(program, log.data());
    OFFCUT_CHECK(result == 0, absl::StrCat("the kernels do not compile:\n", log));
  }
  size_t size = 0;
  OFFCUT_CHECK(nvrtc.size(program, &size) == 0, "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  OFFCUT_CHECK(nvrtc.result(program, cubin.data()) == 0, "nvrtcGetCUBIN");
  nvrtc.destroy(&program);
  MakeCurrent();
  CUmodule module = nullptr;
  Must(f_.cuModuleLoadData(&module, cubin.data()), "cuModuleLoadData");
  return module;
}

CUfunction Gpu::Kernel(CUmodule module, const char* name) {
  CUfunction kernel = nullptr;
  Must(f_.cuModuleGetFunction(&kernel, module, name), absl::StrCat("cuModuleGetFunction ", name));
  return kernel;
}

void Gpu::EnablePeer(const Gpu& other) const {
  MakeCurrent();
  const CUresult result = f_.cuCtxEnablePeerAccess(other.context_, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) Must(result, "cuCtxEnablePeerAccess");
}

void Gpu::MakeCurrent() const { Must(f_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

void Gpu::Synchronize() const {
  MakeCurrent();
  Must(f_.cuCtxSynchronize(), "cuCtxSynchronize");
}

CUstream Gpu::CreateStream() const {
  MakeCurrent();
  CUstream stream = nullptr;
  Must(f_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

void Gpu::DestroyStream(CUstream stream) const {
  Must(f_.cuStreamDestroy(stream), "cuStreamDestroy");
}

void* Gpu::AllocateHost(Bytes bytes) const {
  MakeCurrent();
  void* memory = nullptr;
  Must(f_.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
       "cuMemHostAlloc");
  std::fill_n(static_cast<char*>(memory), bytes, 0);
  return memory;
}

void Gpu::FreeHost(void* memory) const { Must(f_.cuMemFreeHost(memory), "cuMemFreeHost"); }

DevicePtr Gpu::Allocate(Bytes bytes) const {
  MakeCurrent();
  CUdeviceptr memory = 0;
  Must(f_.cuMemAlloc(&memory, bytes), "cuMemAlloc");
  const CUstream stream = CreateStream();
  Must(f_.cuMemsetD32Async(memory, 0, bytes / 4, stream), "cuMemsetD32Async");
  Must(f_.cuStreamSynchronize(stream), "cuStreamSynchronize");
  DestroyStream(stream);
  return memory;
}

void Gpu::Free(DevicePtr memory) const { Must(f_.cuMemFree(memory), "cuMemFree"); }

void Gpu::LaunchWith(CUstream stream, CUfunction kernel, const LaunchShape& shape,
                     void** arguments) const {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = shape.blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = shape.threads;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = shape.programmatic ? 1 : 0;
  Must(f_.cuLaunchKernelEx(&config, kernel, arguments, nullptr), "cuLaunchKernelEx");
}

}  // namespace offcut
