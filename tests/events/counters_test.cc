#include "allocator/events/counters.h"

#include "gtest/gtest.h"

namespace offcut {
namespace {

constexpr size_t kAll = static_cast<size_t>(SizeClassOf::kAll);
constexpr size_t kSmall = static_cast<size_t>(SizeClassOf::kSmall);
constexpr size_t kLarge = static_cast<size_t>(SizeClassOf::kLarge);

Event Block(EventKind kind, Bytes requested, Bytes size) {
  return {.bytes = requested, .extra = static_cast<uint32_t>(size / kBlockAlignment), .kind = kind};
}

TEST(CountersTest, ABlocksLifeRaisesAndLowersItsGauges) {
  Counters counters;
  counters.Apply(Block(EventKind::kBlockAllocated, 1000, 1024));
  counters.Apply(Block(EventKind::kBlockAllocated, 2 * kMiB, 2 * kMiB));
  EXPECT_EQ(counters.allocations[kAll].current, 2);
  EXPECT_EQ(counters.live_bytes[kSmall].current, 1000);
  EXPECT_EQ(counters.allocated_bytes[kSmall].current, 1024);
  EXPECT_EQ(counters.allocated_bytes[kLarge].current, static_cast<int64_t>(2 * kMiB));
  counters.Apply(Block(EventKind::kBlockFreed, 1000, 1024));
  EXPECT_EQ(counters.live_bytes[kSmall], (Gauge{0, 1000, 1000, 1000}));
  EXPECT_EQ(counters.active_blocks[kAll].current, 1);
}

TEST(CountersTest, APendingBlockIsNoLongerLiveAndStillActive) {
  Counters counters;
  counters.Apply(Block(EventKind::kBlockAllocated, 1000, 1024));
  counters.Apply(Block(EventKind::kBlockFreePended, 1000, 1024));
  EXPECT_EQ(counters.live_bytes[kAll].current, 0);
  EXPECT_EQ(counters.pending_bytes[kAll].current, 1024);
  EXPECT_EQ(counters.active_bytes[kAll].current, 1024);
  EXPECT_EQ(counters.active_requested_bytes[kAll].current, 1000);
  counters.Apply(Block(EventKind::kPendingFreeFinished, 1000, 1024));
  EXPECT_EQ(counters.pending_bytes[kAll].current, 0);
  EXPECT_EQ(counters.active_bytes[kAll].current, 0);
}

TEST(CountersTest, ReservedFollowsCreationAndMappedFollowsMapping) {
  Counters counters;
  const uint32_t small_id = 4 | kSmallGranuleBit;
  counters.Apply({.bytes = 2 * kMiB, .extra = small_id, .kind = EventKind::kGranuleCreated});
  EXPECT_EQ(counters.reserved_bytes[kSmall].current, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(counters.mapped_bytes[kAll].current, 0);
  counters.Apply({.bytes = 2 * kMiB, .extra = small_id, .kind = EventKind::kGranuleMapped});
  counters.Apply({.bytes = 2 * kMiB, .extra = small_id, .kind = EventKind::kGranuleUnmapped});
  counters.Apply({.bytes = 2 * kMiB, .extra = small_id, .kind = EventKind::kGranuleReleased});
  EXPECT_EQ(counters.reserved_bytes[kAll].current, 0);
  EXPECT_EQ(counters.mapped_bytes[kSmall].peak, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(counters.granules_created, 1u);
  EXPECT_EQ(counters.granules_released, 1u);
}

TEST(CountersTest, OnlyALackOfMemoryCountsAsOutOfMemory) {
  Counters counters;
  for (FailureReason reason : {FailureReason::kOutOfMemory, FailureReason::kLimit,
                               FailureReason::kTooLarge, FailureReason::kDriverError}) {
    counters.Apply({.extra = static_cast<uint32_t>(reason), .kind = EventKind::kRequestFailed});
  }
  EXPECT_EQ(counters.failed_requests, 4u);
  EXPECT_EQ(counters.out_of_memory, 2u);
}

TEST(CountersTest, ResettingPeaksKeepsLevelsAndResettingTotalsKeepsPeaks) {
  Counters counters;
  counters.Apply(Block(EventKind::kBlockAllocated, 1000, 1024));
  counters.Apply(Block(EventKind::kBlockAllocated, 500, 512));
  counters.Apply(Block(EventKind::kBlockFreed, 1000, 1024));
  counters.Apply({.kind = EventKind::kPeaksReset});
  EXPECT_EQ(counters.live_bytes[kAll], (Gauge{500, 500, 1500, 1000}));
  counters.Apply({.bytes = 7, .kind = EventKind::kStepMarked});
  counters.Apply({.kind = EventKind::kTotalsReset});
  EXPECT_EQ(counters.live_bytes[kAll], (Gauge{500, 500, 0, 0}));
  EXPECT_EQ(counters.steps, 0u);
}

TEST(CountersTest, KindsFromElsewhereChangeNothing) {
  Counters counters;
  counters.Apply({.bytes = 5, .kind = static_cast<EventKind>(200)});
  EXPECT_EQ(counters, Counters());
}

}  // namespace
}  // namespace offcut
