// What PoolModel has beyond the driver contract: when streams share, chunks, graphs, strictness.

#include "allocator/sim/pool_model.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"
#include "allocator/sim/device_model.h"

namespace offcut::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kBusyNs = 1000;

class PoolModelTest : public testing::Test {
 protected:
  PoolModelTest() {
    ModelOptions options;
    options.machine.memory_bytes = 4 * kGiB;
    options.machine.outside_bytes = 0;
    options.machine.devices = 2;
    model_ = *DeviceModel::Create(options);
    pool_ = *pools().CreatePool(0);
    SetOptions({.release_threshold_bytes = ~Bytes{0}});
    a_ = *streams().CreateStream(0, {.non_blocking = true});
    b_ = *streams().CreateStream(0, {.non_blocking = true});
  }

  // Nothing may be left, whatever a test did.
  ~PoolModelTest() override {
    EXPECT_TRUE(pools().DestroyPool(pool_).ok());
    EXPECT_TRUE(streams().SynchronizeDevice(0).ok());
    const MemoryCensus census = model_->memory().Census();
    EXPECT_EQ(census.physical_bytes, 0u);
    EXPECT_EQ(census.mappings, 0u);
    EXPECT_EQ(census.reservations, 0u);
    EXPECT_EQ(census.handles, 0u);
  }

  PoolModel& pools() { return model_->pools(); }
  StreamModel& streams() { return model_->streams(); }

  void SetOptions(const DriverPoolOptions& options) {
    EXPECT_TRUE(pools().SetOptions(pool_, options).ok());
  }
  DevicePtr Allocate(Bytes bytes, StreamHandle stream) {
    const auto address = pools().Allocate(pool_, bytes, 0, stream);
    EXPECT_TRUE(address.ok()) << address.status();
    return address.value_or(0);
  }
  void Free(DevicePtr address, StreamHandle stream) {
    const absl::Status freed = pools().Free(address, 0, stream);
    EXPECT_TRUE(freed.ok()) << freed;
  }
  void Busy(StreamHandle stream) { EXPECT_TRUE(streams().Submit(0, stream, kBusyNs).ok()); }
  Bytes Reserved() { return pools().GetUsage(pool_)->reserved_bytes; }
  static int Code(const absl::Status& status) { return DriverErrorCode(status); }

  std::unique_ptr<DeviceModel> model_;
  DriverPool pool_;
  StreamHandle a_, b_;
};

// As measured on an H100, driver 580.159.
TEST_F(PoolModelTest, GrowsByChunksAsHardwareDoes) {
  std::vector<DevicePtr> addresses;
  std::vector<Bytes> reserved_mib;
  for (const Bytes bytes : {Bytes{1}, Bytes{512}, Bytes{513}, Bytes{3000}, kMiB, 2 * kMiB, 3 * kMiB,
                            20 * kMiB, 33 * kMiB, 64 * kMiB + 1, 100 * kMiB}) {
    addresses.push_back(Allocate(bytes, a_));
    reserved_mib.push_back(Reserved() / kMiB);
  }
  EXPECT_THAT(reserved_mib, ElementsAre(32, 32, 32, 32, 32, 32, 32, 32, 64, 128, 224));
  EXPECT_EQ(pools().GetUsage(pool_)->used_bytes, 233836475u);
  for (size_t i = 1; i < addresses.size(); ++i) Free(addresses[i], a_);
  SetOptions({});
  EXPECT_TRUE(streams().SynchronizeStream(0, b_).ok());
  EXPECT_EQ(Reserved(), 224 * kMiB) << "the host knows nothing of the stream that freed";
  EXPECT_TRUE(streams().SynchronizeStream(0, a_).ok());
  EXPECT_EQ(Reserved(), 32 * kMiB);
  Free(addresses[0], a_);
}

TEST_F(PoolModelTest, PrefersWhatIsMappedAndFitsBest) {
  const DevicePtr large = Allocate(20 * kMiB, a_), wall = Allocate(2 * kMiB, a_);
  const DevicePtr small = Allocate(4 * kMiB, a_), end = Allocate(6 * kMiB, a_);
  Free(large, a_);
  Free(small, a_);
  EXPECT_EQ(Allocate(3 * kMiB, a_), small);
  EXPECT_EQ(Allocate(3 * kMiB, a_), large);
  EXPECT_EQ(Reserved(), 32 * kMiB);
  for (const DevicePtr address : {large, wall, small, end}) Free(address, a_);
}

TEST_F(PoolModelTest, OpportunisticReuseTakesWhatTheDeviceHasPassed) {
  for (const bool allowed : {false, true}) {
    SetOptions({.release_threshold_bytes = ~Bytes{0},
                .reuse_follow_events = false,
                .reuse_opportunistic = allowed,
                .reuse_internal_dependencies = false});
    const DevicePtr first = Allocate(32 * kMiB, a_);
    Busy(a_);
    Free(first, a_);
    const DevicePtr early = Allocate(32 * kMiB, b_);
    EXPECT_NE(early, first) << "the device has not passed the free";
    model_->clock().Advance(kBusyNs);
    const DevicePtr late = Allocate(32 * kMiB, b_);
    EXPECT_EQ(late == first, allowed);
    Free(early, b_);
    Free(late, b_);
    EXPECT_TRUE(streams().SynchronizeDevice(0).ok());
    EXPECT_TRUE(pools().Trim(pool_, 0).ok());
  }
}

TEST_F(PoolModelTest, InternalDependenciesAreTheLastResort) {
  for (const bool allowed : {false, true}) {
    SetOptions({.release_threshold_bytes = ~Bytes{0},
                .reuse_opportunistic = false,
                .reuse_internal_dependencies = allowed});
    const DevicePtr most = Allocate(3 * kGiB, a_);
    Busy(a_);
    Free(most, a_);
    const DevicePtr beside = Allocate(512 * kMiB, b_);
    EXPECT_GE(beside, most + 3 * kGiB) << "there is still memory";
    const auto address = pools().Allocate(pool_, 2 * kGiB, 0, b_);
    if (allowed) {
      ASSERT_TRUE(address.ok()) << address.status();
      EXPECT_EQ(*address, most);
      EXPECT_FALSE(*streams().QueryStream(0, b_)) << "it waits for the other stream now";
      Free(*address, b_);
    } else {
      EXPECT_EQ(Code(address.status()), CudaResult::kOutOfMemory);
      EXPECT_TRUE(*streams().QueryStream(0, b_));
    }
    Free(beside, b_);
    EXPECT_TRUE(streams().SynchronizeDevice(0).ok());
    EXPECT_TRUE(pools().Trim(pool_, 0).ok());
  }
}

TEST_F(PoolModelTest, EventsCarryWhatTheirStreamWaitedFor) {
  SetOptions({.release_threshold_bytes = ~Bytes{0},
              .reuse_opportunistic = false,
              .reuse_internal_dependencies = false});
  const StreamHandle c = *streams().CreateStream(0, {.non_blocking = true});
  const EventHandle first = *streams().CreateEvent(0, {}), second = *streams().CreateEvent(0, {});
  const DevicePtr address = Allocate(32 * kMiB, a_);
  Busy(a_);
  ASSERT_TRUE(streams().RecordEvent(0, first, a_).ok());
  Free(address, a_);
  ASSERT_TRUE(streams().StreamWaitEvent(0, b_, first).ok());
  const DevicePtr early = Allocate(32 * kMiB, b_);
  EXPECT_NE(early, address) << "the event came before the free";
  ASSERT_TRUE(streams().RecordEvent(0, first, a_).ok());
  ASSERT_TRUE(streams().StreamWaitEvent(0, b_, first).ok());
  ASSERT_TRUE(streams().RecordEvent(0, second, b_).ok());
  ASSERT_TRUE(streams().StreamWaitEvent(0, c, second).ok());
  const DevicePtr late = Allocate(32 * kMiB, c);
  EXPECT_EQ(late, address) << "by way of another stream";
  Free(early, b_);
  Free(late, c);
}

TEST_F(PoolModelTest, AnEventOfTheDeviceTellsTheHostOfAllStreams) {
  SetOptions({});
  const EventHandle event = *streams().CreateEvent(0, {});
  Free(Allocate(32 * kMiB, a_), a_);
  Free(Allocate(32 * kMiB, b_), b_);
  EXPECT_GE(Reserved(), 32 * kMiB);
  ASSERT_TRUE(streams().RecordEventOnDevice(0, event).ok());
  ASSERT_TRUE(streams().SynchronizeEvent(event).ok());
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(PoolModelTest, FreedMemoryCannotBeUsed) {
  const DevicePtr address = Allocate(kMiB, a_), beside = Allocate(kMiB, a_);
  EXPECT_TRUE(model_->UseMemory(0, a_, address, kMiB).ok());
  EXPECT_EQ(Code(model_->UseMemory(0, a_, address, kMiB + 1)), CudaResult::kIllegalAddress);
  EXPECT_EQ(model_->LookUp(address + 5)->base, address);
  EXPECT_EQ(model_->LookUp(address + 5)->bytes, kMiB);
  Free(address, a_);
  const absl::Status used = model_->UseMemory(0, a_, address, 1);
  EXPECT_EQ(Code(used), CudaResult::kIllegalAddress);
  EXPECT_THAT(std::string(used.message()), HasSubstr("nothing of the pool is allocated there"));
  EXPECT_FALSE(model_->LookUp(address).has_value());
  Free(beside, a_);
}

TEST_F(PoolModelTest, WorkThatStillUsesWhatWasFreedIsFoundOut) {
  SetOptions({});
  const DevicePtr address = Allocate(32 * kMiB, a_);
  ASSERT_TRUE(model_->UseMemory(0, b_, address, 1, kBusyNs).ok());
  Free(address, a_);  // a_ never waited for b_
  const absl::Status waited = streams().SynchronizeStream(0, a_);
  EXPECT_EQ(Code(waited), CudaResult::kIllegalAddress) << waited;
  EXPECT_THAT(std::string(waited.message()), HasSubstr("submitted work still uses"));
  model_->clock().Advance(kBusyNs);
  EXPECT_TRUE(streams().SynchronizeStream(0, a_).ok());
}

TEST_F(PoolModelTest, PeersReachThePoolNowAndLater) {
  const DevicePtr before = Allocate(kMiB, a_);
  EXPECT_FALSE(model_->CheckAccess(before, kMiB, 1, Access::kReadWrite).ok());
  EXPECT_EQ(*pools().GetAccess(pool_, 1), Access::kNone);
  ASSERT_TRUE(pools().SetAccess(pool_, 1, Access::kReadWrite).ok());
  const DevicePtr after = Allocate(64 * kMiB, a_);
  EXPECT_TRUE(model_->CheckAccess(before, kMiB, 1, Access::kReadWrite).ok());
  EXPECT_TRUE(model_->CheckAccess(after, 64 * kMiB, 1, Access::kReadWrite).ok());
  EXPECT_EQ(*pools().GetAccess(pool_, 1), Access::kReadWrite);
  EXPECT_EQ(Code(pools().SetAccess(pool_, 0, Access::kNone)), CudaResult::kInvalidDevice);
  Free(before, a_);
  Free(after, a_);
}

TEST_F(PoolModelTest, APoolKeepsItsLimit) {
  const DriverPool limited = *pools().CreatePool(0, 64 * kMiB);
  const DevicePtr address = *pools().Allocate(limited, 40 * kMiB, 0, a_);
  const auto more = pools().Allocate(limited, 40 * kMiB, 0, a_);
  EXPECT_EQ(Code(more.status()), CudaResult::kOutOfMemory);
  EXPECT_EQ(pools().GetUsage(limited)->reserved_bytes, 64 * kMiB);
  Free(address, a_);
  EXPECT_TRUE(pools().DestroyPool(limited).ok());
}

TEST_F(PoolModelTest, ADeviceKeepsItsDefaultPool) {
  const DriverPool default_pool = *pools().GetDefaultPool(1);
  EXPECT_EQ(*pools().GetCurrentPool(1), default_pool);
  EXPECT_EQ(Code(pools().DestroyPool(default_pool)), CudaResult::kInvalidValue);
  EXPECT_FALSE(pools().SetCurrentPool(1, pool_).ok()) << "a pool of another device";
  const DriverPool own = *pools().CreatePool(1);
  ASSERT_TRUE(pools().SetCurrentPool(1, own).ok());
  EXPECT_EQ(*pools().GetCurrentPool(1), own);
  ASSERT_TRUE(pools().DestroyPool(own).ok());
  EXPECT_EQ(*pools().GetCurrentPool(1), default_pool);
  EXPECT_FALSE(pools().DestroyPool(own).ok()) << "once";
}

TEST_F(PoolModelTest, MaximaAreResetToWhatIs) {
  Free(Allocate(64 * kMiB, a_), a_);
  const DevicePtr address = Allocate(kMiB, a_);
  EXPECT_EQ(pools().GetUsage(pool_)->used_bytes_max, 64 * kMiB);
  ASSERT_TRUE(pools().ResetUsedMax(pool_).ok() && pools().ResetReservedMax(pool_).ok());
  EXPECT_EQ(pools().GetUsage(pool_)->used_bytes_max, kMiB);
  EXPECT_EQ(pools().GetUsage(pool_)->reserved_bytes_max, 64 * kMiB);
  Free(address, a_);
}

TEST_F(PoolModelTest, PoolCallsAreUnsafeBesideACapture) {
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kGlobal).ok());
  EXPECT_EQ(Code(pools().Allocate(pool_, kMiB, 0, b_).status()),
            CudaResult::kStreamCaptureUnsupported);
  EXPECT_FALSE(streams().EndCapture(0, a_).ok());
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kThreadLocal).ok());
  EXPECT_EQ(Code(pools().GetUsage(pool_).status()), CudaResult::kStreamCaptureUnsupported);
  EXPECT_FALSE(streams().EndCapture(0, a_).ok());
}

// --- Graphs ---

TEST_F(PoolModelTest, AGraphReusesItsMemoryInItsNodesOrder) {
  const StreamHandle forked = *streams().CreateStream(0, {.non_blocking = true});
  const EventHandle event = *streams().CreateEvent(0, {});
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kGlobal).ok());
  ASSERT_TRUE(streams().RecordEvent(0, event, a_).ok());
  ASSERT_TRUE(streams().StreamWaitEvent(0, forked, event).ok());
  const DevicePtr first = Allocate(8 * kMiB, a_);
  Free(first, a_);
  const DevicePtr beside = Allocate(8 * kMiB, forked);
  EXPECT_NE(beside, first) << "the fork came before the free";
  EXPECT_EQ(Allocate(8 * kMiB, a_), first);
  Free(first, a_);
  Free(beside, forked);
  ASSERT_TRUE(streams().RecordEvent(0, event, forked).ok());
  ASSERT_TRUE(streams().StreamWaitEvent(0, a_, event).ok());
  EXPECT_EQ(Allocate(8 * kMiB, a_), first);
  EXPECT_EQ(Allocate(8 * kMiB, a_), beside) << "after the join";
  const GraphHandle graph = *streams().EndCapture(0, a_);
  EXPECT_EQ(Reserved(), 0u) << "none of it is the pool's";
  EXPECT_EQ(model_->memory().Census().physical_bytes, 32 * kMiB);
  EXPECT_TRUE(streams().DestroyGraph(graph).ok());
  pools().TrimGraphs();
  EXPECT_EQ(model_->memory().Census().physical_bytes, 0u);
}

TEST_F(PoolModelTest, WhatALaunchAllocatedIsFreedOnce) {
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kGlobal).ok());
  const DevicePtr kept = Allocate(8 * kMiB, a_);
  const GraphHandle graph = *streams().EndCapture(0, a_);
  EXPECT_EQ(Code(pools().Free(kept, 0, a_)), CudaResult::kInvalidValue) << "never launched";
  const GraphExecHandle exec = *streams().InstantiateGraph(graph);
  EXPECT_EQ(Code(streams().InstantiateGraph(graph).status()), CudaResult::kNotSupported);
  ASSERT_TRUE(streams().LaunchGraph(0, exec, a_).ok());
  const absl::Status again = streams().LaunchGraph(0, exec, a_);
  EXPECT_EQ(Code(again), CudaResult::kInvalidValue);
  EXPECT_THAT(std::string(again.message()), HasSubstr("were not freed"));
  Free(kept, b_);
  EXPECT_EQ(Code(pools().Free(kept, 0, b_)), CudaResult::kInvalidValue);
  EXPECT_TRUE(streams().LaunchGraph(0, exec, a_).ok());
  EXPECT_TRUE(model_->FreeMemory(kept).ok()) << "cuMemFree does too";
  EXPECT_TRUE(streams().DestroyGraphExec(exec).ok());
  const auto second = streams().InstantiateGraph(graph);
  ASSERT_TRUE(second.ok()) << "one at a time: " << second.status();
  EXPECT_TRUE(streams().DestroyGraphExec(*second).ok());
  EXPECT_TRUE(streams().DestroyGraph(graph).ok());
}

TEST_F(PoolModelTest, AGraphMayFreeByItselfWhenItIsLaunchedAgain) {
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kGlobal).ok());
  const DevicePtr kept = Allocate(8 * kMiB, a_);
  const GraphHandle graph = *streams().EndCapture(0, a_);
  const GraphExecHandle exec = *streams().InstantiateGraph(graph, /*auto_free=*/true);
  EXPECT_TRUE(streams().DestroyGraph(graph).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(streams().LaunchGraph(0, exec, a_).ok());
  EXPECT_TRUE(streams().DestroyGraphExec(exec).ok());
  pools().TrimGraphs();
  EXPECT_EQ(model_->memory().Census().physical_bytes, 32 * kMiB) << "somebody may still read it";
  Free(kept, a_);
}

TEST_F(PoolModelTest, ACaptureThatFailedLeavesNothing) {
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kThreadLocal).ok());
  Allocate(8 * kMiB, a_);
  EXPECT_FALSE(streams().SynchronizeDevice(0).ok());
  EXPECT_FALSE(streams().EndCapture(0, a_).ok());
  pools().TrimGraphs();
  EXPECT_EQ(model_->memory().Census().physical_bytes, 0u);
}

TEST_F(PoolModelTest, MemoryOfAGraphStaysWhileALaunchUsesIt) {
  ASSERT_TRUE(streams().BeginCapture(0, a_, CaptureMode::kGlobal).ok());
  const DevicePtr inner = Allocate(8 * kMiB, a_);
  Free(inner, a_);
  const GraphHandle graph = *streams().EndCapture(0, a_);
  const GraphExecHandle exec = *streams().InstantiateGraph(graph);
  ASSERT_TRUE(streams().LaunchGraph(0, exec, a_).ok());
  model_->memory().MarkUsed(inner, kMiB, model_->clock().NowNs() + kBusyNs);
  EXPECT_TRUE(streams().DestroyGraph(graph).ok());
  EXPECT_TRUE(streams().DestroyGraphExec(exec).ok());
  pools().TrimGraphs();
  EXPECT_EQ(model_->memory().Census().physical_bytes, 32 * kMiB);
  model_->clock().Advance(kBusyNs);
  pools().TrimGraphs();
  EXPECT_EQ(model_->memory().Census().physical_bytes, 0u);
}

}  // namespace
}  // namespace offcut::sim
