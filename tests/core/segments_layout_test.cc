// The segments layout: what PyTorch's native allocator does, option by option.

#include "allocator/core/segments_layout.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

World::Options Segments(const std::string& conf = "", World::Options options = {}) {
  options.config = *Config::Parse(
      {.offcut_conf = absl::StrCat("expandable_segments:False", conf.empty() ? "" : ",", conf)});
  return options;
}

// The sizes of the segments that were made, or given back, since the last call.
class Segmentation {
 public:
  explicit Segmentation(const World& world) : world_(world) {}
  std::vector<Bytes> Made() { return Since(EventKind::kGranuleCreated, made_); }
  std::vector<Bytes> Freed() { return Since(EventKind::kGranuleReleased, freed_); }

 private:
  std::vector<Bytes> Since(EventKind kind, size_t& seen) {
    std::vector<Bytes> sizes;
    const std::vector<Event>& events = world_.log.events;
    for (; seen < events.size(); ++seen) {
      if (events[seen].kind == kind) sizes.push_back(events[seen].bytes);
    }
    return sizes;
  }

  const World& world_;
  size_t made_ = 0;
  size_t freed_ = 0;
};

std::vector<ReclaimStep> StepsOf(const World& world) {
  std::vector<ReclaimStep> steps;
  for (const Event& event : world.log.events) {
    if (event.kind == EventKind::kReclaimStepTaken) {
      steps.push_back(static_cast<ReclaimStep>(event.extra));
    }
  }
  return steps;
}

TEST(SegmentsLayoutTest, SegmentsAreOfPytorchsSizes) {
  World world(Segments());
  Segmentation segments(world);
  world.Allocate(100);
  EXPECT_THAT(segments.Made(), ElementsAre(2 * kMiB));
  world.Allocate(11 * kMiB);
  EXPECT_THAT(segments.Made(), ElementsAre(12 * kMiB));
  world.Allocate(kMiB + 1);
  EXPECT_THAT(segments.Made(), ElementsAre(20 * kMiB)) << "1 MiB that is left is not split off";
  world.Allocate(18 * kMiB);
  EXPECT_THAT(segments.Made(), IsEmpty()) << "the rest of the 20 MiB";
}

TEST(SegmentsLayoutTest, SmallAndLargeRequestsLieInDifferentSegments) {
  World world(Segments());
  const DevicePtr small = world.Allocate(kMiB);
  const DevicePtr large = world.Allocate(kMiB + 1);
  const BlockInfo small_block = *world.allocator->FindBlock(small);
  const BlockInfo large_block = *world.allocator->FindBlock(large);
  EXPECT_EQ(small_block.range_bytes, 2 * kMiB);
  EXPECT_EQ(large_block.range_bytes, 20 * kMiB);
  EXPECT_EQ(small_block.range_address, small);
  EXPECT_EQ(world.allocator->counters().reserved_bytes[1].current, int64_t{2 * kMiB});
}

TEST(SegmentsLayoutTest, TheFrontOfTheBestFitIsHandedOut) {
  World world(Segments());
  const DevicePtr a = world.Allocate(30 * kMiB);
  const DevicePtr b = world.Allocate(16 * kMiB);
  const DevicePtr c = world.Allocate(16 * kMiB);
  world.Free(a);
  world.Free(c);
  world.Free(b);
  EXPECT_EQ(world.Allocate(12 * kMiB), std::min(b, c)) << "of equal ones, the lowest address";
  EXPECT_EQ(world.Allocate(14 * kMiB), std::max(b, c));
  EXPECT_EQ(world.Allocate(14 * kMiB), a);
  EXPECT_EQ(world.Allocate(16 * kMiB), a + 14 * kMiB);
}

TEST(SegmentsLayoutTest, NeighboursMergeOnBothSidesAndSegmentsNever) {
  World world(Segments());
  const DevicePtr a = world.Allocate(6 * kMiB);
  const DevicePtr b = world.Allocate(6 * kMiB);
  const DevicePtr c = world.Allocate(8 * kMiB);
  EXPECT_EQ(c, a + 12 * kMiB);
  world.Free(a);
  world.Free(c);
  world.Free(b);
  EXPECT_EQ(world.allocator->LargestFreeBlock(), 20 * kMiB);
  world.Free(world.Allocate(40 * kMiB));
  EXPECT_EQ(world.allocator->LargestFreeBlock(), 40 * kMiB);
}

TEST(SegmentsLayoutTest, AFreeBlockServesItsOwnStreamAlone) {
  World world(Segments());
  const StreamHandle side = world.NewStream();
  world.Free(world.Allocate(20 * kMiB));
  Segmentation segments(world);
  segments.Made();
  world.Allocate(20 * kMiB, side);
  EXPECT_THAT(segments.Made(), ElementsAre(20 * kMiB));
}

TEST(SegmentsLayoutTest, ARequestThatAFreeBlockServesAsksNothingOfTheDriver) {
  World world(Segments("max_split_size_mb:64,roundup_power2_divisions:4"));
  const DevicePtr large = world.Allocate(8 * kMiB);
  const DevicePtr small = world.Allocate(1000);
  world.Free(large);
  world.Free(small);
  const uint64_t calls = world.sim.CallCount();
  const size_t events = world.log.events.size();
  for (Bytes requested : {6 * kMiB, Bytes{1000}}) world.Free(world.Allocate(requested));
  EXPECT_EQ(world.sim.CallCount(), calls);
  EXPECT_EQ(world.log.events.size(), events + 4) << "one event for each allocation and each free";
}

TEST(SegmentsLayoutTest, RemaindersAreCountedAsTheyAreCutAndJoined) {
  World world(Segments("max_split_size_mb:32"));
  const auto counters = [&] { return world.allocator->segment_counters(); };
  EXPECT_EQ(counters().max_split_bytes, 32 * kMiB);
  const DevicePtr a = world.Allocate(6 * kMiB);
  EXPECT_EQ(counters().segments[0], (Gauge{.current = 1, .peak = 1, .risen = 1}));
  EXPECT_EQ(counters().remainders[0], (Gauge{.current = 1, .peak = 1, .risen = 1}));
  EXPECT_EQ(counters().remainder_bytes[2].current, int64_t{14 * kMiB});
  const DevicePtr b = world.Allocate(6 * kMiB);
  EXPECT_EQ(counters().remainders[0].fallen, 0);
  EXPECT_EQ(counters().remainder_bytes[2].fallen, int64_t{6 * kMiB}) << "a cut of a remainder";
  world.Free(a);
  EXPECT_EQ(counters().remainders[2].current, 2);
  world.Free(b);
  EXPECT_EQ(counters().remainders[0].current, 0) << "the segment is one block";
  EXPECT_EQ(counters().remainder_bytes[0].current, 0);
  const DevicePtr oversize = world.Allocate(40 * kMiB);
  world.RecordStream(oversize, world.NewStream());
  EXPECT_EQ(counters().oversize_blocks.current, 1);
  world.Free(oversize);
  EXPECT_EQ(counters().oversize_blocks.current, 0) << "at the free, though it is pending";
  world.allocator->ResetPeaks();
  world.allocator->ResetTotals();
  EXPECT_EQ(counters().segments[0], (Gauge{.current = 2, .peak = 2}));
  world.allocator->EmptyCache();
  EXPECT_EQ(counters().segments[0].current, 0);
  EXPECT_EQ(counters().oversize_segments, (Gauge{.peak = 1, .fallen = 1}));
}

// --- Options of size -----------------------------------------------------------------------------

TEST(SegmentsLayoutTest, SizesAreRoundedToDivisionsOfAPowerOfTwo) {
  World world(Segments("roundup_power2_divisions:[8:2,16:4,>:8]"));
  const auto size_of = [&](Bytes requested) {
    return world.allocator->FindBlock(world.Allocate(requested))->size;
  };
  EXPECT_EQ(size_of(5 * kMiB), 6 * kMiB);
  EXPECT_EQ(size_of(9 * kMiB), 12 * kMiB);
  EXPECT_EQ(size_of(17 * kMiB), 20 * kMiB);
  EXPECT_EQ(size_of(33 * kMiB), 36 * kMiB);
  EXPECT_EQ(size_of(600 * kKiB), 768 * kKiB);
  EXPECT_EQ(size_of(900), 1024u);
}

TEST(SegmentsLayoutTest, LargeSegmentsAreOfTheSizeAskedFor) {
  World world(Segments("large_segment_size_mb:33"));
  Segmentation segments(world);
  world.Allocate(2 * kMiB);
  world.Allocate(31 * kMiB);
  EXPECT_THAT(segments.Made(), ElementsAre(33 * kMiB));
}

// --- Splitting -----------------------------------------------------------------------------------

TEST(SegmentsLayoutTest, AnOversizeBlockIsNotSplitAndServesOnlyRequestsNearItsSize) {
  World world(Segments("max_split_size_mb:32,max_non_split_rounding_mb:24"));
  Segmentation segments(world);
  const DevicePtr big = world.Allocate(64 * kMiB);
  world.Free(big);
  segments.Made();
  world.Free(world.Allocate(31 * kMiB));
  EXPECT_THAT(segments.Made(), ElementsAre(32 * kMiB)) << "smaller requests do not get it";
  const DevicePtr near = world.Allocate(42 * kMiB);
  EXPECT_EQ(near, big);
  EXPECT_EQ(world.allocator->FindBlock(near)->size, 64 * kMiB) << "whole";
  world.Free(near);
  world.Allocate(40 * kMiB);
  EXPECT_THAT(segments.Made(), ElementsAre(40 * kMiB)) << "24 MiB would be left";
}

TEST(SegmentsLayoutTest, ASegmentThatWasMadeForARequestServesItWhateverTheLimitsSay) {
  // A segment of 20 MiB is oversize here, and so is the free one that PyTorch would find first.
  World world(Segments("max_split_size_mb:20"));
  Segmentation segments(world);
  const DevicePtr first = world.Allocate(3 * kMiB);
  world.Free(first);
  world.Allocate(3 * kMiB);
  EXPECT_THAT(segments.Made(), ElementsAre(20 * kMiB, 20 * kMiB));
}

TEST(SegmentsLayoutTest, AnOversizeSegmentMakesRoomForOne) {
  World world(Segments("max_split_size_mb:32", {.memory_bytes = 256 * kMiB}));
  Segmentation segments(world);
  world.Free(world.Allocate(150 * kMiB));
  world.Free(world.Allocate(60 * kMiB));
  segments.Freed();
  world.Allocate(31 * kMiB);
  world.Allocate(60 * kMiB);
  EXPECT_THAT(segments.Freed(), IsEmpty());
  world.Allocate(100 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(150 * kMiB));
  EXPECT_EQ(StepsOf(world).back(), ReclaimStep::kReleaseFitting);
  EXPECT_EQ(world.allocator->counters().release_retries, 0u);
}

TEST(SegmentsLayoutTest, SeveralOversizeSegmentsMakeRoomTheLargestFirst) {
  World world(Segments("max_split_size_mb:32", {.memory_bytes = 256 * kMiB}));
  Segmentation segments(world);
  std::vector<DevicePtr> blocks;
  for (const Bytes size : {40, 90, 60, 40}) blocks.push_back(world.Allocate(size * kMiB));
  for (const DevicePtr block : blocks) world.Free(block);
  segments.Freed();
  world.Allocate(130 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(90 * kMiB, 60 * kMiB));
}

TEST(SegmentsLayoutTest, TooFewOversizeSegmentsLeaveItToTheLastStep) {
  World world(Segments("max_split_size_mb:32", {.memory_bytes = 256 * kMiB}));
  Segmentation segments(world);
  const DevicePtr live = world.Allocate(30 * kMiB);
  const DevicePtr kept = world.Allocate(20 * kMiB);
  const DevicePtr small = world.Allocate(20 * kMiB);
  world.Free(world.Allocate(140 * kMiB));
  world.Free(small);
  segments.Freed();
  world.Allocate(200 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(140 * kMiB, 20 * kMiB));
  EXPECT_EQ(StepsOf(world).back(), ReclaimStep::kReleaseIdle);
  world.Free(live);
  world.Free(kept);
}

// --- Garbage -------------------------------------------------------------------------------------

TEST(SegmentsLayoutTest, GarbageIsCollectedByAge) {
  World world(Segments("garbage_collection_threshold:0.5", {.limit = 400 * kMiB}));
  Segmentation segments(world);
  const DevicePtr oldest = world.Allocate(100 * kMiB);
  const DevicePtr middle = world.Allocate(80 * kMiB);
  const DevicePtr reused = world.Allocate(60 * kMiB);
  world.Free(oldest);                     // after 3 searches
  world.Free(world.Allocate(20 * kMiB));  // splits the oldest, and merges: it begins anew, at 4
  world.Free(middle);                     // at 4
  for (int i = 0; i < 8; ++i) {           // now at 12
    world.Free(reused);
    EXPECT_EQ(world.Allocate(60 * kMiB), reused);
  }
  world.Free(reused);  // at 12
  segments.Freed();
  // 240 MiB are more than half of 400; at 13, ages are 9, 9 and 1: an average of 6.3.
  world.Allocate(120 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(80 * kMiB, 100 * kMiB));
  EXPECT_THAT(StepsOf(world),
              ElementsAre(ReclaimStep::kGrow, ReclaimStep::kGrow, ReclaimStep::kGrow,
                          ReclaimStep::kCollectGarbage, ReclaimStep::kGrow));
  EXPECT_EQ(world.Allocate(60 * kMiB), reused);
}

TEST(SegmentsLayoutTest, GarbageIsCollectedUntilEnoughIsReleased) {
  World world(Segments("garbage_collection_threshold:0.25", {.limit = 400 * kMiB}));
  Segmentation segments(world);
  const DevicePtr a = world.Allocate(80 * kMiB);
  const DevicePtr b = world.Allocate(90 * kMiB);
  const DevicePtr c = world.Allocate(60 * kMiB);
  const DevicePtr other = world.Allocate(20 * kMiB);
  const auto search = [&](int times) {
    for (int i = 0; i < times; ++i) {
      world.Free(other);
      EXPECT_EQ(world.Allocate(20 * kMiB), other);
    }
  };
  world.Free(c);
  search(8);
  world.Free(b);
  search(1);
  world.Free(a);
  segments.Freed();
  // 250 MiB are 150 too many. Ages are 10, 2 and 1, so c goes; of the other two, b; and a stays.
  world.Allocate(100 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(60 * kMiB, 90 * kMiB));
}

TEST(SegmentsLayoutTest, SplitSegmentsAndSmallOnesAreNoGarbage) {
  World world(Segments("garbage_collection_threshold:0.01", {.limit = 400 * kMiB}));
  Segmentation segments(world);
  const DevicePtr a = world.Allocate(9 * kMiB);
  const DevicePtr b = world.Allocate(4 * kMiB);
  world.Free(a);
  world.Free(world.Allocate(1000));
  segments.Freed();
  world.Allocate(200 * kMiB);
  EXPECT_THAT(segments.Freed(), IsEmpty());
  world.Free(b);
}

TEST(SegmentsLayoutTest, WithoutALimitThereIsNoGarbage) {
  World world(Segments("garbage_collection_threshold:0.01"));
  Segmentation segments(world);
  world.Free(world.Allocate(100 * kMiB));
  world.Allocate(200 * kMiB);
  EXPECT_THAT(segments.Freed(), IsEmpty());
}

// --- Limits and failing --------------------------------------------------------------------------

TEST(SegmentsLayoutTest, BeyondTheLimitTheDriverIsNotAsked) {
  World world(Segments("", {.limit = 50 * kMiB}));
  world.Allocate(30 * kMiB);
  const uint64_t calls = world.sim.CallCount(DriverCall::kAllocateMemory);
  const absl::Status status = world.TryAllocate(22 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit"));
  EXPECT_EQ(world.sim.CallCount(DriverCall::kAllocateMemory), calls);
  world.Allocate(20 * kMiB);
}

TEST(SegmentsLayoutTest, TheLastStepReleasesEverySegmentThatIsFree) {
  World world(Segments("", {.memory_bytes = 128 * kMiB}));
  Segmentation segments(world);
  const StreamHandle side = world.NewStream();
  const DevicePtr split = world.Allocate(8 * kMiB);
  const DevicePtr other = world.Allocate(8 * kMiB);
  world.Free(world.Allocate(40 * kMiB, side));
  world.Free(world.Allocate(30 * kMiB));
  world.Free(world.Allocate(1000));
  world.Free(split);
  segments.Freed();
  world.Allocate(64 * kMiB);
  EXPECT_THAT(segments.Freed(), ElementsAre(30 * kMiB, 40 * kMiB, 2 * kMiB))
      << "large ones first, by stream; the split one stays";
  EXPECT_EQ(world.allocator->counters().release_retries, 1u);
  world.Free(other);
}

TEST(SegmentsLayoutTest, ABlockThatCameFreeOnTheWayServesWhereNothingElseDoes) {
  World world(Segments("", {.memory_bytes = 64 * kMiB}));
  const StreamHandle side = world.NewStream();
  const DevicePtr block = world.Allocate(8 * kMiB);
  world.Allocate(8 * kMiB);
  world.Allocate(44 * kMiB);
  world.RecordStream(block, side);
  world.Launch(side, block, 5'000'000);
  world.Free(block);
  EXPECT_EQ(world.Allocate(7 * kMiB), block);
  EXPECT_EQ(StepsOf(world).back(), ReclaimStep::kReleaseIdle);
}

TEST(SegmentsLayoutTest, OutOfMemoryTellsWhereTheMemoryIs) {
  World world(Segments("", {.memory_bytes = 64 * kMiB}));
  world.Allocate(40 * kMiB - 100);
  const absl::Status status = world.TryAllocate(30 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("live            40.00 MiB"));
  EXPECT_EQ(world.allocator->counters().out_of_memory, 1u);
}

TEST(SegmentsLayoutTest, EmptyCacheReleasesWholeSegmentsOnly) {
  World world(Segments());
  const DevicePtr a = world.Allocate(4 * kMiB);
  const DevicePtr b = world.Allocate(4 * kMiB);
  world.Free(a);
  EXPECT_EQ(world.allocator->EmptyCache(), 0u);
  world.Free(b);
  EXPECT_EQ(world.allocator->EmptyCache(), 20 * kMiB);
  world.Check();
  EXPECT_EQ(world.reserved(), 0u);
  EXPECT_EQ(world.allocator->counters().address_bytes[0].current, 0);
}

TEST(SegmentsLayoutTest, AFreeKnowsItsDeviceByTheSegment) {
  World world(Segments());
  const DevicePtr block = world.Allocate(4 * kMiB);
  EXPECT_EQ(world.address_map.Find(block + 3 * kMiB), 0);
  world.Free(block);
  world.allocator->EmptyCache();
  EXPECT_EQ(world.address_map.Find(block), std::nullopt);
}

TEST(SegmentsLayoutTest, ADeviceWithoutVirtualMemoryGetsIt) {
  class NoVirtualMemory final : public ForwardingDriver {
   public:
    explicit NoVirtualMemory(Driver* driver) : ForwardingDriver(driver) {}
    absl::StatusOr<DeviceProperties> GetProperties(DeviceIndex device) override {
      absl::StatusOr<DeviceProperties> properties = ForwardingDriver::GetProperties(device);
      properties->virtual_memory = false;
      properties->granularity = 0;
      return properties;
    }
  };
  World world;
  NoVirtualMemory driver(&world.sim);
  AddressMap address_map;
  auto allocator =
      DeviceAllocator::Create(driver, /*device=*/0, world.clock, address_map, Config());
  ASSERT_TRUE(allocator.ok()) << allocator.status();
  ASSERT_TRUE((*allocator)->Allocate(nullptr, 3 * kMiB).ok());
  EXPECT_EQ(world.sim.CallCount(DriverCall::kAllocateMemory), 1u);
}

}  // namespace
}  // namespace offcut
