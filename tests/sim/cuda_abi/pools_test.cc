// Pools of stream-ordered memory, by the runtime's functions and by the driver's: one and the same.

#include "gtest/gtest.h"
#include "tests/sim/cuda_abi/cuda_abi.h"

namespace offcut::cuda_abi_test {
namespace {

class Pools : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CALL(cudaSetDevice)(0), cudaSuccess);
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.maxSize = 256 * kMiB;
    ASSERT_EQ(CALL(cudaMemPoolCreate)(&pool_, &properties), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(CALL(cudaMemPoolDestroy)(pool_), cudaSuccess);
    CALL(cudaGetLastError)();
  }

  uint64_t Get(cudaMemPoolAttr attribute) {
    cuuint64_t by_runtime = 1, by_driver = 2;
    EXPECT_EQ(CALL(cudaMemPoolGetAttribute)(pool_, attribute, &by_runtime), cudaSuccess);
    EXPECT_EQ(
        CALL(cuMemPoolGetAttribute)(pool_, static_cast<CUmemPool_attribute>(attribute), &by_driver),
        CUDA_SUCCESS);
    EXPECT_EQ(by_runtime, by_driver);
    return by_runtime;
  }
  cudaError_t Set(cudaMemPoolAttr attribute, cuuint64_t value) {
    return CALL(cudaMemPoolSetAttribute)(pool_, attribute, &value);
  }

  cudaMemPool_t pool_ = nullptr;
};

TEST_F(Pools, HaveCudasDefaultsAndKeepWhatIsSet) {
  EXPECT_EQ(Get(cudaMemPoolAttrReleaseThreshold), 0u);
  for (const auto attribute :
       {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
        cudaMemPoolReuseAllowInternalDependencies}) {
    int value = 0;
    ASSERT_EQ(CALL(cudaMemPoolGetAttribute)(pool_, attribute, &value), cudaSuccess);
    EXPECT_EQ(value, 1);
    value = 0;
    ASSERT_EQ(CALL(cudaMemPoolSetAttribute)(pool_, attribute, &value), cudaSuccess);
    value = 7;
    ASSERT_EQ(CALL(cudaMemPoolGetAttribute)(pool_, attribute, &value), cudaSuccess);
    EXPECT_EQ(value, 0);
  }
  EXPECT_EQ(Set(cudaMemPoolAttrReleaseThreshold, 5 * kMiB), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrReleaseThreshold), 5 * kMiB);
  EXPECT_EQ(Set(cudaMemPoolAttrUsedMemHigh, 5), cudaErrorInvalidValue) << "only reset";
  EXPECT_EQ(Set(cudaMemPoolAttrUsedMemCurrent, 0), cudaErrorInvalidValue);
}

TEST_F(Pools, CountWhatIsUsedAndReserved) {
  void* pointer = nullptr;
  ASSERT_EQ(CALL(cudaMallocFromPoolAsync)(&pointer, 1000, pool_, nullptr), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrUsedMemCurrent), 1000u);
  EXPECT_EQ(Get(cudaMemPoolAttrReservedMemCurrent), 32 * kMiB);
  ASSERT_EQ(CALL(cudaFreeAsync)(pointer, nullptr), cudaSuccess);
  EXPECT_EQ(CALL(cudaFreeAsync)(pointer, nullptr), cudaErrorInvalidValue);
  ASSERT_EQ(CALL(cudaStreamSynchronize)(nullptr), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrReservedMemCurrent), 0u);
  EXPECT_EQ(Get(cudaMemPoolAttrUsedMemHigh), 1000u);
  EXPECT_EQ(Set(cudaMemPoolAttrUsedMemHigh, 0), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrUsedMemHigh), 0u);
}

TEST_F(Pools, HoldNoMoreThanTheirMaximum) {
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(CALL(cuMemAllocFromPoolAsync)(&first, 200 * kMiB, pool_, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemAllocFromPoolAsync)(&second, 200 * kMiB, pool_, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CALL(cuMemFreeAsync)(first, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cudaDeviceSynchronize)(), cudaSuccess);
}

TEST_F(Pools, TheCurrentOneServesAllocationsWithoutAPool) {
  cudaMemPool_t default_pool = nullptr, current = nullptr;
  ASSERT_EQ(CALL(cudaDeviceGetDefaultMemPool)(&default_pool, 0), cudaSuccess);
  ASSERT_EQ(CALL(cudaDeviceGetMemPool)(&current, 0), cudaSuccess);
  EXPECT_EQ(current, default_pool);
  ASSERT_EQ(CALL(cuDeviceSetMemPool)(0, pool_), CUDA_SUCCESS);
  void* pointer = nullptr;
  ASSERT_EQ(CALL(cudaMallocAsync)(&pointer, 4096, nullptr), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrUsedMemCurrent), 4096u);
  ASSERT_EQ(CALL(cudaMemsetAsync)(pointer, 3, 4096, nullptr), cudaSuccess);
  cudaPointerAttributes attributes = {};
  ASSERT_EQ(CALL(cudaPointerGetAttributes)(&attributes, static_cast<char*>(pointer) + 9),
            cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_EQ(CALL(cuMemGetAddressRange)(&base, &bytes, reinterpret_cast<CUdeviceptr>(pointer) + 9),
            CUDA_SUCCESS);
  EXPECT_EQ(base, reinterpret_cast<CUdeviceptr>(pointer));
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(CALL(cudaFree)(pointer), cudaSuccess);
  EXPECT_EQ(Get(cudaMemPoolAttrUsedMemCurrent), 0u);
  ASSERT_EQ(CALL(cudaDeviceSetMemPool)(0, default_pool), cudaSuccess);
}

TEST_F(Pools, AreOpenedToPeers) {
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = 1;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  ASSERT_EQ(CALL(cudaMemPoolSetAccess)(pool_, &access, 1), cudaSuccess);
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
  ASSERT_EQ(CALL(cudaMemPoolGetAccess)(&flags, pool_, &access.location), cudaSuccess);
  EXPECT_EQ(flags, cudaMemAccessFlagsProtReadWrite);
  access.location.id = 2;
  EXPECT_EQ(CALL(cudaMemPoolSetAccess)(pool_, &access, 1), cudaErrorInvalidDevice);
}

TEST_F(Pools, AreRefusedWithWhatIsNotSimulated) {
  CUmemPoolProps properties = {};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(CALL(cuMemPoolCreate)(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(CALL(cuMemPoolCreate)(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace offcut::cuda_abi_test
