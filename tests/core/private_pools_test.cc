// Private pools: which requests they serve, what of theirs serves others, when their memory goes.

#include <algorithm>
#include <thread>

#include "absl/synchronization/barrier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

constexpr PrivatePoolId kGraphPool = {.first = 1};
constexpr PrivatePoolId kSharedPool = {.second = 1};
constexpr uint64_t kLagNs = 5'000'000;

PrivatePools::Filter All() {
  return [](StreamHandle) { return true; };
}
PrivatePools::Filter Only(StreamHandle stream) {
  return [stream](StreamHandle asked) { return asked == stream; };
}

void Begin(World& world, PrivatePoolId id, PrivatePools::Filter filter = All(),
           StreamHandle stream = nullptr) {
  const absl::Status begun = world.allocator->BeginAllocateToPool(id, stream, std::move(filter));
  ASSERT_TRUE(begun.ok()) << begun;
}
void End(World& world, PrivatePoolId id) {
  const absl::Status ended = world.allocator->EndAllocateToPool(id);
  ASSERT_TRUE(ended.ok()) << ended;
}
void Release(World& world, PrivatePoolId id) {
  const absl::Status released = world.allocator->ReleasePool(id);
  ASSERT_TRUE(released.ok()) << released;
  world.Check();
}
Accounting Sum(World& world) {
  world.Check();
  return world.allocator->Account();
}

// --- Routes --------------------------------------------------------------------------------------

TEST(PrivatePoolTest, NeitherTakesFromADefaultPoolNorGivesToOne) {
  World world;
  for (const Bytes requested : {Bytes{512}, 100 * kKiB, 3 * kMiB, 30 * kMiB}) {
    const DevicePtr outside = world.Allocate(requested);
    world.Free(outside);
    Begin(world, kGraphPool);
    const DevicePtr inside = world.Allocate(requested);
    EXPECT_NE(inside, outside);
    world.Free(inside);
    EXPECT_EQ(world.Allocate(requested), inside) << "it serves its own";
    End(world, kGraphPool);
    world.Free(inside);
    EXPECT_EQ(world.Allocate(requested), outside);
  }
}

TEST(PrivatePoolTest, ABlockGoesBackWhereItCameFrom) {
  World world;
  Begin(world, kGraphPool);
  const DevicePtr inside = world.Allocate(3 * kMiB);
  End(world, kGraphPool);
  world.Free(inside);
  EXPECT_NE(world.Allocate(3 * kMiB), inside);
  Begin(world, kGraphPool);
  EXPECT_EQ(world.Allocate(3 * kMiB), inside);
}

TEST(PrivatePoolTest, EachStreamHasAPoolInIt) {
  World world;
  const StreamHandle side = world.NewStream();
  Begin(world, kGraphPool);
  const DevicePtr block = world.Allocate(3 * kMiB);
  world.Free(block);
  EXPECT_NE(world.Allocate(3 * kMiB, side), block);
  EXPECT_EQ(world.Allocate(3 * kMiB), block);
}

TEST(PrivatePoolTest, TheFilterChooses) {
  World world;
  const StreamHandle side = world.NewStream();
  const DevicePtr outside = world.Allocate(3 * kMiB);
  world.Free(outside);
  Begin(world, kGraphPool, Only(side));
  EXPECT_EQ(world.Allocate(3 * kMiB), outside);
  const DevicePtr inside = world.Allocate(3 * kMiB, side);
  End(world, kGraphPool);
  world.Free(inside);
  EXPECT_NE(world.Allocate(3 * kMiB, side), inside);
}

TEST(PrivatePoolTest, TheLatestRouteThatSaysYesWins) {
  World world;
  const StreamHandle side = world.NewStream();
  Begin(world, kGraphPool);
  const DevicePtr first = world.Allocate(3 * kMiB);
  world.Free(first);
  Begin(world, kSharedPool);
  const DevicePtr second = world.Allocate(3 * kMiB);
  EXPECT_NE(second, first);
  world.Free(second);
  Begin(world, {.second = 2}, Only(side));
  EXPECT_EQ(world.Allocate(3 * kMiB), second) << "the third says no";
  End(world, kSharedPool);
  EXPECT_EQ(world.Allocate(3 * kMiB), first) << "in any order";
}

TEST(PrivatePoolTest, AFilterThatFailsFailsTheRequest) {
  World world;
  Begin(world, kGraphPool, [](StreamHandle) { return absl::AbortedError("no idea"); });
  EXPECT_EQ(world.TryAllocate(512), absl::AbortedError("no idea"));
  End(world, kGraphPool);
  world.Allocate(512);
}

TEST(PrivatePoolTest, ThreadsHaveRoutesOfTheirOwn) {
  World world;
  constexpr int kThreads = 2;
  std::vector<std::vector<DevicePtr>> blocks(kThreads);
  absl::Barrier begun(kThreads);
  const auto work = [&](int index) {
    const std::thread::id self = std::this_thread::get_id();
    Begin(world, {.second = 10 + static_cast<uint64_t>(index)},
          [self](StreamHandle) { return std::this_thread::get_id() == self; });
    begun.Block();
    for (int i = 0; i < 200; ++i) {
      const auto block = world.allocator->Allocate(nullptr, 600 * kKiB);
      ASSERT_TRUE(block.ok()) << block.status();
      blocks[static_cast<size_t>(index)].push_back(*block);
      if (i % 2 != 0) continue;
      ASSERT_TRUE(world.allocator->Free(*block).ok());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  world.Check();
  const StateView view = world.allocator->View();
  for (const StateView::Taken& block : view.taken) {
    const bool first = std::count(blocks[0].begin(), blocks[0].end(), block.address) > 0;
    EXPECT_EQ(view.pools[block.pool].private_pool_id,
              PrivatePoolId{.second = first ? 10u : 11u}.Encode());
  }
}

TEST(PrivatePoolTest, WhatIsEndedIsDestroyedOutsideTheLock) {
  World world;
  // Destroying it asks the allocator.
  std::shared_ptr<World> asks(&world, [](World* at) { at->allocator->counters(); });
  Begin(world, kGraphPool, [asks](StreamHandle) { return true; });
  EXPECT_FALSE(world.allocator
                   ->BeginAllocateToPool(kGraphPool, nullptr, [asks](StreamHandle) { return true; })
                   .ok());
  asks.reset();
  End(world, kGraphPool);
}

TEST(PrivatePoolTest, ErrorsAreThoseOfPyTorch) {
  World world;
  EXPECT_THAT(std::string(world.allocator->EndAllocateToPool(kGraphPool).message()),
              HasSubstr("not currently recording to mempool_id"));
  Begin(world, kGraphPool);
  EXPECT_THAT(
      std::string(world.allocator->BeginAllocateToPool(kGraphPool, nullptr, All()).message()),
      HasSubstr("already recording to mempool_id"));
  EXPECT_EQ(world.allocator->PoolUseCount(kGraphPool), 1u) << "the refused one does not count";
  for (const PrivatePoolId id : {PrivatePoolId{}, {.first = 1, .second = 1}, {.first = ~0ull}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(world.allocator->RetainPool(id)));
    EXPECT_TRUE(absl::IsInvalidArgument(world.allocator->BeginAllocateToPool(id, nullptr, All())));
  }
  EXPECT_TRUE(absl::IsNotFound(world.allocator->ReleasePool(kSharedPool)));
  EXPECT_TRUE(absl::IsNotFound(world.allocator->SetNoSplit(kSharedPool)));
  EXPECT_TRUE(absl::IsNotFound(world.allocator->SetUseOnOom(kSharedPool, true)));
  EXPECT_TRUE(absl::IsNotFound(world.allocator->HasLiveBlocks(kSharedPool, {}).status()));
}

// --- Uses ----------------------------------------------------------------------------------------

TEST(PrivatePoolTest, CountsItsUses) {
  World world;
  EXPECT_EQ(world.allocator->PoolUseCount(kSharedPool), 0u);
  ASSERT_TRUE(world.allocator->RetainPool(kSharedPool).ok());
  Begin(world, kSharedPool);
  EXPECT_EQ(world.allocator->PoolUseCount(kSharedPool), 2u);
  End(world, kSharedPool);
  EXPECT_EQ(world.allocator->PoolUseCount(kSharedPool), 2u) << "as PyTorch counts";
  Release(world, kSharedPool);
  Release(world, kSharedPool);
  EXPECT_EQ(world.allocator->PoolUseCount(kSharedPool), 0u);
  EXPECT_EQ(world.log.Count(EventKind::kPrivatePoolCreated), 1u);
  EXPECT_EQ(world.log.Count(EventKind::kPrivatePoolReleased), 1u);
}

TEST(PrivatePoolTest, KeepsItsMemoryWhileInUse) {
  World world({.memory_bytes = 64 * kMiB});
  Begin(world, kGraphPool);
  const DevicePtr block = world.Allocate(40 * kMiB);
  End(world, kGraphPool);
  world.Free(block);
  EXPECT_EQ(Sum(world).private_pools_free_bytes, 40 * kMiB);
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
  EXPECT_EQ(world.allocator->EmptyCacheOf(kGraphPool), 0u);
  const absl::Status failed = world.TryAllocate(40 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(failed));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("private pools    40.00 MiB"));
  Release(world, kGraphPool);
  world.Allocate(40 * kMiB);
}

TEST(PrivatePoolTest, GivesBackAfterTheLastRelease) {
  World world;
  Begin(world, kGraphPool);
  const DevicePtr kept = world.Allocate(4 * kMiB);
  world.Free(world.Allocate(20 * kMiB));
  End(world, kGraphPool);
  Release(world, kGraphPool);
  EXPECT_EQ(world.allocator->EmptyCacheOf(kSharedPool), 0u) << "of another pool";
  EXPECT_EQ(world.allocator->EmptyCacheOf(kGraphPool), 20 * kMiB);
  EXPECT_EQ(Sum(world).live_bytes, 4 * kMiB);
  world.Free(kept);
  EXPECT_GT(world.allocator->EmptyCache(), 0u);
  EXPECT_EQ(world.reserved(), 0u);
  world.Check();
}

TEST(PrivatePoolTest, OnlyAWaitForTheDeviceProvesItIdle) {
  World world({.lag_ns = kLagNs});
  const StreamHandle replays = world.NewStream();
  Begin(world, kGraphPool);
  const DevicePtr block = world.Allocate(20 * kMiB);
  End(world, kGraphPool);
  // A graph with the block in it is launched on a stream that the allocator never hears of. The
  // simulated driver refuses to unmap what is in use.
  world.Launch(replays, block, 50'000'000);
  world.Free(block);
  Release(world, kGraphPool);
  EXPECT_EQ(world.allocator->EmptyCache(), 20 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
  world.Check();
}

TEST(PrivatePoolTest, AWaitBeforeTheReleaseProvesNothing) {
  World world({.memory_bytes = 64 * kMiB});
  const StreamHandle replays = world.NewStream();
  Begin(world, kGraphPool);
  const DevicePtr block = world.Allocate(40 * kMiB);
  End(world, kGraphPool);
  world.Free(block);
  world.allocator->EmptyCache();
  const absl::Status launched =
      world.sim.model().UseMemory(0, replays, block, 40 * kMiB, 1'000'000'000);
  ASSERT_TRUE(launched.ok()) << launched;
  Release(world, kGraphPool);
  const uint64_t waits = world.allocator->counters().device_waits;
  world.Allocate(40 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, waits + 1);
}

TEST(PrivatePoolTest, AnIdMayBeUsedAgainWhileBlocksOfItsFormerPoolLive) {
  World world;
  Begin(world, kSharedPool);
  const DevicePtr old = world.Allocate(4 * kMiB);
  const DevicePtr freed = world.Allocate(4 * kMiB);
  world.Free(freed);
  End(world, kSharedPool);
  Release(world, kSharedPool);
  Begin(world, kSharedPool);
  EXPECT_NE(world.Allocate(4 * kMiB), freed) << "a launch may still be under way there";
  End(world, kSharedPool);
  world.Free(old);
  world.allocator->EmptyCacheOf(kSharedPool);
  EXPECT_EQ(Sum(world).live_bytes, 4 * kMiB);
  EXPECT_EQ(world.reserved(), 20 * kMiB) << "the segment of the pool in use";
}

TEST(PrivatePoolTest, ManyShortLivedPoolsDoNotUseUpTheirIndices) {
  World world;
  const StreamHandle side = world.NewStream();
  for (uint64_t i = 1; i <= 100; ++i) {
    Begin(world, {.first = i});
    world.Free(world.Allocate(3 * kMiB, side));
    End(world, {.first = i});
    Release(world, {.first = i});
    world.allocator->EmptyCache();
  }
  EXPECT_LE(world.allocator->View().pools.size(), 2u);
  EXPECT_EQ(world.reserved(), 0u);
  world.Check();
}

TEST(PrivatePoolTest, KnowsItsLiveBlocks) {
  World world;
  Begin(world, kGraphPool);
  const DevicePtr a = world.Allocate(512), b = world.Allocate(4 * kMiB);
  End(world, kGraphPool);
  const DevicePtr outside = world.Allocate(512);
  const auto has = [&](std::vector<DevicePtr> addresses) {
    return *world.allocator->HasLiveBlocks(kGraphPool, addresses);
  };
  EXPECT_TRUE(has({a, b}));
  EXPECT_FALSE(has({a}));
  EXPECT_FALSE(has({a, b, outside}));
  world.Free(b);
  EXPECT_TRUE(has({a}));
  EXPECT_FALSE(has({a, b}));
}

// --- Checkpoints ---------------------------------------------------------------------------------

class CheckpointTest : public ::testing::Test {
 protected:
  DevicePtr Inside(Bytes requested) {
    Begin(world_, kGraphPool);
    const DevicePtr block = world_.Allocate(requested);
    End(world_, kGraphPool);
    Release(world_, kGraphPool);
    return block;
  }
  PoolCheckpoint Take() {
    const auto checkpoint = world_.allocator->TakeCheckpoint(kGraphPool);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return *checkpoint;
  }
  RestoredBlocks Restore(const PoolCheckpoint& checkpoint) {
    const auto restored = world_.allocator->RestoreCheckpoint(checkpoint);
    EXPECT_TRUE(restored.ok()) << restored.status();
    world_.Check();
    return *restored;
  }
  bool HasLive(std::vector<DevicePtr> addresses) {
    return *world_.allocator->HasLiveBlocks(kGraphPool, addresses);
  }
  void SetUp() override { ASSERT_TRUE(world_.allocator->RetainPool(kGraphPool).ok()); }

  World world_;
};

TEST_F(CheckpointTest, BringsBackWhatLivedWhereItWas) {
  const DevicePtr a = Inside(700), b = Inside(300 * kKiB), c = Inside(3 * kMiB),
                  d = Inside(5 * kMiB);
  world_.Free(b);
  const PoolCheckpoint then = Take();
  world_.Free(a);
  world_.Free(c);
  const DevicePtr e = Inside(30 * kMiB), f = Inside(100 * kKiB);
  const RestoredBlocks restored = Restore(then);
  EXPECT_THAT(restored.freed, ::testing::UnorderedElementsAre(d, e, f));
  EXPECT_THAT(restored.allocated, ::testing::UnorderedElementsAre(a, c, d));
  EXPECT_TRUE(HasLive({a, c, d}));
  EXPECT_EQ(world_.allocator->FindBlock(a)->requested, 700u);
  const PoolCheckpoint now = Take();
  ASSERT_EQ(now.segments.size(), then.segments.size() + 1)
      << "the segment of 30 MiB is there still";
  for (const PoolCheckpoint::Segment& due : then.segments) {
    const auto it = std::find_if(now.segments.begin(), now.segments.end(),
                                 [&](const auto& s) { return s.address == due.address; });
    ASSERT_NE(it, now.segments.end());
    ASSERT_EQ(it->blocks.size(), due.blocks.size());
    for (size_t i = 0; i < due.blocks.size(); ++i) {
      EXPECT_EQ(it->blocks[i].size, due.blocks[i].size);
      EXPECT_EQ(it->blocks[i].live, due.blocks[i].live);
    }
  }
  world_.Free(a);
  EXPECT_EQ(Inside(700), a);
}

TEST_F(CheckpointTest, OfAnEmptyPoolFreesEverything) {
  const PoolCheckpoint nothing = Take();
  const DevicePtr a = Inside(700), b = Inside(5 * kMiB);
  const DevicePtr outside = world_.Allocate(700);
  EXPECT_THAT(Restore(nothing).freed, ::testing::UnorderedElementsAre(a, b));
  EXPECT_TRUE(HasLive({}));
  world_.Free(outside);
}

TEST_F(CheckpointTest, MayBeRestoredAgainAndAgain) {
  const DevicePtr a = Inside(5 * kMiB);
  const PoolCheckpoint one = Take();
  const DevicePtr b = Inside(5 * kMiB);
  const PoolCheckpoint two = Take();
  for (int i = 0; i < 3; ++i) {
    Restore(one);
    EXPECT_TRUE(HasLive({a}));
    Restore(two);
    EXPECT_TRUE(HasLive({a, b}));
  }
}

TEST_F(CheckpointTest, ErrorsAreThoseOfPyTorchAndChangeNothing) {
  const StreamHandle side = world_.NewStream();
  const DevicePtr a = Inside(5 * kMiB);
  const PoolCheckpoint then = Take();
  world_.RecordStream(a, side);
  EXPECT_THAT(std::string(world_.allocator->RestoreCheckpoint(then).status().message()),
              HasSubstr("Events should have synchronized when setting checkpointed block"));
  world_.Launch(side, a, 1'000'000'000);
  world_.Free(a);
  EXPECT_THAT(std::string(world_.allocator->TakeCheckpoint(kGraphPool).status().message()),
              HasSubstr("Events should have synchronized when checkpointing block"));
  world_.sim.AdvanceNs(2'000'000'000);
  EXPECT_TRUE(Take().segments[0].blocks.size() == 1) << "the free is finished";
  Restore(then);
  world_.Free(a);
  Release(world_, kGraphPool);
  world_.allocator->EmptyCache();
  EXPECT_TRUE(absl::IsNotFound(world_.allocator->RestoreCheckpoint(then).status()));
  EXPECT_TRUE(absl::IsNotFound(world_.allocator->TakeCheckpoint(kGraphPool).status()));
  ASSERT_TRUE(world_.allocator->RetainPool(kGraphPool).ok());
  EXPECT_THAT(std::string(world_.allocator->RestoreCheckpoint(then).status().message()),
              HasSubstr("could not find"));
  world_.Check();
}

// --- Properties ----------------------------------------------------------------------------------

TEST(PrivatePoolTest, AFreeBlockServesOthersOnlyWhereThatIsAllowedAndMemoryIsOut) {
  World world({.memory_bytes = 64 * kMiB});
  Begin(world, kSharedPool);
  const DevicePtr inside = world.Allocate(40 * kMiB);
  End(world, kSharedPool);
  world.Free(inside);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(40 * kMiB)));
  ASSERT_TRUE(world.allocator->SetUseOnOom(kSharedPool, true).ok());
  const DevicePtr fits = world.Allocate(8 * kMiB);
  EXPECT_EQ(world.Allocate(40 * kMiB), inside);
  EXPECT_NE(fits, inside) << "the device had that much";
  world.Free(inside);
  Begin(world, kGraphPool);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(40 * kMiB))) << "in a pool already";
  End(world, kGraphPool);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(40 * kMiB, world.NewStream())))
      << "on another stream";
  ASSERT_TRUE(world.allocator->SetUseOnOom(kSharedPool, false).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(40 * kMiB)));
}

TEST(PrivatePoolTest, TheProgramsCallbackFreesBeforeMemoryIsOut) {
  World world({.memory_bytes = 64 * kMiB});
  const DevicePtr hoarded = world.Allocate(40 * kMiB);
  int calls = 0;
  world.allocator->SetFreeMemoryCallback([&] {
    if (++calls == 1) return false;
    return world.allocator->Free(hoarded).ok();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(50 * kMiB)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(world.Allocate(40 * kMiB), hoarded);
  EXPECT_EQ(calls, 2);
  world.allocator->SetFreeMemoryCallback(nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(50 * kMiB)));
  EXPECT_EQ(calls, 2);
}

// --- Captures ------------------------------------------------------------------------------------

// A capture as PyTorch makes one: the route first, then the capture of a side stream.
class CaptureTest : public ::testing::TestWithParam<sim::CaptureMode> {
 protected:
  void BeginCapture(World& world, StreamHandle stream) {
    Begin(
        world, kGraphPool,
        [&world](StreamHandle asked) -> absl::StatusOr<bool> {
          return world.driver.IsCapturing(0, asked);
        },
        stream);
    ASSERT_TRUE(world.sim.model().streams().BeginCapture(0, stream, GetParam()).ok());
  }
  void EndCapture(World& world, StreamHandle stream) {
    const auto graph = world.sim.model().streams().EndCapture(0, stream);
    EXPECT_TRUE(graph.ok()) << graph.status();
    End(world, kGraphPool);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, CaptureTest,
                         ::testing::Values(sim::CaptureMode::kGlobal,
                                           sim::CaptureMode::kThreadLocal,
                                           sim::CaptureMode::kRelaxed));

TEST_P(CaptureTest, SurvivesRequestsFreesAndGrowth) {
  World world({.lag_ns = kLagNs});
  const StreamHandle stream = world.NewStream(), other = world.NewStream();
  const DevicePtr before = world.Allocate(8 * kMiB);
  world.RecordStream(before, other);
  world.Launch(other, before, 1'000'000);
  BeginCapture(world, stream);
  world.Free(before);
  std::vector<DevicePtr> inside;
  for (const Bytes requested : {Bytes{512}, 100 * kKiB, 3 * kMiB, 30 * kMiB}) {
    inside.push_back(world.Allocate(requested, stream));
    world.Allocate(requested);
  }
  world.sim.AdvanceNs(20'000'000);
  for (const DevicePtr block : inside) world.Free(block);
  EXPECT_EQ(world.Allocate(30 * kMiB, stream), inside.back()) << "within the capture";
  EndCapture(world, stream);
}

TEST_P(CaptureTest, NothingIsWaitedForMovedOrGivenBackMeanwhile) {
  World world({.memory_bytes = 128 * kMiB});
  const StreamHandle stream = world.NewStream(), other = world.NewStream();
  const DevicePtr idle = world.Allocate(60 * kMiB);
  const DevicePtr pending = world.Allocate(20 * kMiB);
  world.RecordStream(pending, other);
  world.Launch(other, pending, 1'000'000'000'000);
  world.Free(idle);
  world.Free(pending);
  BeginCapture(world, stream);
  const size_t reserved = world.reserved();
  const absl::Status failed = world.TryAllocate(60 * kMiB, stream);
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("a stream is being captured"));
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(70 * kMiB)))
      << "nor for requests beside the capture";
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
  EXPECT_EQ(world.reserved(), reserved);
  EndCapture(world, stream);
  Begin(world, kGraphPool);
  world.Allocate(60 * kMiB, stream);
}

TEST_P(CaptureTest, ACaptureThatHasAllocatedNothingIsKnownToo) {
  World world;
  world.Free(world.Allocate(30 * kMiB));
  const StreamHandle stream = world.NewStream();
  BeginCapture(world, stream);
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
  EndCapture(world, stream);
  EXPECT_EQ(world.allocator->EmptyCache(), 30 * kMiB);
}

// PyTorch's captures are known by their routes; another library's may be on a stream of its own.
TEST_P(CaptureTest, ACaptureThatNobodyTellsOfSurvivesAWait) {
  for (const char* conf : {"", "expandable_segments:False"}) {
    World world({.memory_bytes = 128 * kMiB, .config = *Config::Parse({.offcut_conf = conf})});
    const StreamHandle stream = world.NewStream();
    world.Free(world.Allocate(60 * kMiB));
    sim::StreamModel& streams = world.sim.model().streams();
    ASSERT_TRUE(streams.BeginCapture(0, stream, GetParam()).ok());
    EXPECT_EQ(world.allocator->EmptyCache(), 60 * kMiB);
    world.Free(world.Allocate(100 * kMiB));
    world.Allocate(100 * kMiB, world.NewStream());
    const auto graph = streams.EndCapture(0, stream);
    EXPECT_TRUE(graph.ok()) << graph.status();
  }
}

TEST_P(CaptureTest, AUseWithinTheCaptureEndsWithIt) {
  World world({.lag_ns = kLagNs});
  sim::StreamModel& streams = world.sim.model().streams();
  const StreamHandle stream = world.NewStream(), joined = world.NewStream();
  BeginCapture(world, stream);
  // `joined` becomes part of the capture by waiting for an event of it, and is joined again.
  const EventHandle fork = *streams.CreateEvent(0, {}), join = *streams.CreateEvent(0, {});
  ASSERT_TRUE(streams.RecordEvent(0, fork, stream).ok());
  ASSERT_TRUE(streams.StreamWaitEvent(0, joined, fork).ok());
  const DevicePtr block = world.Allocate(4 * kMiB, stream);
  world.RecordStream(block, joined);
  world.Launch(joined, block);
  ASSERT_TRUE(streams.RecordEvent(0, join, joined).ok());
  ASSERT_TRUE(streams.StreamWaitEvent(0, stream, join).ok());
  world.Free(block);
  EXPECT_NE(world.Allocate(4 * kMiB, stream), block) << "nothing proves the order within";
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, static_cast<int64_t>(4 * kMiB));
  EndCapture(world, stream);
  world.Allocate(512);
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, 0)
      << "no event, though the lag is long";
  Begin(world, kGraphPool);
  EXPECT_EQ(world.Allocate(4 * kMiB, stream), block);
}

}  // namespace
}  // namespace offcut
