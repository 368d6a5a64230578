// The driver's contexts and virtual memory.

#include <cstring>

#include "gtest/gtest.h"
#include "tests/sim/cuda_abi/cuda_abi.h"

namespace offcut::cuda_abi_test {
namespace {

constexpr size_t kGranule = 2 * kMiB;

CUmemAllocationProp OnDevice(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return properties;
}

CUmemGenericAllocationHandle Create(size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = OnDevice(0);
  EXPECT_EQ(CALL(cuMemCreate)(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  return handle;
}

CUdeviceptr Reserve(size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(CALL(cuMemAddressReserve)(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  return address;
}

void Open(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_EQ(CALL(cuMemSetAccess)(address, bytes, &access, 1), CUDA_SUCCESS);
}

class Driver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CALL(cuInit)(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxPushCurrent)(context), CUDA_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(CALL(cuCtxPopCurrent)(nullptr), CUDA_SUCCESS); }
};

TEST_F(Driver, NeedsAContext) {
  CUcontext context = nullptr;
  ASSERT_EQ(CALL(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
  EXPECT_NE(context, nullptr);
  while (context != nullptr) {
    ASSERT_EQ(CALL(cuCtxPopCurrent)(nullptr), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
  }
  CUdeviceptr address = 0;
  EXPECT_EQ(CALL(cuMemAlloc)(&address, 100), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CALL(cuStreamSynchronize)(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CALL(cuCtxPushCurrent)(reinterpret_cast<CUcontext>(&address)),
            CUDA_ERROR_INVALID_CONTEXT);
  SetUp();
}

TEST_F(Driver, MapsOneHandleAtTwoAddresses) {
  const CUmemGenericAllocationHandle handle = Create(kGranule);
  const CUdeviceptr range = Reserve(2 * kGranule);
  for (const CUdeviceptr address : {range, range + kGranule}) {
    ASSERT_EQ(CALL(cuMemMap)(address, kGranule, 0, handle, 0), CUDA_SUCCESS);
    Open(address, kGranule);
  }
  const char sent[] = "seen through both";
  char received[sizeof sent] = {};
  ASSERT_EQ(CALL(cuMemcpyHtoD)(range + 4096, sent, sizeof sent), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemcpyDtoH)(received, range + kGranule + 4096, sizeof sent), CUDA_SUCCESS);
  EXPECT_STREQ(received, sent);

  ASSERT_EQ(CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemUnmap)(range, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemAddressFree)(range, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_NE(CALL(cuMemRelease)(handle), CUDA_SUCCESS);
}

TEST_F(Driver, RefusesMemoryWithoutAccess) {
  const CUmemGenericAllocationHandle handle = Create(kGranule);
  const CUdeviceptr address = Reserve(kGranule);
  char byte = 0;
  EXPECT_NE(CALL(cuMemcpyHtoD)(address, &byte, 1), CUDA_SUCCESS) << "nothing is mapped";
  ASSERT_EQ(CALL(cuMemMap)(address, kGranule, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_NE(CALL(cuMemcpyHtoD)(address, &byte, 1), CUDA_SUCCESS) << "access is not open";
  Open(address, kGranule);
  EXPECT_EQ(CALL(cuMemcpyHtoD)(address, &byte, 1), CUDA_SUCCESS);
  EXPECT_NE(CALL(cuMemcpyHtoD)(address + kGranule, &byte, 1), CUDA_SUCCESS) << "beyond the end";

  ASSERT_EQ(CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemUnmap)(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuMemAddressFree)(address, kGranule), CUDA_SUCCESS);
}

TEST_F(Driver, RunsOutOfPhysicalMemory) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = OnDevice(0);
  EXPECT_EQ(CALL(cuMemCreate)(&handle, kMemory, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  size_t granularity = 0;
  ASSERT_EQ(CALL(cuMemGetAllocationGranularity)(&granularity, &properties,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_EQ(granularity, kGranule);
}

TEST_F(Driver, RefusesHandlesThatOtherProcessesCouldOpen) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = OnDevice(0);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(CALL(cuMemCreate)(&handle, kGranule, &properties, 0), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Driver, FillsWithWords) {
  const DeviceMemory memory(64);
  const auto address = reinterpret_cast<CUdeviceptr>(memory.get());
  ASSERT_EQ(CALL(cuMemsetD32)(address, 0x01020304, 16), CUDA_SUCCESS);
  unsigned int received[16] = {};
  ASSERT_EQ(CALL(cuMemcpyDtoH)(received, address, sizeof received), CUDA_SUCCESS);
  for (const unsigned int word : received) EXPECT_EQ(word, 0x01020304u);
}

TEST_F(Driver, TellsTheRangeOfAPointer) {
  const DeviceMemory memory(1000);
  const auto address = reinterpret_cast<CUdeviceptr>(memory.get());
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_EQ(CALL(cuMemGetAddressRange)(&base, &bytes, address + 999), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_GE(bytes, 1000u);
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  ASSERT_EQ(CALL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
}

TEST_F(Driver, EnablesPeersOnce) {
  CUcontext other = nullptr;
  ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuCtxEnablePeerAccess)(other, 0), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuCtxEnablePeerAccess)(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

}  // namespace
}  // namespace offcut::cuda_abi_test
