// Snapshots, held against the views that they are drawn from.

#include "allocator/core/snapshot.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;

std::vector<BlockState> StatesOf(const Snapshot& snapshot, const Snapshot::Segment& segment) {
  std::vector<BlockState> states;
  for (size_t i = 0; i < segment.block_count; ++i) {
    states.push_back(snapshot.blocks[segment.first_block + i].state);
  }
  return states;
}

void ExpectSound(const Snapshot& snapshot, const World& world) {
  Bytes held = 0, live = 0;
  DevicePtr end = 0;
  for (const Snapshot::Segment& segment : snapshot.segments) {
    EXPECT_GE(segment.address, end) << "segments overlap";
    end = segment.address + segment.bytes;
    Bytes covered = 0;
    for (size_t i = 0; i < segment.block_count; ++i) {
      const Snapshot::Block& block = snapshot.blocks[segment.first_block + i];
      covered += block.size;
      EXPECT_LE(block.requested, block.size);
      if (block.state == BlockState::kLive) live += block.requested;
    }
    EXPECT_EQ(covered, segment.bytes);
    held += segment.bytes;
  }
  const Counters counters = world.allocator->counters();
  EXPECT_EQ(held, static_cast<Bytes>(counters.mapped_bytes[0].current));
  EXPECT_EQ(live, static_cast<Bytes>(counters.live_bytes[0].current));
}

TEST(SnapshotTest, OfNothingIsEmpty) {
  World world;
  EXPECT_TRUE(SnapshotOf(world.allocator->View()).segments.empty());
}

TEST(SnapshotTest, ASegmentIsWhatOnePoolHoldsInARow) {
  World world;
  const StreamHandle side = world.NewStream();
  const DevicePtr a = world.Allocate(8 * kMiB);
  const DevicePtr b = world.Allocate(8 * kMiB, side);
  world.Allocate(8 * kMiB);
  world.Free(a);
  const Snapshot snapshot = SnapshotOf(world.allocator->View());
  ExpectSound(snapshot, world);
  ASSERT_EQ(snapshot.segments.size(), 3u);
  for (const Snapshot::Segment& segment : snapshot.segments) {
    EXPECT_FALSE(segment.in_one_piece);
    EXPECT_EQ(segment.stream, segment.address == b ? side : nullptr);
  }
  EXPECT_THAT(StatesOf(snapshot, snapshot.segments[0]), ElementsAre(BlockState::kFree));
}

TEST(SnapshotTest, SlotsAreBlocksAndFreeOnesSideBySideAreOne) {
  World world;
  const DevicePtr first = world.Allocate(512);
  const DevicePtr second = world.Allocate(400);
  const DevicePtr third = world.Allocate(512);
  ASSERT_EQ(second, first + 512);
  world.Free(second);
  const Snapshot snapshot = SnapshotOf(world.allocator->View());
  ExpectSound(snapshot, world);
  ASSERT_EQ(snapshot.segments.size(), 1u);
  EXPECT_TRUE(snapshot.segments[0].small);
  std::vector<BlockState> states = StatesOf(snapshot, snapshot.segments[0]);
  states.resize(4);
  EXPECT_THAT(states, ElementsAre(BlockState::kLive, BlockState::kFree, BlockState::kLive,
                                  BlockState::kFree));
  world.Free(third);
}

TEST(SnapshotTest, PendingBlocksAndPrivatePoolsAreTold) {
  World world({.lag_ns = 1'000'000});
  const PrivatePoolId pool = {.second = 7};
  ASSERT_TRUE(world.allocator
                  ->BeginAllocateToPool(pool, nullptr,
                                        [](StreamHandle) -> absl::StatusOr<bool> { return true; })
                  .ok());
  const DevicePtr block = world.Allocate(3 * kMiB);
  ASSERT_TRUE(world.allocator->EndAllocateToPool(pool).ok());
  const StreamHandle side = world.NewStream();
  world.RecordStream(block, side);
  world.Launch(side, block);
  world.Free(block);
  int moments = 0;
  const Snapshot snapshot = SnapshotOf(world.allocator->View([&] { ++moments; }));
  EXPECT_EQ(moments, 1);
  ExpectSound(snapshot, world);
  ASSERT_EQ(snapshot.segments.size(), 1u);
  EXPECT_EQ(snapshot.segments[0].pool, pool);
  EXPECT_TRUE(snapshot.segments[0].in_one_piece);
  EXPECT_THAT(StatesOf(snapshot, snapshot.segments[0]),
              ElementsAre(BlockState::kPending, BlockState::kFree));
}

}  // namespace
}  // namespace offcut
