// Private pools whose segments come from an allocator of somebody else's.

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PrivatePoolId kPool = {.second = 1};

// Addresses of its own making; nothing stands behind them.
class Stranger {
 public:
  std::shared_ptr<const ForeignAllocator> allocator() {
    const auto allocator = std::make_shared<ForeignAllocator>();
    // Destroyed with the functions.
    const std::shared_ptr<void> alive(nullptr, [this](void*) { destroyed = true; });
    allocator->allocate = [this, alive](Bytes bytes) { return Allocate(bytes); };
    allocator->free = [this, alive](DevicePtr address, Bytes bytes) {
      if (on_free) on_free(address);
      freed.emplace_back(address, bytes);
    };
    return allocator;
  }

  absl::StatusOr<DevicePtr> Allocate(Bytes bytes) {
    asked.push_back(bytes);
    if (on_allocate) return on_allocate(bytes);
    return std::exchange(next, next + bytes);
  }

  DevicePtr next = 0x1000'0000'0000;
  std::vector<Bytes> asked;
  std::vector<std::pair<DevicePtr, Bytes>> freed;
  std::function<absl::StatusOr<DevicePtr>(Bytes)> on_allocate;
  std::function<void(DevicePtr)> on_free;
  bool destroyed = false;
};

class ForeignPoolTest : public ::testing::TestWithParam<const char*> {
 protected:
  static World::Options Machine(World::Options options = {}) {
    options.config = *Config::Parse({.offcut_conf = GetParam()});
    return options;
  }
  // A pool in use, and requests go there.
  void Begin(World& world) {
    ASSERT_TRUE(world.allocator->RetainPool(kPool, stranger_.allocator()).ok());
    ASSERT_TRUE(
        world.allocator->BeginAllocateToPool(kPool, nullptr, [](StreamHandle) { return true; })
            .ok());
  }
  void End(World& world) {
    ASSERT_TRUE(world.allocator->EndAllocateToPool(kPool).ok());
    world.Check();
  }
  void Release(World& world) {
    while (world.allocator->PoolUseCount(kPool) > 0) {
      ASSERT_TRUE(world.allocator->ReleasePool(kPool).ok());
    }
    world.Check();
  }
  static int64_t Foreign(const World& world) {
    return world.allocator->counters().foreign_bytes[0].current;
  }

  Stranger stranger_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, ForeignPoolTest,
                         ::testing::Values("", "expandable_segments:False"));

TEST_P(ForeignPoolTest, SegmentsComeFromThereInPyTorchsSizesAndAreCutAndCachedHere) {
  World world(Machine());
  Begin(world);
  const DevicePtr small = world.Allocate(1000), large = world.Allocate(3 * kMiB);
  world.Allocate(30 * kMiB + 1);
  EXPECT_THAT(stranger_.asked, ElementsAre(2 * kMiB, 20 * kMiB, 32 * kMiB));
  world.Free(large);
  EXPECT_EQ(world.Allocate(4 * kMiB), large);
  EXPECT_EQ(world.Allocate(1000), small + 1024);
  EXPECT_EQ(stranger_.asked.size(), 3u);
  EXPECT_EQ(world.allocator->FindBlock(small + 5)->range_bytes, 2 * kMiB);
}

TEST_P(ForeignPoolTest, IsCountedBesideTheSum) {
  World world(Machine());
  const DevicePtr own = world.Allocate(4 * kMiB);
  const size_t reserved = world.reserved();
  Begin(world);
  const DevicePtr inside = world.Allocate(30 * kMiB);
  const Counters counters = world.allocator->counters();
  EXPECT_EQ(counters.foreign_bytes[0].current, static_cast<int64_t>(30 * kMiB));
  EXPECT_EQ(counters.held_bytes[0].current, static_cast<int64_t>(reserved + 30 * kMiB));
  EXPECT_EQ(counters.live_bytes[0].current, static_cast<int64_t>(34 * kMiB));
  const Accounting sum = world.allocator->Account();
  EXPECT_EQ(sum.live_bytes, 4 * kMiB);
  EXPECT_EQ(sum.reserved_bytes, reserved);
  EXPECT_EQ(sum.foreign_bytes, 30 * kMiB);
  End(world);
  world.Free(inside);
  world.Free(own);
  EXPECT_EQ(world.allocator->Account().foreign_bytes, 30 * kMiB) << "free, and still held";
  EXPECT_EQ(world.allocator->Account().private_pools_free_bytes, 0u);
}

TEST_P(ForeignPoolTest, GivesBackWhatIsFreeAfterTheLastRelease) {
  World world(Machine());
  Begin(world);
  const DevicePtr gone = world.Allocate(30 * kMiB), kept = world.Allocate(10 * kMiB);
  world.Free(gone);
  End(world);
  EXPECT_EQ(world.allocator->EmptyCache(), 0u) << "in use";
  Release(world);
  EXPECT_EQ(world.allocator->EmptyCacheOf(kPool), 30 * kMiB);
  world.Check();
  EXPECT_THAT(stranger_.freed, ElementsAre(std::pair(gone, 30 * kMiB)));
  EXPECT_FALSE(stranger_.destroyed) << "a block lives there still";
  world.Free(kept);
  world.allocator->EmptyCache();
  world.Check();
  EXPECT_EQ(Foreign(world), 0);
  EXPECT_TRUE(stranger_.destroyed);
  EXPECT_TRUE(absl::IsInvalidArgument(world.allocator->Free(kept)));
}

TEST_P(ForeignPoolTest, OnlyAWaitForTheDeviceProvesThatItMayGo) {
  World world(Machine());
  Begin(world);
  world.Free(world.Allocate(30 * kMiB));
  End(world);
  Release(world);
  const StreamHandle captured = world.NewStream();
  ASSERT_TRUE(world.allocator
                  ->BeginAllocateToPool({.first = 9}, captured, [](StreamHandle) { return false; })
                  .ok());
  sim::StreamModel& streams = world.sim.model().streams();
  ASSERT_TRUE(streams.BeginCapture(0, captured, sim::CaptureMode::kGlobal).ok());
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
  EXPECT_THAT(stranger_.freed, IsEmpty());
  ASSERT_TRUE(streams.EndCapture(0, captured).ok());
  EXPECT_EQ(world.allocator->EmptyCache(), 30 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
}

TEST_P(ForeignPoolTest, WithoutMemoryThereTheLadderIsClimbedToItsEnd) {
  World world(Machine());
  world.Free(world.Allocate(40 * kMiB));
  Begin(world);
  stranger_.on_allocate = [](Bytes) { return 0; };
  const absl::Status failed = world.TryAllocate(10 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()),
              HasSubstr("the private pool's own allocator gave none"));
  EXPECT_EQ(stranger_.asked.size(), 2u) << "again after idle memory was released";
  EXPECT_EQ(world.reserved(), 0u);
  stranger_.on_allocate = nullptr;
  world.Allocate(10 * kMiB);
}

TEST_P(ForeignPoolTest, AnErrorThereIsTheRequestsOwn) {
  World world(Machine());
  Begin(world);
  stranger_.on_allocate = [](Bytes) { return absl::AbortedError("it threw"); };
  const absl::Status failed = world.TryAllocate(10 * kMiB);
  EXPECT_TRUE(absl::IsAborted(failed)) << failed;
  EXPECT_EQ(stranger_.asked.size(), 1u);
  EXPECT_EQ(world.log.events.back().extra, static_cast<uint32_t>(FailureReason::kForeignAllocator));
  stranger_.on_allocate = nullptr;
  world.Allocate(10 * kMiB);
}

TEST_P(ForeignPoolTest, MemoryThatCannotBeIsRefusedAndGivenBack) {
  World world(Machine({.devices = 2}));
  const DevicePtr own = world.Allocate(64 * kMiB);
  Begin(world);
  const DevicePtr inside = world.Allocate(10 * kMiB);
  const DevicePtr far = ~DevicePtr{0} - 4 * kMiB + 1, elsewhere = 0x3000'0000'0000;
  ASSERT_TRUE(world.address_map.Insert(elsewhere + 4 * kMiB, 2 * kMiB, 1).ok());
  const std::vector<std::pair<DevicePtr, const char*>> bad = {
      {0x1000'1000'0100, "no multiple of 512"},
      {inside + 4 * kMiB, "overlaps the 10.00 MiB"},
      {inside - 4 * kMiB, "overlaps the 10.00 MiB"},
      {elsewhere, "lies in memory of device 1"},
      {far, "no process can use"},
      {own, "blocks of the program"}};
  for (const auto& [address, why] : bad) {
    stranger_.on_allocate = [at = address](Bytes) { return at; };
    const absl::Status failed = world.TryAllocate(12 * kMiB);
    EXPECT_TRUE(absl::IsInvalidArgument(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(why));
    EXPECT_EQ(stranger_.freed.back(), std::pair(address, 12 * kMiB));
  }
  EXPECT_EQ(Foreign(world), static_cast<int64_t>(10 * kMiB));
  world.Free(own);
}

TEST_P(ForeignPoolTest, MayBeCutFromABlockOfTheProgram) {
  World world(Machine());
  const DevicePtr arena = world.Allocate(64 * kMiB);
  Begin(world);
  stranger_.on_allocate = [arena](Bytes) { return arena + kMiB; };
  const DevicePtr inside = world.Allocate(20 * kMiB);
  EXPECT_EQ(inside, arena + kMiB);
  EXPECT_EQ(world.allocator->FindBlock(inside)->size, 20 * kMiB);
  world.Free(inside);
  End(world);
  Release(world);
  world.allocator->EmptyCache();
  world.Free(arena);
  EXPECT_GT(world.allocator->EmptyCache(), 0u);
}

TEST_P(ForeignPoolTest, TheLimitHoldsForBothTogetherAsInPyTorch) {
  World world(Machine({.limit = 64 * kMiB}));
  world.Allocate(20 * kMiB);
  Begin(world);
  const DevicePtr inside = world.Allocate(40 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(10 * kMiB)));
  EXPECT_EQ(stranger_.asked.size(), 1u) << "refused without asking";
  End(world);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(10 * kMiB)));
  world.Free(inside);
  Release(world);
  world.Allocate(40 * kMiB);
  EXPECT_EQ(stranger_.freed.size(), 1u) << "released for a request of ours";
}

TEST_P(ForeignPoolTest, TheFirstToMakeThePoolDecidesWhereItsMemoryComesFrom) {
  World world(Machine());
  ASSERT_TRUE(world.allocator->RetainPool(kPool).ok());
  Begin(world);
  EXPECT_TRUE(stranger_.destroyed);
  world.Allocate(10 * kMiB);
  EXPECT_EQ(Foreign(world), 0);
  End(world);
}

// --- Memory of ours, through an allocator of somebody else's -------------------------------------

TEST_P(ForeignPoolTest, WhatItGetsFromUsIsOurs) {
  World world(Machine());
  stranger_.on_allocate = [&world](Bytes bytes) {
    return world.allocator->Allocate(nullptr, bytes);
  };
  stranger_.on_free = [&world](DevicePtr address) {
    EXPECT_TRUE(world.allocator->Free(address).ok());
  };
  Begin(world);
  const DevicePtr inside = world.Allocate(30 * kMiB);
  EXPECT_EQ(Foreign(world), 0);
  Accounting sum = world.allocator->Account();
  EXPECT_EQ(sum.live_bytes, 30 * kMiB);
  EXPECT_EQ(sum.reserved_bytes, 30 * kMiB);
  world.Free(inside);
  sum = world.allocator->Account();
  EXPECT_EQ(sum.private_pools_free_bytes, 30 * kMiB);
  End(world);
  Release(world);
  EXPECT_EQ(world.allocator->EmptyCache(), 30 * kMiB);
  world.Check();
  EXPECT_EQ(stranger_.freed.size(), 1u);
  EXPECT_EQ(world.reserved(), 0u);
  EXPECT_TRUE(stranger_.destroyed);
  EXPECT_EQ(world.allocator->counters().invalid_frees, 0u);
}

TEST_P(ForeignPoolTest, WhatItKeepsToItselfStaysInTheBooksUntilItFreesIt) {
  World world(Machine());
  DevicePtr kept = 0;
  stranger_.on_allocate = [&](Bytes bytes) -> absl::StatusOr<DevicePtr> {
    kept = *world.allocator->Allocate(nullptr, bytes);
    world.Check();
    return 0x1000'0000'0000;
  };
  Begin(world);
  const DevicePtr inside = world.Allocate(30 * kMiB);
  EXPECT_EQ(Foreign(world), static_cast<int64_t>(30 * kMiB));
  EXPECT_EQ(world.reserved(), 30 * kMiB);
  world.Free(inside);
  End(world);
  Release(world);
  world.allocator->EmptyCache();
  world.Check();
  EXPECT_EQ(world.reserved(), 30 * kMiB);
  world.Free(kept);
  EXPECT_EQ(world.reserved(), 0u);
}

TEST_P(ForeignPoolTest, WhatTheDriverWillNotTakeBackServesThePoolAgainAndGoesLater) {
  World world(Machine());
  stranger_.on_allocate = [&world](Bytes bytes) {
    return world.allocator->Allocate(nullptr, bytes);
  };
  stranger_.on_free = [&world](DevicePtr address) {
    EXPECT_TRUE(world.allocator->Free(address).ok());
  };
  Begin(world);
  world.Free(world.Allocate(30 * kMiB));
  End(world);
  Release(world);
  world.driver.Inject({.call = DriverCall::kUnmap, .times = 9});
  world.driver.Inject({.call = DriverCall::kFreeMemory, .times = 9});
  world.allocator->EmptyCache();
  world.Check();
  EXPECT_EQ(world.reserved(), 30 * kMiB);
  world.driver.ClearFaults();
  world.allocator->EmptyCache();
  world.Check();
  EXPECT_EQ(world.reserved(), 0u);
  EXPECT_EQ(stranger_.freed.size(), 1u) << "it is not asked twice";
}

TEST_P(ForeignPoolTest, NoMemoryForItIsNoMemoryForTheRequest) {
  World world(Machine({.memory_bytes = 64 * kMiB}));
  const DevicePtr own = world.Allocate(40 * kMiB);
  stranger_.on_allocate = [&world](Bytes bytes) -> absl::StatusOr<DevicePtr> {
    return world.allocator->Allocate(nullptr, bytes).value_or(0);
  };
  Begin(world);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(40 * kMiB)));
  world.Free(own);
  world.Allocate(40 * kMiB);
  EXPECT_EQ(stranger_.asked.size(), 4u) << "twice each: idle memory was released in between";
}

}  // namespace
}  // namespace offcut
