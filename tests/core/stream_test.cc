// What the allocator does between streams: whose blocks serve whom, and when.

#include "allocator/policy/sizes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kLagNs = 5'000'000;

TEST(StreamTest, AFreeBlockServesNoOtherStreamWhileItsOwnMayUseIt) {
  World world({.lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  for (Bytes requested : {Bytes{512}, 100 * kKiB, 3 * kMiB}) {
    const DevicePtr block = world.Allocate(requested);
    world.Launch(nullptr, block);
    world.Free(block);
    EXPECT_NE(world.Allocate(requested, side), block);
  }
}

TEST(StreamTest, AFreeBlockServesAnotherStreamOnceItsOwnHasPassed) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.Launch(nullptr, block);
  world.Free(block);
  EXPECT_EQ(world.Allocate(60 * kMiB, side), block) << "nothing else is there to be had";
  EXPECT_EQ(world.sim.model().clock().WaitedNs(), kLagNs);
  EXPECT_EQ(world.allocator->counters().device_waits, 0u);
}

TEST(StreamTest, NoEventOfTheNextOwnerOfItsHandleTellsOfADestroyedStream) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(60 * kMiB, side);
  world.Launch(side, block, /*duration_ns=*/1'000'000'000);
  world.Free(block);
  ASSERT_TRUE(world.sim.model().streams().DestroyStream(side).ok());
  ASSERT_EQ(world.NewStream(), side) << "handles are used again";
  world.Allocate(60 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
  EXPECT_GE(world.sim.model().clock().WaitedNs(), 1'000'000'000u);
}

TEST(StreamTest, WhereThereIsRoomNobodyWaits) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.Launch(nullptr, block, /*duration_ns=*/10'000'000'000);
  world.Free(block);
  world.Allocate(2 * kMiB, side);
  EXPECT_EQ(world.sim.model().clock().WaitedNs(), 0u) << "there was room to grow";
}

TEST(StreamTest, WithSeveralStreamsGranulesAreAsLargeAsTheRequestsAndMoveWhole) {
  World world({.lag_ns = 1'000'000'000});
  world.Allocate(2 * kMiB, world.NewStream());
  const auto created = [&world] {
    std::vector<Bytes> sizes;
    for (const Event& event : world.log.events) {
      if (event.kind == EventKind::kGranuleCreated) sizes.push_back(event.bytes / kMiB);
    }
    return sizes;
  };
  const DevicePtr large = world.Allocate(80 * kMiB);
  world.Allocate(4 * kMiB);
  EXPECT_THAT(created(), ElementsAre(2, 32, 32, 32)) << "the last one holds both";
  world.Launch(nullptr, large);
  world.Free(large);
  // It begins in the 12 MiB behind the block that stays.
  const DevicePtr larger = world.Allocate(82 * kMiB);
  EXPECT_NE(larger, large);
  const Counters counters = world.allocator->counters();
  EXPECT_EQ(counters.moves, 2u);
  EXPECT_EQ(counters.moved_bytes, 64 * kMiB);
  world.Launch(nullptr, larger);
  world.Free(larger);
  EXPECT_EQ(world.allocator->EmptyCache(), 70 * kMiB) << "what lies beside that block stays";
}

TEST(StreamTest, ABlockUsedByAnotherStreamIsReusedOnlyOnceThatStreamHasPassedItsFree) {
  World world({.lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(4 * kMiB);
  world.RecordStream(block, side);
  world.Launch(side, block);
  world.Free(block);
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, static_cast<int64_t>(4 * kMiB));
  const DevicePtr other = world.Allocate(4 * kMiB);
  EXPECT_NE(other, block);
  world.sim.AdvanceNs(kLagNs + 1);
  EXPECT_EQ(world.Allocate(4 * kMiB), block);
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, 0);
}

TEST(StreamTest, AllStreamsMustHavePassed) {
  World world;
  const StreamHandle fast = world.NewStream();
  const StreamHandle slow = world.NewStream();
  const DevicePtr block = world.Allocate(4 * kMiB);
  world.RecordStream(block, fast);
  world.RecordStream(block, slow);
  world.Launch(fast, block, 1'000);
  world.Launch(slow, block, 1'000'000);
  world.Free(block);
  world.sim.AdvanceNs(2'000);
  EXPECT_NE(world.Allocate(4 * kMiB), block);
  world.sim.AdvanceNs(1'000'000);
  EXPECT_EQ(world.Allocate(4 * kMiB), block);
}

TEST(StreamTest, AUseOnItsOwnStreamOrTwiceOnAnotherChangesNothing) {
  World world({.lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(4 * kMiB, side);
  world.RecordStream(block, side);
  world.Free(block);
  EXPECT_EQ(world.Allocate(4 * kMiB, side), block);
  world.RecordStream(block, nullptr);
  world.RecordStream(block, nullptr);
  EXPECT_EQ(world.allocator->counters().stream_uses, 1u);
}

TEST(StreamTest, ASlotWaitsForItsStreamsToo) {
  World world({.lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr slot = world.Allocate(512);
  world.RecordStream(slot, side);
  world.Launch(side, slot);
  world.Free(slot);
  EXPECT_NE(world.Allocate(512), slot);
  world.sim.AdvanceNs(kLagNs + 1);
  EXPECT_EQ(world.Allocate(512), slot);
}

TEST(StreamTest, ABlockUsedByAPeersStreamIsReusedOnlyOnceThatStreamHasPassedItsFree) {
  for (const bool legacy : {false, true}) {
    World world({.lag_ns = kLagNs, .devices = 2});
    sim::StreamModel& streams = world.sim.model().streams();
    const StreamHandle peer =
        legacy ? nullptr : *streams.CreateStream(1, sim::StreamOptions{.non_blocking = true});
    const DevicePtr block = world.Allocate(4 * kMiB);
    world.RecordStream(block, 1, peer);
    ASSERT_TRUE(streams.Submit(1, peer, 10 * kLagNs).ok());
    world.Free(block);
    world.sim.AdvanceNs(2 * kLagNs);
    EXPECT_NE(world.Allocate(4 * kMiB), block) << "its own device is done, the peer is not";
    world.sim.AdvanceNs(10 * kLagNs);
    EXPECT_EQ(world.Allocate(4 * kMiB), block);
  }
}

// Each device has a legacy stream, and all have the same handle.
TEST(StreamTest, TheLegacyStreamsOfTwoDevicesAreTwoStreams) {
  World world({.lag_ns = kLagNs, .devices = 2});
  const DevicePtr block = world.Allocate(4 * kMiB);
  world.RecordStream(block, 0, nullptr);
  EXPECT_EQ(world.allocator->counters().stream_uses, 0u);
  world.RecordStream(block, 1, nullptr);
  EXPECT_EQ(world.allocator->counters().stream_uses, 1u);
  EXPECT_FALSE(world.allocator->RecordStream(block, 2, nullptr).ok()) << "no such device";
}

TEST(StreamTest, WaitsForEventsOfPeersBeforeItFails) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs, .devices = 2});
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.RecordStream(block, 1, nullptr);
  ASSERT_TRUE(world.sim.model().streams().Submit(1, nullptr, 10 * kLagNs).ok());
  world.Free(block);
  EXPECT_EQ(world.Allocate(60 * kMiB), block);
}

TEST(StreamTest, EmptyingTheCacheWaitsForPeersThatUseIt) {
  World world({.devices = 2});
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.RecordStream(block, 1, nullptr);
  ASSERT_TRUE(world.sim.model().streams().Submit(1, nullptr, 10 * kLagNs).ok());
  world.Free(block);
  world.allocator->EmptyCache();
  EXPECT_EQ(world.reserved(), 0u);
}

TEST(StreamTest, ADestroyedStreamOfAPeerIsProvenIdleByThePeer) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs, .devices = 2});
  sim::StreamModel& streams = world.sim.model().streams();
  const StreamHandle peer = *streams.CreateStream(1, sim::StreamOptions{.non_blocking = true});
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.RecordStream(block, 1, peer);
  const absl::StatusOr<sim::Submission> work = streams.Submit(1, peer, 100 * kLagNs);
  ASSERT_TRUE(streams.DestroyStream(peer).ok());
  world.Free(block);
  // The peer's allocator may know of a capture there, which a wait would end.
  bool captured = true;
  world.allocator->SetWaitForPeer([&](DeviceIndex device) -> absl::Status {
    EXPECT_EQ(device, 1);
    if (captured) return absl::FailedPreconditionError("captured");
    return world.driver.SynchronizeDevice(device);
  });
  EXPECT_FALSE(world.TryAllocate(60 * kMiB).ok());
  captured = false;
  EXPECT_EQ(world.Allocate(60 * kMiB), block);
  EXPECT_GE(world.sim.model().clock().NowNs(), work->done_ns);
}

TEST(StreamTest, NobodyWaitsForADeviceThatACaptureIsUnderWayOn) {
  World world({.lag_ns = kLagNs});
  sim::StreamModel& streams = world.sim.model().streams();
  const StreamHandle side = world.NewStream();
  world.Allocate(512, side);
  ASSERT_TRUE(streams.BeginCapture(0, side, sim::CaptureMode::kGlobal).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(world.allocator->WaitForDevice()));
  ASSERT_TRUE(streams.EndCapture(0, side).ok()) << "the capture survives";
  EXPECT_TRUE(world.allocator->WaitForDevice().ok());
}

TEST(StreamTest, WaitsForPendingFreesBeforeItFails) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.RecordStream(block, side);
  world.Launch(side, block);
  world.Free(block);
  EXPECT_EQ(world.Allocate(60 * kMiB), block);
}

TEST(StreamTest, AFreedPendingBlockCannotBeFreedAgain) {
  World world({.lag_ns = kLagNs});
  const DevicePtr block = world.Allocate(4 * kMiB);
  world.RecordStream(block, world.NewStream());
  world.Free(block);
  EXPECT_FALSE(world.allocator->Free(block).ok());
  EXPECT_FALSE(world.allocator->RecordStream(block, 0, nullptr).ok());
  world.Check();
}

TEST(StreamTest, ADestroyedStreamIsProvenIdleByTheDevice) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = kLagNs});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(60 * kMiB);
  world.RecordStream(block, side);
  ASSERT_TRUE(world.sim.model().streams().DestroyStream(side).ok());
  world.Free(block);
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, static_cast<int64_t>(60 * kMiB));
  world.Allocate(60 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
}

TEST(StreamTest, ACapturingStreamWithoutARouteIsServedFromItsDefaultPool) {
  World world;
  const StreamHandle side = world.NewStream();
  const DevicePtr cached = world.Allocate(3 * kMiB, side);
  world.Free(cached);
  sim::StreamModel& streams = world.sim.model().streams();
  ASSERT_TRUE(streams.BeginCapture(0, side, sim::CaptureMode::kGlobal).ok());
  EXPECT_EQ(world.Allocate(3 * kMiB, side), cached);
  world.Allocate(30 * kMiB, side);
  ASSERT_TRUE(streams.EndCapture(0, side).ok()) << "the capture survives growth";
}

TEST(StreamTest, AFreeDuringTheCaptureOfAUsingStreamWaitsForItsEnd) {
  World world;
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(4 * kMiB);
  world.RecordStream(block, side);
  sim::StreamModel& streams = world.sim.model().streams();
  ASSERT_TRUE(streams.BeginCapture(0, side, sim::CaptureMode::kRelaxed).ok());
  world.Free(block);
  EXPECT_NE(world.Allocate(4 * kMiB), block);
  ASSERT_TRUE(streams.EndCapture(0, side).ok());
  EXPECT_EQ(world.Allocate(4 * kMiB), block);
}

TEST(StreamTest, TheLegacyStreamHasOnePoolUnderAllItsNames) {
  World world;
  const DevicePtr block = world.Allocate(4 * kMiB, nullptr);
  world.Free(block);
  EXPECT_EQ(world.Allocate(4 * kMiB, reinterpret_cast<StreamHandle>(0x1)), block);
}

}  // namespace
}  // namespace offcut
