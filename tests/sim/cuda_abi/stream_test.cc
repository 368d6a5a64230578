// Streams, events, captures: an order that the host runs ahead of.

#include "gtest/gtest.h"
#include "tests/sim/cuda_abi/cuda_abi.h"

namespace offcut::cuda_abi_test {
namespace {

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CALL(cudaStreamCreateWithFlags)(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(CALL(cudaStreamDestroy)(stream_), cudaSuccess);
    CALL(cudaGetLastError)();
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(Streams, RunBehindTheHostUntilItWaits) {
  const DeviceMemory memory(1);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(CALL(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(CALL(cudaMemsetAsync)(memory.get(), 0, 1, stream_), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventRecord)(event, stream_), cudaSuccess);
  EXPECT_EQ(CALL(cudaEventQuery)(event), cudaErrorNotReady);
  EXPECT_EQ(CALL(cudaStreamQuery)(stream_), cudaErrorNotReady);
  EXPECT_EQ(CALL(cudaEventSynchronize)(event), cudaSuccess);
  EXPECT_EQ(CALL(cudaEventQuery)(event), cudaSuccess);
  EXPECT_EQ(CALL(cudaEventDestroy)(event), cudaSuccess);
}

TEST_F(Streams, WaitForEachOthersEvents) {
  const DeviceMemory memory(1);
  cudaStream_t other = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_EQ(CALL(cudaStreamCreateWithPriority)(&other, cudaStreamNonBlocking, -5), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventCreate)(&start), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventCreate)(&end), cudaSuccess);
  ASSERT_EQ(CALL(cudaMemsetAsync)(memory.get(), 0, 1, stream_), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventRecord)(start, stream_), cudaSuccess);
  ASSERT_EQ(CALL(cudaStreamWaitEvent)(other, start, 0), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventRecord)(end, other), cudaSuccess);
  ASSERT_EQ(CALL(cudaStreamSynchronize)(other), cudaSuccess);
  EXPECT_EQ(CALL(cudaEventQuery)(start), cudaSuccess) << "other's work came after it";
  float milliseconds = -1;
  EXPECT_EQ(CALL(cudaEventElapsedTime)(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  int priority = 0;
  EXPECT_EQ(CALL(cudaStreamGetPriority)(other, &priority), cudaSuccess);
  EXPECT_EQ(priority, -5);
  for (cudaEvent_t event : {start, end}) EXPECT_EQ(CALL(cudaEventDestroy)(event), cudaSuccess);
  EXPECT_EQ(CALL(cudaStreamDestroy)(other), cudaSuccess);
}

TEST_F(Streams, AreRefusedOnceDestroyed) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(CALL(cudaStreamCreate)(&other), cudaSuccess);
  ASSERT_EQ(CALL(cudaStreamDestroy)(other), cudaSuccess);
  EXPECT_NE(CALL(cudaStreamDestroy)(other), cudaSuccess);
  EXPECT_NE(CALL(cudaStreamSynchronize)(other), cudaSuccess);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(CALL(cudaEventCreate)(&event), cudaSuccess);
  EXPECT_NE(CALL(cudaEventRecord)(event, other), cudaSuccess);
  ASSERT_EQ(CALL(cudaEventDestroy)(event), cudaSuccess);
  EXPECT_NE(CALL(cudaEventRecord)(event, stream_), cudaSuccess);
}

TEST_F(Streams, HaveNoFlagsThatCudaLacks) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  EXPECT_EQ(CALL(cudaStreamCreateWithFlags)(&other, 7), cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaEventCreateWithFlags)(&event, 99), cudaErrorInvalidValue);
  EXPECT_EQ(CALL(cudaEventCreateWithFlags)(&event, cudaEventInterprocess | cudaEventDisableTiming),
            cudaErrorNotSupported);
}

TEST_F(Streams, CallTheHostInTheirOrder) {
  const DeviceMemory memory(1);
  ASSERT_EQ(CALL(cudaMemsetAsync)(memory.get(), 0, 1, stream_), cudaSuccess);
  static cudaError_t seen;
  static cudaStream_t stream;
  stream = stream_;
  seen = cudaErrorUnknown;
  ASSERT_EQ(CALL(cudaLaunchHostFunc)(
                stream_, [](void*) { seen = CALL(cudaStreamQuery)(stream); }, nullptr),
            cudaSuccess);
  EXPECT_EQ(seen, cudaSuccess) << "what was submitted before it is done";
}

TEST_F(Streams, AreCapturedIntoGraphs) {
  const DeviceMemory memory(16);
  ASSERT_EQ(CALL(cudaStreamBeginCapture)(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  ASSERT_EQ(
      CALL(cudaStreamGetCaptureInfo)(stream_, &status, &id, nullptr, nullptr, nullptr, nullptr),
      cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  ASSERT_EQ(CALL(cudaMemsetAsync)(memory.get(), 0, 16, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(CALL(cudaStreamEndCapture)(stream_, &graph), cudaSuccess);
  size_t nodes = 0;
  ASSERT_EQ(CALL(cudaGraphGetNodes)(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 1u);

  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(CALL(cudaGraphInstantiateWithFlags)(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(CALL(cudaGraphDestroy)(graph), cudaSuccess);
  EXPECT_EQ(CALL(cudaGraphLaunch)(exec, stream_), cudaSuccess);
  EXPECT_EQ(CALL(cudaStreamQuery)(stream_), cudaErrorNotReady);
  EXPECT_EQ(CALL(cudaStreamSynchronize)(stream_), cudaSuccess);
  EXPECT_EQ(CALL(cudaGraphExecDestroy)(exec), cudaSuccess);
  EXPECT_NE(CALL(cudaGraphLaunch)(exec, stream_), cudaSuccess);
}

TEST_F(Streams, LoseACaptureToAnUnsafeCall) {
  ASSERT_EQ(CALL(cudaStreamBeginCapture)(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(CALL(cudaMalloc)(&memory, 100), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(CALL(cudaStreamEndCapture)(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace offcut::cuda_abi_test
