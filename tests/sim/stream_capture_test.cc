#include <thread>

#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/device_model.h"

namespace offcut::sim {
namespace {

int Code(const absl::Status& status) { return DriverErrorCode(status); }

class StreamCaptureTest : public testing::Test {
 protected:
  void TearDown() override { StreamModel::ExchangeThreadCaptureMode(CaptureMode::kGlobal); }

  StreamModel& streams() { return model_->streams(); }
  StreamHandle NewStream(bool non_blocking = true) {
    return *streams().CreateStream(0, {.non_blocking = non_blocking});
  }
  EventHandle RecordOn(StreamHandle stream) {
    const EventHandle event = *streams().CreateEvent(0, {});
    EXPECT_TRUE(streams().RecordEvent(0, event, stream).ok());
    return event;
  }
  StreamHandle Capture(CaptureMode mode = CaptureMode::kGlobal) {
    const StreamHandle stream = NewStream();
    EXPECT_TRUE(streams().BeginCapture(0, stream, mode).ok());
    return stream;
  }
  CaptureStatus StatusOf(StreamHandle stream) { return streams().GetCapture(0, stream)->status; }

  std::unique_ptr<DeviceModel> model_ = *DeviceModel::Create({});
};

TEST_F(StreamCaptureTest, WorkBecomesNodesAndRunsNowhere) {
  const StreamHandle stream = Capture();
  EXPECT_TRUE(streams().Submit(0, stream, 1000)->captured);
  EXPECT_TRUE(streams().Submit(0, stream, 1000)->captured);
  const GraphHandle graph = *streams().EndCapture(0, stream);
  EXPECT_EQ(*streams().GraphNodeCount(graph), 2u);
  EXPECT_TRUE(*streams().QueryStream(0, stream));
  EXPECT_FALSE(streams().Submit(0, stream)->captured);
}

TEST_F(StreamCaptureTest, EachCaptureHasItsOwnId) {
  const StreamHandle stream = Capture();
  const CaptureInfo first = *streams().GetCapture(0, stream);
  EXPECT_EQ(first.status, CaptureStatus::kActive);
  EXPECT_NE(first.graph, nullptr);
  ASSERT_TRUE(streams().EndCapture(0, stream).ok());
  EXPECT_EQ(StatusOf(stream), CaptureStatus::kNone);
  ASSERT_TRUE(streams().BeginCapture(0, stream, CaptureMode::kGlobal).ok());
  EXPECT_NE(streams().GetCapture(0, stream)->id, first.id);
}

TEST_F(StreamCaptureTest, GraphsAreInstantiatedLaunchedAndDestroyedOnce) {
  const StreamHandle stream = Capture();
  ASSERT_TRUE(streams().Submit(0, stream).ok());
  const GraphHandle graph = *streams().EndCapture(0, stream);
  const GraphExecHandle exec = *streams().InstantiateGraph(graph);
  ASSERT_TRUE(streams().DestroyGraph(graph).ok());
  EXPECT_EQ(Code(streams().DestroyGraph(graph)), CudaResult::kInvalidValue);
  EXPECT_FALSE(streams().InstantiateGraph(graph).ok());
  EXPECT_TRUE(streams().LaunchGraph(0, exec, stream).ok());
  EXPECT_TRUE(streams().DestroyGraphExec(exec).ok());
  EXPECT_FALSE(streams().LaunchGraph(0, exec, stream).ok());
  EXPECT_FALSE(streams().DestroyGraphExec(exec).ok());
  EXPECT_EQ(streams().Census().graphs, 0u);
}

TEST_F(StreamCaptureTest, ForkedWorkMustBeJoined) {
  for (const bool joined : {true, false}) {
    const StreamHandle stream = Capture(), side = NewStream();
    ASSERT_TRUE(streams().StreamWaitEvent(0, side, RecordOn(stream)).ok());
    EXPECT_EQ(StatusOf(side), CaptureStatus::kActive);
    ASSERT_TRUE(streams().Submit(0, side).ok());
    if (joined) {
      ASSERT_TRUE(streams().StreamWaitEvent(0, stream, RecordOn(side)).ok());
    }
    const auto graph = streams().EndCapture(0, stream);
    EXPECT_EQ(Code(graph.status()),
              joined ? CudaResult::kSuccess : CudaResult::kStreamCaptureUnjoined);
    EXPECT_EQ(StatusOf(side), CaptureStatus::kNone);
  }
}

TEST_F(StreamCaptureTest, ACaptureEndsWhereItBegan) {
  const StreamHandle stream = Capture(), side = NewStream();
  ASSERT_TRUE(streams().StreamWaitEvent(0, side, RecordOn(stream)).ok());
  EXPECT_EQ(Code(streams().EndCapture(0, side).status()), CudaResult::kStreamCaptureUnmatched);
  const StreamHandle other = Capture();
  std::thread([&] {
    EXPECT_EQ(Code(streams().EndCapture(0, other).status()), CudaResult::kStreamCaptureWrongThread);
  }).join();
  EXPECT_EQ(Code(streams().EndCapture(0, NewStream()).status()), CudaResult::kIllegalState);
}

TEST_F(StreamCaptureTest, WaitingForWorkOutsideEndsTheCapture) {
  const EventHandle outside = RecordOn(NewStream());
  const StreamHandle stream = Capture();
  EXPECT_EQ(Code(streams().StreamWaitEvent(0, stream, outside)),
            CudaResult::kStreamCaptureIsolation);
  EXPECT_EQ(StatusOf(stream), CaptureStatus::kInvalidated);
  EXPECT_EQ(Code(streams().EndCapture(0, stream).status()), CudaResult::kStreamCaptureInvalidated);
}

TEST_F(StreamCaptureTest, TwoCapturesAreNotMerged) {
  const StreamHandle a = Capture(), b = Capture();
  EXPECT_EQ(Code(streams().StreamWaitEvent(0, a, RecordOn(b))), CudaResult::kStreamCaptureMerge);
  EXPECT_EQ(StatusOf(a), CaptureStatus::kInvalidated);
  EXPECT_EQ(StatusOf(b), CaptureStatus::kInvalidated);
}

TEST_F(StreamCaptureTest, WhatCannotBeCapturedIsRefused) {
  EXPECT_EQ(Code(streams().BeginCapture(0, nullptr, CaptureMode::kGlobal)),
            CudaResult::kStreamCaptureUnsupported);
  const StreamHandle stream = Capture();
  EXPECT_EQ(Code(streams().BeginCapture(0, stream, CaptureMode::kGlobal)),
            CudaResult::kIllegalState);
}

TEST_F(StreamCaptureTest, AnUnsafeCallEndsTheCaptureThatForbidsIt) {
  for (const CaptureMode mode : {CaptureMode::kGlobal, CaptureMode::kThreadLocal}) {
    const StreamHandle stream = Capture(mode);
    EXPECT_EQ(Code(model_->AllocateMemory(0, kMiB).status()),
              CudaResult::kStreamCaptureUnsupported);
    EXPECT_FALSE(streams().EndCapture(0, stream).ok());
  }
  const StreamHandle relaxed = Capture(CaptureMode::kRelaxed);
  EXPECT_TRUE(model_->AllocateMemory(0, kMiB).ok());
  EXPECT_TRUE(streams().EndCapture(0, relaxed).ok());
}

TEST_F(StreamCaptureTest, AnotherThreadsQueryEndsAGlobalCaptureOnly) {
  const EventHandle event = RecordOn(NewStream());
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    const bool forbids = mode == CaptureMode::kGlobal;
    const StreamHandle stream = Capture(mode);
    std::thread([&] { EXPECT_EQ(streams().QueryEvent(event).ok(), !forbids); }).join();
    EXPECT_EQ(streams().EndCapture(0, stream).ok(), !forbids);
  }
}

TEST_F(StreamCaptureTest, ARelaxedThreadMayCallAnything) {
  const EventHandle event = RecordOn(NewStream());
  const StreamHandle stream = Capture(CaptureMode::kGlobal);
  EXPECT_EQ(StreamModel::ExchangeThreadCaptureMode(CaptureMode::kRelaxed), CaptureMode::kGlobal);
  EXPECT_TRUE(streams().QueryEvent(event).ok());
  EXPECT_TRUE(model_->AllocateMemory(0, kMiB).ok());
  EXPECT_EQ(StreamModel::ExchangeThreadCaptureMode(CaptureMode::kGlobal), CaptureMode::kRelaxed);
  EXPECT_TRUE(streams().EndCapture(0, stream).ok());
}

TEST_F(StreamCaptureTest, SynchronizingACapturedStreamEndsItsCapture) {
  const StreamHandle stream = Capture(CaptureMode::kRelaxed);
  EXPECT_EQ(Code(streams().SynchronizeStream(0, stream)), CudaResult::kStreamCaptureUnsupported);
  EXPECT_FALSE(streams().EndCapture(0, stream).ok());
}

TEST_F(StreamCaptureTest, AnEventOfTheDeviceEndsEveryCaptureOnIt) {
  const EventHandle event = *streams().CreateEvent(0, {});
  const StreamHandle stream = Capture(CaptureMode::kRelaxed);
  EXPECT_EQ(Code(streams().RecordEventOnDevice(0, event)), CudaResult::kStreamCaptureUnsupported);
  EXPECT_FALSE(streams().EndCapture(0, stream).ok());
}

TEST_F(StreamCaptureTest, ADestroyedStreamTakesItsCaptureWithIt) {
  const StreamHandle stream = Capture();
  ASSERT_TRUE(streams().DestroyStream(stream).ok());
  EXPECT_EQ(streams().Census().captures, 0u);
  EXPECT_EQ(streams().Census().graphs, 0u);
  EXPECT_TRUE(model_->AllocateMemory(0, kMiB).ok());
}

TEST_F(StreamCaptureTest, ACapturedCopyMovesNothing) {
  auto model = DeviceModel::Create({.backing = Backing::kHostMemory});
  ASSERT_TRUE(model.ok()) << model.status();
  StreamModel& streams = (*model)->streams();
  const DevicePtr address = *(*model)->AllocateMemory(0, kMiB);
  const StreamHandle stream = *streams.CreateStream(0, {.non_blocking = true});
  ASSERT_TRUE(streams.BeginCapture(0, stream, CaptureMode::kGlobal).ok());
  ASSERT_TRUE((*model)->Fill(0, stream, address, 7, kMiB).ok());
  EXPECT_EQ(*reinterpret_cast<char*>(address), 0);
  EXPECT_EQ(*streams.GraphNodeCount(*streams.EndCapture(0, stream)), 1u);
}

}  // namespace
}  // namespace offcut::sim
