// Gpu: one device of this machine for programs that launch kernels of their own, built where there
// is neither a GPU nor CUDA's compiler.
//
// libcuda.so.1 and NVRTC, CUDA's run-time compiler, are loaded when the program runs. Uses the
// device's primary context, as CudaDriver and PyTorch do. What CUDA refuses here stops the
// process: its errors are sticky, and nothing measured after one could be trusted.
//
// One thread, except where a function says otherwise.

#ifndef OFFCUT_TESTS_GPU_GPU_H_
#define OFFCUT_TESTS_GPU_GPU_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/base/units.h"

namespace offcut {

// The functions of libcuda.so.1 that a program with kernels calls beside those of Driver, under the
// names that cuda.h gives them.
#define OFFCUT_GPU_FUNCTIONS(F) \
  F(cuInit)                     \
  F(cuGetErrorName)             \
  F(cuDeviceGetCount)           \
  F(cuDeviceGetAttribute)       \
  F(cuDeviceGetName)            \
  F(cuDeviceCanAccessPeer)      \
  F(cuDevicePrimaryCtxRetain)   \
  F(cuCtxSetCurrent)            \
  F(cuCtxSynchronize)           \
  F(cuCtxEnablePeerAccess)      \
  F(cuModuleLoadData)           \
  F(cuModuleGetFunction)        \
  F(cuLaunchKernelEx)           \
  F(cuStreamCreate)             \
  F(cuStreamDestroy)            \
  F(cuStreamSynchronize)        \
  F(cuStreamWaitEvent)          \
  F(cuStreamBeginCapture)       \
  F(cuStreamEndCapture)         \
  F(cuGraphInstantiate)         \
  F(cuGraphUpload)              \
  F(cuGraphLaunch)              \
  F(cuGraphExecDestroy)         \
  F(cuGraphDestroy)             \
  F(cuMemAlloc)                 \
  F(cuMemFree)                  \
  F(cuMemHostAlloc)             \
  F(cuMemFreeHost)              \
  F(cuMemCreate)                \
  F(cuMemRelease)               \
  F(cuMemcpyDtoH)               \
  F(cuMemcpyDtoHAsync)          \
  F(cuMemcpyHtoDAsync)          \
  F(cuMemcpyDtoDAsync)          \
  F(cuMemsetD32Async)           \
  F(cuTensorMapEncodeTiled)

struct CudaFunctions {
#define OFFCUT_MEMBER(name) decltype(&::name) name = nullptr;
  OFFCUT_GPU_FUNCTIONS(OFFCUT_MEMBER)
#undef OFFCUT_MEMBER
};

// Where and how a kernel is launched.
struct LaunchShape {
  uint32_t blocks = 1;
  uint32_t threads = 256;
  // May begin before the kernel that it follows has ended (programmatic stream serialization).
  bool programmatic = false;
};

class Gpu {
 public:
  // How many devices there are; Unavailable, with the reason, where there is no CUDA (or only a
  // simulated one, whose kernels do nothing).
  static absl::StatusOr<int> Count();
  // Unavailable also where NVRTC is missing.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(DeviceIndex device);

  // Compiles CUDA C++ for this device and loads it.
  CUmodule Compile(const std::string& source);
  CUfunction Kernel(CUmodule module, const char* name);

  // What cuMemAlloc gives on `other` may be used here. Mappings have their own accessors.
  void EnablePeer(const Gpu& other) const;
  // The calling thread's current context becomes this device's.
  void MakeCurrent() const;
  void Synchronize() const;
  CUstream CreateStream() const;  // non-blocking
  void DestroyStream(CUstream stream) const;
  // Page-locked, zeroed and visible to all devices under the same address.
  void* AllocateHost(Bytes bytes) const;
  void FreeHost(void* memory) const;
  DevicePtr Allocate(Bytes bytes) const;  // zeroed
  void Free(DevicePtr memory) const;

  // The types of the arguments are exactly those of the kernel's parameters.
  template <typename... Arguments>
  void Launch(CUstream stream, CUfunction kernel, const LaunchShape& shape,
              Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    LaunchWith(stream, kernel, shape, pointers);
  }

  // Stops the process if a call failed.
  void Must(CUresult result, absl::string_view what) const;

  const CudaFunctions& f() const { return f_; }
  DeviceIndex device() const { return device_; }
  const std::string& name() const { return name_; }
  int compute_capability() const { return compute_capability_; }  // 90 for 9.0
  uint32_t processors() const { return processors_; }

 private:
  Gpu(const CudaFunctions& f, DeviceIndex device);
  void LaunchWith(CUstream stream, CUfunction kernel, const LaunchShape& shape,
                  void** arguments) const;
  int Attribute(CUdevice_attribute attribute) const;

  const CudaFunctions& f_;
  const DeviceIndex device_;
  CUcontext context_ = nullptr;
  std::string name_;
  int compute_capability_ = 0;
  uint32_t processors_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_GPU_GPU_H_
