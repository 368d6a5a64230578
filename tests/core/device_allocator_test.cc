// What the allocator does for one stream: serving, reusing, growing, releasing, failing.

#include "allocator/core/device_allocator.h"

#include <thread>

#include "allocator/core/audit.h"
#include "allocator/policy/sizes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kGranule = 2 * kMiB;

TEST(DeviceAllocatorTest, AddressesAreMultiplesOf512) {
  World world;
  for (Bytes requested : {Bytes{1}, Bytes{511}, Bytes{513}, 5 * kKiB, 100 * kKiB, 3 * kMiB + 1}) {
    EXPECT_EQ(world.Allocate(requested) % 512, 0u) << requested;
  }
}

TEST(DeviceAllocatorTest, SizesAreRoundedToDivisionsOfAPowerOfTwo) {
  World world({.config = *Config::Parse({.offcut_conf = "roundup_power2_divisions:[4:2,>:4]"})});
  const auto size_of = [&](Bytes requested) {
    return world.allocator->FindBlock(world.Allocate(requested))->size;
  };
  EXPECT_EQ(size_of(5 * kMiB), 6 * kMiB);
  EXPECT_EQ(size_of(9 * kMiB), 10 * kMiB);
  EXPECT_EQ(size_of(33 * kKiB), 48 * kKiB);
  EXPECT_EQ(size_of(20 * kKiB), 20 * kKiB) << "a slot";
}

TEST(DeviceAllocatorTest, LiveBlocksDoNotOverlap) {
  World world;
  const DevicePtr first = world.Allocate(3 * kMiB);
  const DevicePtr second = world.Allocate(3 * kMiB);
  EXPECT_TRUE(first + 3 * kMiB <= second || second + 3 * kMiB <= first);
}

TEST(DeviceAllocatorTest, AFreedBlockServesItsStreamAtOnce) {
  World world({.lag_ns = 1'000'000'000});
  const DevicePtr block = world.Allocate(3 * kMiB);
  world.Launch(nullptr, block);
  world.Free(block);
  EXPECT_EQ(world.Allocate(3 * kMiB), block);
}

TEST(DeviceAllocatorTest, ARequestThatAFreeBlockServesAsksNothingOfTheDriver) {
  World world;
  const DevicePtr large = world.Allocate(8 * kMiB);
  const DevicePtr small = world.Allocate(1000);
  world.Free(large);
  world.Free(small);
  const uint64_t calls = world.sim.CallCount();
  const size_t events = world.log.events.size();
  for (Bytes requested : {6 * kMiB, Bytes{1000}}) {
    world.Free(world.Allocate(requested));
  }
  EXPECT_EQ(world.sim.CallCount(), calls);
  EXPECT_EQ(world.log.events.size(), events + 4) << "one event for each allocation and each free";
}

TEST(DeviceAllocatorTest, BestFitTakesTheSmallestFreeBlockThatHolds) {
  World world;
  const DevicePtr big = world.Allocate(20 * kMiB);
  const DevicePtr wall1 = world.Allocate(2 * kMiB);
  const DevicePtr fitting = world.Allocate(6 * kMiB);
  const DevicePtr wall2 = world.Allocate(2 * kMiB);
  world.Free(big);
  world.Free(fitting);
  EXPECT_EQ(world.Allocate(5 * kMiB), fitting);
  world.Free(wall1);
  world.Free(wall2);
}

TEST(DeviceAllocatorTest, NeighboursMergeAtOnce) {
  World world;
  const DevicePtr a = world.Allocate(4 * kMiB);
  const DevicePtr b = world.Allocate(4 * kMiB);
  const DevicePtr c = world.Allocate(4 * kMiB);
  world.Free(a);
  world.Free(c);
  world.Free(b);
  const Bytes reserved = world.reserved();
  EXPECT_EQ(world.Allocate(12 * kMiB), a);
  EXPECT_EQ(world.reserved(), reserved);
}

TEST(DeviceAllocatorTest, ReservesWholeGranulesAndNoMoreThanNeeded) {
  World world;
  world.Allocate(3 * kMiB);
  EXPECT_EQ(world.reserved(), 2 * kGranule);
  world.Allocate(kMiB + 1);
  EXPECT_EQ(world.reserved(), 3 * kGranule) << "the MiB that is left, and a new granule";
}

TEST(DeviceAllocatorTest, SmallAndLargeRequestsLieInDifferentArenas) {
  World world;
  const DevicePtr small = world.Allocate(kMiB);
  const DevicePtr large = world.Allocate(kMiB + 1);
  EXPECT_NE(world.allocator->FindBlock(small)->range_address,
            world.allocator->FindBlock(large)->range_address);
  EXPECT_EQ(world.allocator->counters().reserved_bytes[1].current, static_cast<int64_t>(kGranule));
}

TEST(DeviceAllocatorTest, ManySmallRequestsShareAGranule) {
  World world;
  std::vector<DevicePtr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(world.Allocate(512));
  EXPECT_EQ(world.reserved(), kGranule);
  for (DevicePtr block : blocks) world.Free(block);
  EXPECT_EQ(world.allocator->EmptyCache(), kGranule);
}

TEST(DeviceAllocatorTest, ASlotIsReusedLastInFirstOut) {
  World world;
  const DevicePtr a = world.Allocate(512);
  const DevicePtr b = world.Allocate(512);
  world.Free(a);
  world.Free(b);
  EXPECT_EQ(world.Allocate(512), b);
  EXPECT_EQ(world.Allocate(512), a);
}

TEST(DeviceAllocatorTest, EmptyCacheGivesBackWholeIdleGranulesOnly) {
  World world;
  const DevicePtr a = world.Allocate(3 * kMiB);
  const DevicePtr b = world.Allocate(3 * kMiB);
  world.Free(a);
  EXPECT_EQ(world.allocator->EmptyCache(), kGranule) << "the second granule holds part of b";
  world.Check();
  EXPECT_EQ(world.reserved(), 2 * kGranule);
  world.Free(b);
  EXPECT_EQ(world.allocator->EmptyCache(), 2 * kGranule);
  world.Check();
  EXPECT_EQ(world.reserved(), 0u);
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
}

TEST(DeviceAllocatorTest, MemoryIsUnmappedOnlyOnceTheDeviceIsDoneWithIt) {
  World world({.lag_ns = 50'000'000});
  const DevicePtr block = world.Allocate(8 * kMiB);
  world.Launch(nullptr, block, 1'000'000);
  world.Free(block);
  // The simulated driver refuses to unmap what a kernel still uses, so the wait shows in the
  // result.
  EXPECT_EQ(world.allocator->EmptyCache(), 8 * kMiB);
  EXPECT_EQ(world.allocator->counters().device_waits, 1u);
  world.Check();
}

TEST(DeviceAllocatorTest, GrowsIntoTheGapThatNeedsTheFewestGranules) {
  World world;
  const DevicePtr a = world.Allocate(8 * kMiB);
  const DevicePtr wall = world.Allocate(2 * kMiB);
  world.Free(a);
  world.allocator->EmptyCache();
  const Bytes before = world.reserved();
  EXPECT_EQ(world.Allocate(8 * kMiB), a) << "the gap that was left";
  EXPECT_EQ(world.reserved(), before + 8 * kMiB);
  world.Free(wall);
}

TEST(DeviceAllocatorTest, IdleMemoryOfAnotherStreamServesWhereItLies) {
  World world({.memory_bytes = 64 * kMiB});
  const StreamHandle side = world.NewStream();
  const DevicePtr idle = world.Allocate(60 * kMiB, side);
  world.Free(idle);
  world.Allocate(50 * kMiB);
  EXPECT_EQ(world.reserved(), 60 * kMiB);
  EXPECT_EQ(world.allocator->counters().moves, 0u);
  EXPECT_EQ(world.allocator->counters().device_waits, 0u);
}

TEST(DeviceAllocatorTest, FragmentedMemoryOfOneStreamIsMovedAtOnceThoughTheDeviceLagsBehind) {
  World world({.memory_bytes = 64 * kMiB, .lag_ns = 50'000'000});
  std::vector<DevicePtr> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(world.Allocate(4 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) {
    world.Launch(nullptr, blocks[i]);
    world.Free(blocks[i]);
  }
  world.Allocate(32 * kMiB);
  EXPECT_EQ(world.allocator->counters().moves, 16u);
  EXPECT_EQ(world.allocator->counters().move_batches, 1u);
  EXPECT_EQ(world.allocator->counters().old_mapping_bytes[0].current,
            static_cast<int64_t>(32 * kMiB));
  EXPECT_EQ(world.allocator->counters().device_waits, 0u);
  EXPECT_EQ(world.sim.model().clock().WaitedNs(), 0u);
  EXPECT_EQ(world.reserved(), 64 * kMiB);

  world.sim.AdvanceNs(60'000'000);
  world.allocator->EmptyCache();
  EXPECT_EQ(world.allocator->counters().old_mapping_bytes[0].current, 0);
}

TEST(DeviceAllocatorTest, OutOfMemoryTellsWhereTheMemoryIs) {
  World world({.memory_bytes = 64 * kMiB});
  world.Allocate(40 * kMiB - 100);
  const absl::Status status = world.TryAllocate(30 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("30.00 MiB (31457280 bytes) on device 0 (NVIDIA H200)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the device has no memory left"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("live            40.00 MiB"));
  EXPECT_EQ(world.allocator->counters().out_of_memory, 1u);
  EXPECT_EQ(world.reserved(), 40 * kMiB) << "what growing had taken half-way is given back";
}

TEST(DeviceAllocatorTest, GoesOnAfterOutOfMemory) {
  World world({.memory_bytes = 64 * kMiB});
  const DevicePtr block = world.Allocate(40 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(30 * kMiB)));
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(30 * kMiB)));
  world.Free(block);
  world.Allocate(60 * kMiB);
}

TEST(DeviceAllocatorTest, MoreThanTheDeviceHasIsOutOfMemory) {
  World world;
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(2 * kGiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(world.TryAllocate(policy::kRequestMax + 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(world.TryAllocate(0)));
}

TEST(DeviceAllocatorTest, TheLimitHoldsWhateverTheDeviceHas) {
  World world({.limit = 16 * kMiB});
  const DevicePtr block = world.Allocate(12 * kMiB);
  const absl::Status status = world.TryAllocate(6 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit on reserved memory is reached"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit: 16.00 MiB reserved"));
  world.Free(block);
  world.Allocate(16 * kMiB);
  world.allocator->SetLimit(kNoLimit);
  world.Allocate(16 * kMiB);
  world.allocator->SetLimit(0);
  EXPECT_TRUE(absl::IsResourceExhausted(world.TryAllocate(6 * kMiB)));
}

TEST(DeviceAllocatorTest, AFreeOfWhatIsNotLiveIsCountedAndIgnored) {
  World world;
  const DevicePtr block = world.Allocate(3 * kMiB);
  EXPECT_TRUE(absl::IsInvalidArgument(world.allocator->Free(0x1234)));
  EXPECT_TRUE(absl::IsInvalidArgument(world.allocator->Free(block + 512)));
  world.Free(block);
  const absl::Status twice = world.allocator->Free(block);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("was it freed before?"));
  world.Check();
  EXPECT_EQ(world.allocator->counters().invalid_frees, 3u);
}

TEST(DeviceAllocatorTest, FindsTheBlockAroundAnAddress) {
  World world;
  const DevicePtr block = world.Allocate(3 * kMiB - 10);
  const absl::StatusOr<BlockInfo> info = world.allocator->FindBlock(block + kMiB);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->address, block);
  EXPECT_EQ(info->requested, 3 * kMiB - 10);
  EXPECT_EQ(info->size, 3 * kMiB);
  EXPECT_FALSE(world.allocator->FindBlock(block + 3 * kMiB).ok());
}

TEST(DeviceAllocatorTest, TheLargestFreeBlockIsWhatFitsWithoutGrowing) {
  World world;
  EXPECT_EQ(world.allocator->LargestFreeBlock(), 0u);
  const DevicePtr block = world.Allocate(7 * kMiB);
  EXPECT_EQ(world.allocator->LargestFreeBlock(), kMiB);
  world.Free(block);
  EXPECT_EQ(world.allocator->LargestFreeBlock(), 8 * kMiB);
}

TEST(DeviceAllocatorTest, APeerReachesWhatIsThereAndWhatComesLater) {
  World world({.devices = 2});
  const DevicePtr before = world.Allocate(3 * kMiB);
  const auto use_on_peer = [&](DevicePtr address) {
    return world.sim.model().UseMemory(/*device=*/1, nullptr, address, kMiB);
  };
  EXPECT_FALSE(use_on_peer(before).ok());
  EXPECT_TRUE(world.allocator->OpenTo(1).ok());
  EXPECT_TRUE(world.allocator->OpenTo(1).ok());
  EXPECT_TRUE(use_on_peer(before).ok());
  EXPECT_TRUE(use_on_peer(world.Allocate(20 * kMiB)).ok());
  EXPECT_FALSE(world.allocator->OpenTo(7).ok());
  world.Allocate(30 * kMiB);
}

TEST(DeviceAllocatorTest, DeathGivesEverythingBack) {
  World world;
  const StreamHandle side = world.NewStream();
  world.Allocate(5 * kMiB);
  const DevicePtr used = world.Allocate(1000, side);
  world.RecordStream(used, nullptr);
  world.Free(used);
  world.allocator.reset();
  const sim::MemoryCensus census = world.sim.model().memory().Census();
  EXPECT_EQ(census.physical_bytes, 0u);
  EXPECT_EQ(census.reservations, 0u);
  EXPECT_EQ(census.mappings, 0u);
}

TEST(DeviceAllocatorTest, ThreadsShareADevice) {
  World world({.memory_bytes = 4 * kGiB});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&world, t, stream = world.NewStream()] {
      std::vector<DevicePtr> blocks;
      for (int i = 0; i < 2000; ++i) {
        const Bytes requested = 1 + static_cast<Bytes>(i * 7919 + t * 104729) % (4 * kMiB);
        const auto block = world.allocator->Allocate(i % 2 == 0 ? stream : nullptr, requested);
        ASSERT_TRUE(block.ok()) << block.status();
        blocks.push_back(*block);
        if (blocks.size() > 20) {
          ASSERT_TRUE(world.allocator->Free(blocks.front()).ok());
          blocks.erase(blocks.begin());
        }
      }
      for (DevicePtr block : blocks) ASSERT_TRUE(world.allocator->Free(block).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  world.Check();
  EXPECT_EQ(world.allocator->counters().allocations[0].current, 0);
  EXPECT_EQ(world.allocator->counters().allocations[0].risen, kThreads * 2000);
}

}  // namespace
}  // namespace offcut
