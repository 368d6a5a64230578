#include "allocator/sim/stream_model.h"

#include <thread>

#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"

namespace offcut::sim {
namespace {

constexpr uint64_t kLagNs = 5'000'000;

int Code(const absl::Status& status) { return DriverErrorCode(status); }

class StreamModelTest : public testing::Test {
 protected:
  StreamHandle NewStream(bool non_blocking = true) {
    return *streams_.CreateStream(0, {.non_blocking = non_blocking});
  }
  EventHandle NewEvent() { return *streams_.CreateEvent(0, {}); }
  EventHandle RecordOn(StreamHandle stream) {
    const EventHandle event = NewEvent();
    EXPECT_TRUE(streams_.RecordEvent(0, event, stream).ok());
    return event;
  }
  // Milliseconds would do in life; here a number without a unit is enough.
  void Work(StreamHandle stream, uint64_t duration_ns) {
    EXPECT_TRUE(streams_.Submit(0, stream, duration_ns).ok());
  }
  bool IsDone(EventHandle event) { return *streams_.QueryEvent(event); }

  SimClock clock_{ClockKind::kVirtual};
  StreamModel streams_{/*devices=*/2, /*lag_ns=*/0, &clock_};
};

TEST_F(StreamModelTest, WithoutLagWhatTakesNoTimeIsDoneAtOnce) {
  EXPECT_TRUE(IsDone(RecordOn(NewStream())));
}

TEST_F(StreamModelTest, WorkIsDoneAfterTheLagAndNoSooner) {
  streams_.SetLagNs(kLagNs);
  const EventHandle event = RecordOn(NewStream());
  EXPECT_FALSE(IsDone(event));
  clock_.Advance(kLagNs - 1);
  EXPECT_FALSE(IsDone(event));
  clock_.Advance(1);
  EXPECT_TRUE(IsDone(event));
  EXPECT_EQ(clock_.WaitedNs(), 0u);
}

TEST_F(StreamModelTest, WorkWaitsForTheWorkAheadOfIt) {
  const StreamHandle stream = NewStream();
  Work(stream, 300);
  const EventHandle first = RecordOn(stream);
  Work(stream, 500);
  const EventHandle second = RecordOn(stream);
  clock_.Advance(300);
  EXPECT_TRUE(IsDone(first));
  EXPECT_FALSE(IsDone(second));
  clock_.Advance(500);
  EXPECT_TRUE(IsDone(second));
}

TEST_F(StreamModelTest, ALagThatShrinksDoesNotReorderAStream) {
  const StreamHandle stream = NewStream();
  streams_.SetLagNs(kLagNs);
  const EventHandle first = RecordOn(stream);
  streams_.SetLagNs(0);
  const EventHandle second = RecordOn(stream);
  EXPECT_FALSE(IsDone(second));
  clock_.Advance(kLagNs);
  EXPECT_TRUE(IsDone(first) && IsDone(second));
}

TEST_F(StreamModelTest, AHostThatWaitsSkipsTheClockAndTheSkipIsCounted) {
  const StreamHandle stream = NewStream();
  Work(stream, 700);
  EXPECT_FALSE(*streams_.QueryStream(0, stream));
  EXPECT_TRUE(streams_.SynchronizeStream(0, stream).ok());
  EXPECT_EQ(clock_.NowNs(), 700u);
  EXPECT_EQ(clock_.WaitedNs(), 700u);
  EXPECT_TRUE(streams_.SynchronizeStream(0, stream).ok());
  EXPECT_EQ(clock_.WaitedNs(), 700u) << "nothing to wait for";
}

TEST_F(StreamModelTest, SynchronizingAnEventWaitsNoLongerThanForIt) {
  const StreamHandle stream = NewStream();
  Work(stream, 100);
  const EventHandle event = RecordOn(stream);
  Work(stream, 100);
  EXPECT_TRUE(streams_.SynchronizeEvent(event).ok());
  EXPECT_EQ(clock_.NowNs(), 100u);
}

TEST_F(StreamModelTest, StreamsRunBesideEachOther) {
  const StreamHandle slow = NewStream(), fast = NewStream();
  Work(slow, 1000);
  Work(fast, 10);
  EXPECT_TRUE(streams_.SynchronizeStream(0, fast).ok());
  EXPECT_EQ(clock_.NowNs(), 10u);
}

TEST_F(StreamModelTest, AStreamWaitsForAnEventOfAnother) {
  const StreamHandle a = NewStream(), b = NewStream();
  Work(a, 1000);
  ASSERT_TRUE(streams_.StreamWaitEvent(0, b, RecordOn(a)).ok());
  EXPECT_TRUE(streams_.SynchronizeEvent(RecordOn(b)).ok());
  EXPECT_EQ(clock_.NowNs(), 1000u);
}

TEST_F(StreamModelTest, WaitingForAnEventNeverRecordedIsNothing) {
  const StreamHandle stream = NewStream();
  ASSERT_TRUE(streams_.StreamWaitEvent(0, stream, NewEvent()).ok());
  EXPECT_TRUE(*streams_.QueryStream(0, stream));
}

TEST_F(StreamModelTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  const StreamHandle blocking = NewStream(/*non_blocking=*/false);
  Work(blocking, 100);
  Work(nullptr, 50);
  EXPECT_FALSE(IsDone(RecordOn(nullptr)));
  const EventHandle after = RecordOn(blocking);
  clock_.Advance(149);
  EXPECT_FALSE(IsDone(after));
  clock_.Advance(1);
  EXPECT_TRUE(IsDone(after));
}

TEST_F(StreamModelTest, NonBlockingStreamsKeepOutOfThat) {
  Work(nullptr, 1000);
  EXPECT_TRUE(IsDone(RecordOn(NewStream(/*non_blocking=*/true))));
  const StreamHandle non_blocking = NewStream();
  Work(non_blocking, 5000);
  clock_.Advance(1000);
  EXPECT_TRUE(IsDone(RecordOn(nullptr)));
}

TEST_F(StreamModelTest, DevicesRunBesideEachOther) {
  Work(nullptr, 1000);
  EXPECT_TRUE(streams_.SynchronizeDevice(1).ok());
  EXPECT_EQ(clock_.NowNs(), 0u);
  EXPECT_TRUE(streams_.SynchronizeDevice(0).ok());
  EXPECT_EQ(clock_.NowNs(), 1000u);
}

TEST_F(StreamModelTest, SynchronizingTheDeviceWaitsForDestroyedStreamsToo) {
  const StreamHandle stream = NewStream();
  Work(stream, 400);
  ASSERT_TRUE(streams_.DestroyStream(stream).ok());
  EXPECT_TRUE(streams_.SynchronizeDevice(0).ok());
  EXPECT_EQ(clock_.NowNs(), 400u);
}

TEST_F(StreamModelTest, AnEventOfTheDeviceCoversAllItsStreams) {
  Work(NewStream(), 300);
  Work(NewStream(), 200);
  const EventHandle event = NewEvent();
  ASSERT_TRUE(streams_.RecordEventOnDevice(0, event).ok());
  clock_.Advance(299);
  EXPECT_FALSE(IsDone(event));
  clock_.Advance(1);
  EXPECT_TRUE(IsDone(event));
}

TEST_F(StreamModelTest, HandlesAreReusedAndIdsAreNot) {
  const StreamHandle first = NewStream();
  const StreamId first_id = streams_.GetStream(0, first)->id;
  ASSERT_TRUE(streams_.DestroyStream(first).ok());
  const StreamHandle second = NewStream();
  EXPECT_EQ(second, first);
  EXPECT_NE(streams_.GetStream(0, second)->id, first_id);
}

TEST_F(StreamModelTest, DestroyedHandlesAreErrors) {
  const StreamHandle stream = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_TRUE(streams_.DestroyStream(stream).ok());
  ASSERT_TRUE(streams_.DestroyEvent(event).ok());
  EXPECT_EQ(Code(streams_.DestroyStream(stream)), CudaResult::kInvalidHandle);
  EXPECT_EQ(Code(streams_.DestroyEvent(event)), CudaResult::kInvalidHandle);
  EXPECT_EQ(Code(streams_.Submit(0, stream).status()), CudaResult::kInvalidHandle);
  EXPECT_EQ(Code(streams_.QueryEvent(event).status()), CudaResult::kInvalidHandle);
  EXPECT_EQ(Code(streams_.RecordEvent(0, nullptr, nullptr)), CudaResult::kInvalidHandle);
  EXPECT_EQ(Code(streams_.DestroyStream(nullptr)), CudaResult::kInvalidHandle);
}

TEST_F(StreamModelTest, AnEventIsRecordedOnItsOwnDeviceOnly) {
  const EventHandle event = *streams_.CreateEvent(1, {});
  EXPECT_EQ(Code(streams_.RecordEvent(0, event, nullptr)), CudaResult::kInvalidHandle);
  EXPECT_TRUE(streams_.RecordEvent(1, event, nullptr).ok());
}

TEST_F(StreamModelTest, EachThreadHasItsOwnPerThreadStream) {
  const StreamId here = streams_.GetStream(0, PerThreadStream())->id;
  EXPECT_EQ(streams_.GetStream(0, PerThreadStream())->id, here);
  EXPECT_NE(streams_.GetStream(1, PerThreadStream())->id, here);
  std::thread([&] { EXPECT_NE(streams_.GetStream(0, PerThreadStream())->id, here); }).join();
}

TEST_F(StreamModelTest, TimeBetweenEventsIsTheDevices) {
  const StreamHandle stream = NewStream();
  const EventHandle start = RecordOn(stream);
  Work(stream, 12345);
  const EventHandle end = RecordOn(stream);
  EXPECT_EQ(Code(streams_.ElapsedNs(start, end).status()), CudaResult::kNotReady);
  ASSERT_TRUE(streams_.SynchronizeEvent(end).ok());
  EXPECT_EQ(*streams_.ElapsedNs(start, end), 12345);
  EXPECT_EQ(*streams_.ElapsedNs(end, start), -12345);
  EXPECT_EQ(Code(streams_.ElapsedNs(NewEvent(), end).status()), CudaResult::kInvalidHandle);
}

TEST_F(StreamModelTest, ARealClockRunsOnAndSkips) {
  SimClock clock(ClockKind::kReal);
  StreamModel streams(1, /*lag_ns=*/3'600'000'000'000, &clock);
  const EventHandle event = *streams.CreateEvent(0, {});
  ASSERT_TRUE(streams.RecordEvent(0, event, nullptr).ok());
  EXPECT_FALSE(*streams.QueryEvent(event));
  ASSERT_TRUE(streams.SynchronizeEvent(event).ok());
  EXPECT_TRUE(*streams.QueryEvent(event));
  EXPECT_GT(clock.WaitedNs(), 0u);
  const uint64_t now_ns = clock.NowNs();
  EXPECT_GE(clock.NowNs(), now_ns);
}

}  // namespace
}  // namespace offcut::sim
