#include "allocator/events/memory_state.h"

#include "gtest/gtest.h"

namespace offcut {
namespace {

constexpr DevicePtr kA = 0x7f0000000000;

Event Allocated(DevicePtr address, Bytes requested, Bytes size) {
  return {.address = address,
          .bytes = requested,
          .extra = static_cast<uint32_t>(size / kBlockAlignment),
          .pool = 0,
          .kind = EventKind::kBlockAllocated};
}

Event As(Event event, EventKind kind) {
  event.kind = kind;
  return event;
}

TEST(MemoryStateTest, FollowsABlockThroughItsLife) {
  MemoryState state;
  const Event allocated = Allocated(kA, 1000, 1024);
  state.Apply(allocated);
  EXPECT_EQ(state.live_bytes(), 1000u);
  ASSERT_EQ(state.blocks().count(kA), 1u);
  state.Apply(As(allocated, EventKind::kBlockFreePended));
  EXPECT_EQ(state.live_bytes(), 0u);
  EXPECT_TRUE(state.blocks().at(kA).pending);
  state.Apply(As(allocated, EventKind::kPendingFreeFinished));
  EXPECT_TRUE(state.blocks().empty());
  EXPECT_EQ(state.inconsistencies(), 0u);
}

TEST(MemoryStateTest, FollowsAGranuleThroughItsLife) {
  MemoryState state;
  const Event created = {.bytes = 2 * kMiB, .extra = 5, .kind = EventKind::kGranuleCreated};
  state.Apply(created);
  EXPECT_EQ(state.reserved_bytes(), 2 * kMiB);
  Event mapped = As(created, EventKind::kGranuleMapped);
  mapped.address = kA;
  state.Apply(mapped);
  EXPECT_EQ(state.granules().at(5).mapped_at, kA);
  state.Apply(As(mapped, EventKind::kGranuleUnmapped));
  EXPECT_EQ(state.Account().idle_bytes, 2 * kMiB);
  state.Apply(As(created, EventKind::kGranuleReleased));
  EXPECT_EQ(state.reserved_bytes(), 0u);
  EXPECT_EQ(state.inconsistencies(), 0u);
}

TEST(MemoryStateTest, NamesStreamsAndPools) {
  MemoryState state;
  state.Apply({.address = 77, .bytes = 0xabc, .extra = 1, .kind = EventKind::kStreamSeen});
  state.Apply({.bytes = 0, .extra = 1, .pool = 4, .kind = EventKind::kPoolCreated});
  EXPECT_EQ(state.streams().at(1), (MemoryState::Stream{.id = 77, .handle = 0xabc}));
  EXPECT_EQ(state.pools().at(4), (MemoryState::Pool{.stream_index = 1}));
}

TEST(MemoryStateTest, CountsWhatContradictsIt) {
  const Event allocated = Allocated(kA, 1000, 1024);
  const Event granule = {.bytes = 2 * kMiB, .extra = 5, .kind = EventKind::kGranuleCreated};
  const std::vector<std::vector<Event>> contradictions = {
      {As(allocated, EventKind::kBlockFreed)},
      {As(allocated, EventKind::kBlockFreePended)},
      {allocated, allocated},
      {allocated, As(allocated, EventKind::kPendingFreeFinished)},
      {allocated, As(Allocated(kA, 1, 512), EventKind::kBlockFreed)},
      {granule, granule},
      {As(granule, EventKind::kGranuleMapped)},
      {As(granule, EventKind::kGranuleUnmapped)},
      {As(granule, EventKind::kGranuleReleased)},
  };
  for (const std::vector<Event>& events : contradictions) {
    MemoryState state;
    for (const Event& event : events) state.Apply(event);
    EXPECT_EQ(state.inconsistencies(), 1u) << ToString(events.back());
  }
}

TEST(MemoryStateTest, ALostFreeDoesNotCountABlockTwice) {
  MemoryState state;
  state.Apply(Allocated(kA, 1000, 1024));
  state.Apply(Allocated(kA, 500, 512));
  EXPECT_EQ(state.live_bytes(), 500u);
  EXPECT_EQ(state.blocks().size(), 1u);
}

}  // namespace
}  // namespace offcut
