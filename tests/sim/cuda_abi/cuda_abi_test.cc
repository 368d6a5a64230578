// Devices, errors per thread, contexts, kernels; and the world that the other files' tests share.

#include "tests/sim/cuda_abi/cuda_abi.h"

#include <dlfcn.h>

#include <cstdlib>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut::cuda_abi_test {

using ::testing::HasSubstr;

void* Find(const char* name) {
  static void* const library = [] {
    setenv("OFFCUT_SIM", kMachine, 1);
    return dlopen(OFFCUT_CUDASIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  }();
  void* const address = library == nullptr ? nullptr : dlsym(library, name);
  if (address == nullptr) {
    ADD_FAILURE() << name << ": " << dlerror();
    std::abort();
  }
  return address;
}

DeviceMemory::DeviceMemory(size_t bytes) {
  EXPECT_EQ(CALL(cudaMalloc)(&pointer_, bytes), cudaSuccess);
}

DeviceMemory::~DeviceMemory() { EXPECT_EQ(CALL(cudaFree)(pointer_), cudaSuccess); }

std::string StandardErrorOf(void (*action)()) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

namespace {

TEST(Devices, AreThoseOfTheEnvironment) {
  int count = 0;
  ASSERT_EQ(CALL(cudaGetDeviceCount)(&count), cudaSuccess);
  EXPECT_EQ(count, 2);

  cudaDeviceProp properties;
  ASSERT_EQ(CALL(cudaGetDeviceProperties)(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "NVIDIA H200");
  EXPECT_EQ(properties.totalGlobalMem, kMemory);
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 232448u);

  EXPECT_EQ(CALL(cudaGetDeviceProperties)(&properties, 2), cudaErrorInvalidDevice);
}

TEST(Devices, AttributesAgreeWithProperties) {
  int value = 0;
  ASSERT_EQ(CALL(cudaDeviceGetAttribute)(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, 132);
  ASSERT_EQ(CALL(cuDeviceGetAttribute)(&value,
                                       CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
}

TEST(Devices, AreCurrentPerThread) {
  ASSERT_EQ(CALL(cudaSetDevice)(1), cudaSuccess);
  int here = -1, there = -1;
  ASSERT_EQ(CALL(cudaGetDevice)(&here), cudaSuccess);
  std::thread([&] { CALL(cudaGetDevice)(&there); }).join();
  EXPECT_EQ(here, 1);
  EXPECT_EQ(there, 0);
  ASSERT_EQ(CALL(cudaSetDevice)(0), cudaSuccess);
  EXPECT_EQ(CALL(cudaSetDevice)(2), cudaErrorInvalidDevice);
  CALL(cudaGetLastError)();
}

TEST(LastError, IsTheThreadsOwnAndGoneOnceRead) {
  ASSERT_EQ(CALL(cudaSetDevice)(7), cudaErrorInvalidDevice);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = CALL(cudaGetLastError)(); }).join();
  EXPECT_EQ(elsewhere, cudaSuccess);
  EXPECT_EQ(CALL(cudaPeekAtLastError)(), cudaErrorInvalidDevice);
  int device;
  EXPECT_EQ(CALL(cudaGetDevice)(&device), cudaSuccess) << "success does not clear it";
  EXPECT_EQ(CALL(cudaGetLastError)(), cudaErrorInvalidDevice);
  EXPECT_EQ(CALL(cudaGetLastError)(), cudaSuccess);
}

TEST(LastError, IsNotSetByTheDriver) {
  CUdevice device;
  EXPECT_EQ(CALL(cuDeviceGet)(&device, 9), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CALL(cudaGetLastError)(), cudaSuccess);
}

TEST(Errors, HaveTheWordsOfCuda) {
  EXPECT_STREQ(CALL(cudaGetErrorName)(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(CALL(cudaGetErrorString)(cudaErrorMemoryAllocation), "out of memory");
  const char* text = nullptr;
  ASSERT_EQ(CALL(cuGetErrorName)(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_EQ(CALL(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
}

TEST(EntryPoints, AreTheNewestVersions) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointVersionNotSufficent;
  ASSERT_EQ(CALL(cudaGetDriverEntryPointByVersion)("cuMemFree", &found, 13000, cudaEnableDefault,
                                                   &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  EXPECT_EQ(found, Find("cuMemFree_v2"));
}

void TakeAndDrop(const char* name, CUresult* result) {
  void* found = nullptr;
  *result = CALL(cuGetProcAddress)(name, &found, 13000, 0, nullptr);
  EXPECT_EQ(found, nullptr);
}

TEST(EntryPoints, UnknownToTheListAreNamed) {
  const std::string said = StandardErrorOf([] {
    CUresult result = CUDA_SUCCESS;
    TakeAndDrop("cuFromTheFuture", &result);
    EXPECT_EQ(result, CUDA_ERROR_NOT_FOUND);
  });
  EXPECT_THAT(said, HasSubstr("simulated CUDA: cuFromTheFuture is not simulated"));
}

// --- Kernels ---

char kernel_stub;  // only its address matters
char module_image;

TEST(Kernels, AreKnownByTheirRegistration) {
  using Register =
      void (*)(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
  reinterpret_cast<Register>(Find("__cudaRegisterFunction"))(nullptr, &kernel_stub, nullptr,
                                                             "scale(float*)", 0, nullptr, nullptr,
                                                             nullptr, nullptr, nullptr);
  const char* name = nullptr;
  ASSERT_EQ(CALL(cudaFuncGetName)(&name, &kernel_stub), cudaSuccess);
  EXPECT_STREQ(name, "scale(float*)");
  EXPECT_EQ(
      CALL(cudaLaunchKernel)(&kernel_stub, dim3{8, 1, 1}, dim3{256, 1, 1}, nullptr, 0, nullptr),
      cudaSuccess);

  EXPECT_EQ(CALL(cudaLaunchKernel)(&name, dim3{1, 1, 1}, dim3{1, 1, 1}, nullptr, 0, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(
      CALL(cudaLaunchKernel)(&kernel_stub, dim3{1, 1, 1}, dim3{2048, 1, 1}, nullptr, 0, nullptr),
      cudaErrorInvalidConfiguration);
  CALL(cudaGetLastError)();

  int blocks = 0;
  ASSERT_EQ(CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, &kernel_stub, 256, 0),
            cudaSuccess);
  EXPECT_EQ(blocks, 8);
}

TEST(Kernels, OfModulesAreHandles) {
  CUmodule module;
  CUfunction function;
  ASSERT_EQ(CALL(cuModuleLoadData)(&module, &module_image), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuModuleGetFunction)(&function, module, "f"), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cudaSetDevice)(0), cudaSuccess);
  EXPECT_EQ(CALL(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuModuleUnload)(module), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
}

// --- cuBLAS ---

TEST(Cublas, EveryHandleIsItsOwn) {
  auto* const create = reinterpret_cast<int (*)(void**)>(Find("cublasCreate_v2"));
  auto* const destroy = reinterpret_cast<int (*)(void*)>(Find("cublasDestroy_v2"));
  auto* const multiply = reinterpret_cast<int (*)(void*)>(Find("cublasSgemm_v2"));
  std::set<void*> handles;
  for (int i = 0; i < 3; ++i) {
    void* handle = nullptr;
    ASSERT_EQ(create(&handle), 0);
    EXPECT_EQ(multiply(handle), 0);
    handles.insert(handle);
  }
  EXPECT_EQ(handles.size(), 3u);
  for (void* handle : handles) {
    EXPECT_EQ(destroy(handle), 0);
    EXPECT_NE(multiply(handle), 0) << "a destroyed handle";
    EXPECT_NE(destroy(handle), 0);
  }
}

}  // namespace
}  // namespace offcut::cuda_abi_test
