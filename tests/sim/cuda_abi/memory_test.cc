// The runtime's memory: bytes that arrive, limits that hold, misuse that fails.

#include <array>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/sim/cuda_abi/cuda_abi.h"

namespace offcut::cuda_abi_test {
namespace {

// Each test leaves no error behind.
class Memory : public testing::Test {
 protected:
  void TearDown() override { CALL(cudaGetLastError)(); }
};

TEST_F(Memory, KeepsWhatIsCopiedIntoIt) {
  std::vector<int> sent(100'000), received(sent.size());
  std::iota(sent.begin(), sent.end(), 1);
  const size_t bytes = sent.size() * sizeof(int);
  const DeviceMemory a(bytes), b(bytes);
  ASSERT_EQ(CALL(cudaMemcpy)(a.get(), sent.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(CALL(cudaMemcpy)(b.get(), a.get(), bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
  ASSERT_EQ(CALL(cudaMemcpy)(received.data(), b.get(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(received, sent);
}

TEST_F(Memory, IsFilledByMemset) {
  std::array<unsigned char, 16> received = {};
  const DeviceMemory a(received.size());
  ASSERT_EQ(CALL(cudaMemset)(a.get(), 0x5A, received.size()), cudaSuccess);
  ASSERT_EQ(CALL(cudaMemcpy)(received.data(), a.get(), received.size(), cudaMemcpyDefault),
            cudaSuccess);
  for (const unsigned char byte : received) EXPECT_EQ(byte, 0x5A);
}

TEST_F(Memory, CopiesRowsOfDifferentPitch) {
  const DeviceMemory a(64);
  const std::array<char, 12> sent = {'a', 'b', 'c', '-', 'd', 'e', 'f', '-', 'g', 'h', 'i', '-'};
  std::array<char, 9> received = {};
  ASSERT_EQ(CALL(cudaMemcpy2D)(a.get(), 16, sent.data(), 4, 3, 3, cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(CALL(cudaMemcpy2D)(received.data(), 3, a.get(), 16, 3, 3, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(std::string(received.begin(), received.end()), "abcdefghi");
}

TEST_F(Memory, RefusesCopiesThatOverrun) {
  std::vector<char> host(1 << 20);
  const DeviceMemory a(1000);
  EXPECT_EQ(CALL(cudaMemcpy)(a.get(), host.data(), host.size(), cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemcpy)(host.data(), a.get() + 512, 1000, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemset)(a.get(), 0, 1 << 20), cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemcpy2D)(a.get(), 4, host.data(), 16, 8, 2, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
}

TEST_F(Memory, RefusesAddressesThatAreNotTheDevices) {
  std::array<char, 16> host = {}, other = {};
  EXPECT_EQ(CALL(cudaMemcpy)(other.data(), host.data(), 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemcpy)(other.data(), host.data(), 16, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemcpy)(nullptr, host.data(), 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemset)(host.data(), 1, 16), cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaMemcpy)(other.data(), host.data(), 16, static_cast<cudaMemcpyKind>(99)),
            cudaErrorInvalidMemcpyDirection);
  const DeviceMemory a(16);
  EXPECT_EQ(CALL(cudaMemcpy)(a.get(), host.data(), 16, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
}

TEST_F(Memory, RefusesToBeFreedTwice) {
  void* a = nullptr;
  ASSERT_EQ(CALL(cudaMalloc)(&a, 4096), cudaSuccess);
  EXPECT_EQ(CALL(cudaFree)(a), cudaSuccess);
  EXPECT_EQ(CALL(cudaFree)(a), cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaFree)(nullptr), cudaSuccess);
  char host = 0;
  EXPECT_NE(CALL(cudaMemcpy)(a, &host, 1, cudaMemcpyHostToDevice), cudaSuccess) << "after its end";
}

TEST_F(Memory, HasALimit) {
  size_t free_bytes = 0, total_bytes = 0;
  ASSERT_EQ(CALL(cudaMemGetInfo)(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(total_bytes, kMemory);
  EXPECT_LE(free_bytes, kMemory - 64 * kMiB);
  void* a = nullptr;
  EXPECT_EQ(CALL(cudaMalloc)(&a, free_bytes + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(a, nullptr);
  {
    const DeviceMemory most(free_bytes - 2 * kMiB);
    size_t left_bytes = 0;
    ASSERT_EQ(CALL(cudaMemGetInfo)(&left_bytes, &total_bytes), cudaSuccess);
    EXPECT_LE(left_bytes, 2 * kMiB);
  }
  size_t after_bytes = 0;
  ASSERT_EQ(CALL(cudaMemGetInfo)(&after_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(after_bytes, free_bytes);
}

TEST_F(Memory, TellsWhatAPointerIs) {
  const DeviceMemory device(100);
  void* locked = nullptr;
  ASSERT_EQ(CALL(cudaHostAlloc)(&locked, 100, cudaHostAllocDefault), cudaSuccess);
  int ordinary = 0;
  cudaPointerAttributes attributes;
  ASSERT_EQ(CALL(cudaPointerGetAttributes)(&attributes, device.get() + 50), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_EQ(CALL(cudaPointerGetAttributes)(&attributes, locked), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(CALL(cudaPointerGetAttributes)(&attributes, &ordinary), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.hostPointer, &ordinary);
  EXPECT_EQ(attributes.devicePointer, nullptr);
  EXPECT_EQ(CALL(cudaFreeHost)(locked), cudaSuccess);
  EXPECT_EQ(CALL(cudaFreeHost)(locked), cudaErrorInvalidValue);
}

TEST_F(Memory, OfTheHostIsRegisteredAndNotFreedByMistake) {
  std::vector<char> host(8192);
  ASSERT_EQ(CALL(cudaHostRegister)(host.data(), host.size(), cudaHostRegisterDefault), cudaSuccess);
  void* seen = nullptr;
  EXPECT_EQ(CALL(cudaHostGetDevicePointer)(&seen, host.data(), 0), cudaSuccess);
  EXPECT_EQ(seen, host.data());
  EXPECT_EQ(CALL(cudaFreeHost)(host.data()), cudaErrorInvalidValue) << "never of cudaHostAlloc";
  EXPECT_EQ(CALL(cudaHostUnregister)(host.data()), cudaSuccess);
  EXPECT_NE(CALL(cudaHostUnregister)(host.data()), cudaSuccess);
}

}  // namespace
}  // namespace offcut::cuda_abi_test
