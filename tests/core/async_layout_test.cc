// The async layout: blocks from the driver's own pools, their limits, private pools and captures.

#include "allocator/core/async_layout.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_results.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLagNs = 5'000'000;
// By which the driver's pools grow.
constexpr Bytes kChunk = 32 * kMiB;

Config Async(const std::string& more = "") {
  return *Config::Parse({.offcut_conf = absl::StrCat("backend:cudaMallocAsync,", more)});
}

TEST(AsyncLayoutTest, ABlockIsAnAllocationOfTheDrivers) {
  World world({.config = Async()});
  const DevicePtr block = world.Allocate(5 * kMiB + 1);
  EXPECT_EQ(block % 512, 0u);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kAllocateAsync), 1u);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kCreateMemory), 0u);
  EXPECT_EQ(world.reserved(), kChunk);
  const Accounting sum = world.allocator->Account();
  EXPECT_EQ(sum.live_bytes, 5 * kMiB + 1);
  EXPECT_EQ(sum.rounding_bytes, 511u);
  EXPECT_EQ(sum.driver_pool_free_bytes, kChunk - 5 * kMiB - 512);
  EXPECT_EQ(sum.outside_bytes, 0);
  world.Free(block);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kFreeAsync), 1u);
  EXPECT_EQ(world.allocator->Account().driver_pool_free_bytes, kChunk);
}

TEST(AsyncLayoutTest, AFreedBlockServesItsStreamAtOnce) {
  World world({.lag_ns = kLagNs, .config = Async()});
  const DevicePtr block = world.Allocate(30 * kMiB);
  world.Launch(nullptr, block);
  world.Free(block);
  EXPECT_EQ(world.Allocate(30 * kMiB), block);
  EXPECT_EQ(world.reserved(), kChunk);
}

TEST(AsyncLayoutTest, EmptyCacheWaitsAndTrims) {
  World world({.lag_ns = kLagNs, .config = Async()});
  const DevicePtr kept = world.Allocate(kMiB);
  const DevicePtr block = world.Allocate(100 * kMiB);
  world.Launch(nullptr, block);
  world.Free(block);
  const Bytes before = world.reserved();
  EXPECT_EQ(world.allocator->EmptyCache(), before - kChunk);
  world.Check();
  EXPECT_EQ(world.reserved(), kChunk);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
  world.Free(kept);
  EXPECT_EQ(world.allocator->EmptyCache(), kChunk);
  EXPECT_EQ(world.reserved(), 0u);
  EXPECT_EQ(world.sim.model().memory().Census().physical_bytes, 0u);
}

TEST(AsyncLayoutTest, PeaksAreThoseOfTheDriversPools) {
  World world({.config = Async()});
  world.Free(world.Allocate(100 * kMiB));
  world.allocator->EmptyCache();
  world.Allocate(kMiB);
  EXPECT_EQ(world.reserved(), kChunk);
  EXPECT_EQ(world.allocator->counters().reserved_bytes[0].peak, static_cast<int64_t>(4 * kChunk));
}

TEST(AsyncLayoutTest, SizesAreRoundedToDivisionsOfAPowerOfTwo) {
  World world({.config = Async("roundup_power2_divisions:[4:2,>:4]")});
  EXPECT_EQ(world.allocator->FindBlock(world.Allocate(5 * kMiB))->size, 6 * kMiB);
}

TEST(AsyncLayoutTest, OptionsReachTheDriversPools) {
  const auto reuses = [](const std::string& conf) {
    World world({.lag_ns = kLagNs, .config = Async(conf)});
    const StreamHandle side = world.NewStream();
    const DevicePtr block = world.Allocate(30 * kMiB);
    world.Free(block);
    world.sim.AdvanceNs(2 * kLagNs);
    return world.Allocate(30 * kMiB, side) == block;
  };
  EXPECT_TRUE(reuses(""));
  EXPECT_FALSE(reuses("async_reuse_opportunistic:False"));

  World world({.config = Async("async_release_threshold_mb:0")});
  world.Free(world.Allocate(30 * kMiB));
  ASSERT_TRUE(world.sim.model().streams().SynchronizeDevice(0).ok());
  EXPECT_EQ(world.sim.model().memory().Census().physical_bytes, 0u) << "the driver took it back";
  EXPECT_EQ(world.reserved(), kChunk) << "and did not tell";
  world.allocator->EmptyCache();
  EXPECT_EQ(world.reserved(), 0u);
}

TEST(AsyncLayoutTest, ABlockUsedByAnotherStreamGoesBackOnceThatStreamHasPassed) {
  World world({.lag_ns = kLagNs, .config = Async()});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(30 * kMiB);
  world.Launch(side, block);
  world.RecordStream(block, side);
  world.Free(block);
  EXPECT_EQ(world.allocator->counters().pending_bytes[0].current, static_cast<int64_t>(30 * kMiB));
  EXPECT_EQ(world.sim.CallCount(DriverCall::kFreeAsync), 0u);
  EXPECT_NE(world.Allocate(30 * kMiB), block);
  world.sim.AdvanceNs(2 * kLagNs);
  EXPECT_EQ(world.Allocate(30 * kMiB), block);
}

TEST(AsyncLayoutTest, OutOfMemoryWaitsTrimsAndThenTells) {
  World world({.memory_bytes = 128 * kMiB, .lag_ns = kLagNs, .config = Async()});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(100 * kMiB);
  world.Launch(side, block);
  world.RecordStream(block, side);
  world.Free(block);
  const DevicePtr again = world.Allocate(90 * kMiB);
  EXPECT_EQ(world.sim.model().clock().WaitedNs(), kLagNs) << "for what was pending";
  const absl::Status status = world.TryAllocate(60 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the device has no memory left"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("live            90.00 MiB"));
  EXPECT_EQ(world.allocator->counters().out_of_memory, 1u);
  world.Free(again);
  world.Allocate(120 * kMiB);
}

TEST(AsyncLayoutTest, TheLimitHolds) {
  World world({.lag_ns = kLagNs, .limit = 2 * kChunk, .config = Async()});
  const auto expect_within = [&] { EXPECT_LE(world.reserved(), 2 * kChunk); };
  const DevicePtr first = world.Allocate(20 * kMiB);
  const DevicePtr second = world.Allocate(20 * kMiB);
  const DevicePtr third = world.Allocate(20 * kMiB);
  EXPECT_EQ(world.reserved(), 2 * kChunk);
  world.Launch(nullptr, first);
  world.Free(first);
  world.Free(third);
  // Enough is free, but not in one piece: the driver grows for it, and that is undone.
  const absl::Status refused = world.TryAllocate(30 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the limit on reserved memory is reached"));
  expect_within();
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(60 * kMiB)));
  expect_within();
  world.Allocate(20 * kMiB);
  world.Free(second);
  expect_within();
  world.allocator->SetLimit(kNoLimit);
  world.Allocate(60 * kMiB);
}

TEST(AsyncLayoutTest, ADeviceWithoutSuchPoolsIsUsedAsWithoutTheOption) {
  for (const bool virtual_memory : {true, false}) {
    class Poor final : public ForwardingDriver {
     public:
      Poor(Driver* driver, bool virtual_memory)
          : ForwardingDriver(driver), virtual_memory_(virtual_memory) {}
      absl::StatusOr<DeviceProperties> GetProperties(DeviceIndex device) override {
        absl::StatusOr<DeviceProperties> properties = ForwardingDriver::GetProperties(device);
        properties->driver_pools = false;
        properties->virtual_memory = virtual_memory_;
        return properties;
      }
      const bool virtual_memory_;
    };
    SimDriver sim;
    Poor driver(&sim, virtual_memory);
    const Clock clock = sim.clock();
    AddressMap address_map;
    const auto allocator = DeviceAllocator::Create(driver, 0, clock, address_map, Async());
    ASSERT_TRUE(allocator.ok()) << allocator.status();
    EXPECT_THAT((*allocator)->notice(), HasSubstr("no pools of stream-ordered memory"));
    EXPECT_THAT((*allocator)->notice(),
                HasSubstr(virtual_memory ? "the arena layout is used" : "the segments layout"));
    EXPECT_TRUE((*allocator)->Allocate(nullptr, kMiB).ok());
    EXPECT_EQ(sim.CallCount(DriverCall::kAllocateAsync), 0u);
  }
}

// --- Streams that do not take the free -----------------------------------------------------------

TEST(AsyncLayoutTest, WhatAGoneStreamFreedGoesBackAfterAWaitForTheDevice) {
  World world({.lag_ns = kLagNs, .config = Async()});
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(30 * kMiB, side);
  world.Launch(side, block, /*duration_ns=*/1'000'000'000);
  ASSERT_TRUE(world.sim.model().streams().DestroyStream(side).ok());
  ASSERT_EQ(world.NewStream(), side) << "handles are used again";
  world.Free(block);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kFreeAsync), 0u) << "not in another stream's order";
  EXPECT_EQ(world.allocator->EmptyCache(), kChunk);
  EXPECT_GE(world.sim.model().clock().WaitedNs(), 1'000'000'000u);
}

TEST(AsyncLayoutTest, AFreeThatTheDriverRefusesIsTriedAgain) {
  World world({.config = Async()});
  const DevicePtr block = world.Allocate(30 * kMiB);
  world.driver.Inject({.call = DriverCall::kFreeAsync, .cu_result = CudaResult::kUnknown});
  world.Free(block);
  EXPECT_EQ(world.allocator->Account().driver_pool_free_bytes, kChunk) << "the program's no more";
  world.Allocate(30 * kMiB);
  EXPECT_EQ(world.reserved(), kChunk) << "it went back before the next request";
}

TEST(AsyncLayoutTest, APeerIsLetIntoPoolsThereAndThoseToCome) {
  World world({.config = Async(), .devices = 2});
  const auto open = [&](DevicePtr block) {
    return world.sim.model()
        .memory()
        .CheckAccess(block, kMiB, /*device=*/1, sim::Access::kReadWrite)
        .ok();
  };
  const DevicePtr before = world.Allocate(kMiB);
  EXPECT_FALSE(open(before));
  EXPECT_TRUE(world.allocator->OpenTo(1).ok());
  EXPECT_TRUE(open(before));
  EXPECT_TRUE(open(world.Allocate(100 * kMiB)));
  ASSERT_TRUE(
      world.allocator->BeginAllocateToPool({.first = 1}, nullptr, [](StreamHandle) { return true; })
          .ok());
  EXPECT_TRUE(open(world.Allocate(kMiB)));
  EXPECT_TRUE(world.allocator->EndAllocateToPool({.first = 1}).ok());
}

// --- Private pools -------------------------------------------------------------------------------

constexpr PrivatePoolId kPool = {.second = 1};

void Begin(World& world, StreamHandle stream = nullptr) {
  ASSERT_TRUE(
      world.allocator->BeginAllocateToPool(kPool, stream, [](StreamHandle) { return true; }).ok());
}
void End(World& world) { ASSERT_TRUE(world.allocator->EndAllocateToPool(kPool).ok()); }
void Release(World& world) {
  ASSERT_TRUE(world.allocator->ReleasePool(kPool).ok());
  world.Check();
}

TEST(AsyncLayoutTest, APrivatePoolIsAPoolOfItsOwn) {
  World world({.config = Async()});
  world.Free(world.Allocate(30 * kMiB));
  Begin(world);
  const DevicePtr inside = world.Allocate(30 * kMiB);
  End(world);
  EXPECT_EQ(world.reserved(), 2 * kChunk) << "it takes nothing of the others'";
  world.Free(inside);
  EXPECT_EQ(world.allocator->Account().private_pools_free_bytes, kChunk);
  world.Allocate(30 * kMiB);
  EXPECT_EQ(world.reserved(), 2 * kChunk) << "and gives them nothing";
  world.allocator->EmptyCache();
  EXPECT_EQ(world.reserved(), 2 * kChunk) << "while it is in use";
  Release(world);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kDestroyDriverPool), 0u);
  EXPECT_EQ(world.allocator->EmptyCacheOf(kPool), kChunk);
  EXPECT_EQ(world.sim.CallCount(DriverCall::kDestroyDriverPool), 1u);
  world.Check();
  EXPECT_EQ(world.reserved(), kChunk);
}

TEST(AsyncLayoutTest, AReleasedPoolStaysAsLongAsItsBlocks) {
  World world({.config = Async()});
  Begin(world);
  const DevicePtr inside = world.Allocate(30 * kMiB);
  End(world);
  Release(world);
  world.allocator->EmptyCache();
  EXPECT_EQ(world.reserved(), kChunk);
  world.Free(inside);
  EXPECT_EQ(world.allocator->EmptyCache(), kChunk);
  EXPECT_EQ(world.sim.model().memory().Census().reservations, 0u) << "the driver's pool is gone";
}

TEST(AsyncLayoutTest, FreeMemoryOfAPoolServesOthersWhereThatIsAllowed) {
  World world({.memory_bytes = 128 * kMiB, .config = Async()});
  Begin(world);
  const DevicePtr inside = world.Allocate(100 * kMiB);
  End(world);
  world.Free(inside);
  world.allocator->SetLimit(128 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(90 * kMiB)));
  ASSERT_TRUE(world.allocator->SetUseOnOom(kPool, true).ok());
  EXPECT_EQ(world.Allocate(90 * kMiB), inside);
}

// --- Captures ------------------------------------------------------------------------------------

class AsyncCaptureTest : public ::testing::Test {
 protected:
  sim::StreamModel& streams() { return world_.sim.model().streams(); }
  void BeginCapture() {
    Begin(world_, stream_);
    ASSERT_TRUE(streams().BeginCapture(0, stream_, sim::CaptureMode::kGlobal).ok());
  }
  sim::GraphHandle EndCapture() {
    const absl::StatusOr<sim::GraphHandle> graph = streams().EndCapture(0, stream_);
    EXPECT_TRUE(graph.ok()) << graph.status();
    End(world_);
    return graph.value_or(nullptr);
  }
  Bytes GraphBytes() { return world_.sim.model().pools().GraphBytes(); }

  World world_{{.lag_ns = kLagNs, .config = Async()}};
  const StreamHandle stream_ = world_.NewStream();
};

TEST_F(AsyncCaptureTest, MemoryIsTheGraphsAndCountsWhileTheProgramHoldsIt) {
  BeginCapture();
  const DevicePtr first = world_.Allocate(20 * kMiB, stream_);
  const DevicePtr second = world_.Allocate(10 * kMiB, stream_);
  EXPECT_EQ(world_.reserved(), 30 * kMiB);
  EXPECT_EQ(world_.allocator->Account().live_bytes, 30 * kMiB);
  EXPECT_EQ(world_.allocator->Account().private_pools_free_bytes, 0u);
  world_.Free(first);
  EXPECT_EQ(world_.Allocate(20 * kMiB, stream_), first) << "freed within the graph";
  const sim::GraphHandle graph = EndCapture();
  world_.Free(second);
  EXPECT_EQ(world_.reserved(), 20 * kMiB) << "the rest is the graph's own";
  world_.Free(first);
  ASSERT_TRUE(streams().DestroyGraph(graph).ok());
  Release(world_);
  world_.allocator->EmptyCache();
  EXPECT_EQ(GraphBytes(), 0u);
}

TEST_F(AsyncCaptureTest, WhatTheLastLaunchLeftIsFreedWithThePool) {
  BeginCapture();
  const DevicePtr block = world_.Allocate(20 * kMiB, stream_);
  const sim::GraphHandle graph = EndCapture();
  const sim::GraphExecHandle exec = *streams().InstantiateGraph(graph, /*auto_free=*/true);
  const StreamHandle other = world_.NewStream();
  ASSERT_TRUE(streams().LaunchGraph(0, exec, other).ok());
  world_.Free(block);
  EXPECT_EQ(world_.sim.CallCount(DriverCall::kFreeAsync), 0u)
      << "a launch on another stream may use it still";
  ASSERT_TRUE(streams().LaunchGraph(0, exec, other).ok()) << "and so may the next";
  Release(world_);
  EXPECT_EQ(world_.sim.CallCount(DriverCall::kRecordDeviceEvent), 1u) << "after all of them";
  EXPECT_EQ(world_.sim.CallCount(DriverCall::kFreeAsync), 1u);
  EXPECT_EQ(world_.sim.model().clock().WaitedNs(), 0u);
  ASSERT_TRUE(streams().DestroyGraphExec(exec).ok());
  ASSERT_TRUE(streams().DestroyGraph(graph).ok());
  ASSERT_TRUE(streams().SynchronizeDevice(0).ok());
  world_.sim.model().pools().TrimGraphs();
  EXPECT_EQ(GraphBytes(), 0u);
}

TEST_F(AsyncCaptureTest, OtherMemoryThatIsFreedBesideACaptureGoesBackAfterIt) {
  const DevicePtr own = world_.Allocate(20 * kMiB, stream_);
  BeginCapture();
  world_.Free(own);
  EXPECT_EQ(world_.sim.CallCount(DriverCall::kFreeAsync), 0u);
  EXPECT_EQ(world_.allocator->Account().driver_pool_free_bytes, kChunk);
  const DevicePtr inner = world_.Allocate(kMiB, stream_);
  ASSERT_TRUE(streams().DestroyGraph(EndCapture()).ok());
  world_.Allocate(20 * kMiB, stream_);
  EXPECT_EQ(world_.sim.CallCount(DriverCall::kFreeAsync), 1u);
  world_.Free(inner);
}

TEST_F(AsyncCaptureTest, NoTwoBlocksHaveOneAddress) {
  BeginCapture();
  const DevicePtr kept = world_.Allocate(kMiB, stream_);
  ASSERT_TRUE(streams().DestroyGraph(EndCapture()).ok());  // never launched
  Release(world_);
  BeginCapture();
  const DevicePtr next = world_.Allocate(kMiB, stream_);
  EXPECT_NE(next, kept);
  ASSERT_TRUE(streams().DestroyGraph(EndCapture()).ok());
  world_.Free(kept);
  world_.Free(next);
}

TEST_F(AsyncCaptureTest, TheLegacyStreamIsServedBesideABlockingCapture) {
  const StreamHandle blocking = *streams().CreateStream(0, {.non_blocking = false});
  const DevicePtr before = world_.Allocate(kMiB);
  ASSERT_TRUE(streams().BeginCapture(0, blocking, sim::CaptureMode::kGlobal).ok());
  const DevicePtr block = world_.Allocate(kMiB);
  world_.Free(before);
  world_.Free(block);
  const absl::StatusOr<sim::GraphHandle> graph = streams().EndCapture(0, blocking);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(streams().DestroyGraph(*graph).ok());
  EXPECT_EQ(world_.allocator->EmptyCache(), kChunk);
}

TEST_F(AsyncCaptureTest, TheLimitCountsWhatTheProgramHoldsOfGraphs) {
  world_.allocator->SetLimit(kChunk);
  BeginCapture();
  const DevicePtr block = world_.Allocate(20 * kMiB, stream_);
  EXPECT_TRUE(absl::IsResourceExhausted(world_.TryAllocate(20 * kMiB, stream_)));
  world_.Free(block);
  ASSERT_TRUE(streams().DestroyGraph(EndCapture()).ok()) << "the refusal ends no capture";
}

}  // namespace
}  // namespace offcut
