// The audit must be able to fail: each contradiction that it looks for, planted.

#include "allocator/core/audit.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

StateView HealthyView() {
  World world({.lag_ns = 1'000'000});
  const StreamHandle side = world.NewStream();
  const DevicePtr a = world.Allocate(3 * kMiB);
  world.Allocate(5 * kMiB);
  world.Free(a);
  world.Allocate(700);
  const DevicePtr pending = world.Allocate(2 * kMiB);
  world.RecordStream(pending, side);
  world.Launch(side, pending);
  world.Free(pending);
  constexpr PrivatePoolId kPool = {.second = 1};
  EXPECT_TRUE(
      world.allocator->BeginAllocateToPool(kPool, nullptr, [](StreamHandle) { return true; }).ok());
  world.Allocate(3 * kMiB);
  EXPECT_TRUE(world.allocator->EndAllocateToPool(kPool).ok());
  return world.allocator->View();
}

struct Plant {
  const char* what;
  std::function<void(StateView&)> change;
  const char* found;
};

StateView::Tile& TileIn(StateView& view, BlockState state) {
  for (StateView::ArenaView& arena : view.arenas) {
    for (StateView::Tile& tile : arena.tiles) {
      if (tile.state == state) return tile;
    }
  }
  ADD_FAILURE() << "no tile is " << ToString(state);
  return view.arenas.at(0).tiles.at(0);
}

// That of the private pool: a live block and what is left of it.
StateView::ArenaView& SegmentIn(StateView& view) {
  for (StateView::ArenaView& arena : view.arenas) {
    if (arena.segment && arena.tiles.size() > 1) return arena;
  }
  ADD_FAILURE() << "no segment is split";
  return view.arenas.at(0);
}

TEST(AuditTest, FindsNothingInAHealthyAllocator) {
  EXPECT_TRUE(Audit(HealthyView()).ok()) << Audit(HealthyView());
  EXPECT_TRUE(Audit(StateView()).ok());
}

TEST(AuditTest, FindsEachContradictionThatItLooksFor) {
  const std::vector<Plant> plants = {
      {"a hole between tiles", [](StateView& v) { TileIn(v, BlockState::kFree).size -= 512; },
       "is due"},
      {"an odd size", [](StateView& v) { v.arenas[0].tiles[0].size += 1; }, "bytes"},
      {"a live tile that is called free",
       [](StateView& v) { TileIn(v, BlockState::kPending).state = BlockState::kFree; }, "audit"},
      {"a mapped granule that is gone from the arena",
       [](StateView& v) { v.arenas[0].granules.pop_back(); }, "granules mapped"},
      {"a gap that is not indexed", [](StateView& v) { v.arenas[0].gaps.clear(); }, "misindexes"},
      {"a slab that miscounts", [](StateView& v) { TileIn(v, BlockState::kSlab).free_slots += 1; },
       "free slots"},
      {"a slot out of place",
       [](StateView& v) { TileIn(v, BlockState::kSlab).slots[1].address += 512; }, "out of place"},
      {"a free block in no index", [](StateView& v) { v.free.pop_back(); }, "free indexes"},
      {"a free block twice in an index", [](StateView& v) { v.free.push_back(v.free.back()); },
       "free indexes"},
      {"an index under another pool", [](StateView& v) { v.free[0].pool = 9; }, "free indexes"},
      {"a block missing from the table", [](StateView& v) { v.taken.pop_back(); }, "in the table"},
      {"a block under another's address", [](StateView& v) { v.taken[0].key += 512; },
       "not what its arena says"},
      {"a pending block that waits for nothing",
       [](StateView& v) {
         for (StateView::Taken& block : v.taken) block.unfinished_uses = 0;
       },
       "unfinished uses"},
      {"a ledger that miscounts", [](StateView& v) { v.pending_blocks += 1; }, "ledger"},
      {"a granule mapped elsewhere",
       [](StateView& v) { v.granules[0].mapped_at += v.arenas[0].granularity; },
       "which is not its place"},
      {"a granule mapped twice",
       [](StateView& v) {
         uint32_t& index = v.arenas[0].granules[0].index;
         index = v.granules[v.granules[0].index == index ? 1 : 0].index;
       },
       "which is not its place"},
      {"an old mapping that nobody counts", [](StateView& v) { v.granules[0].old_mappings += 1; },
       "old mappings"},
      {"a granule lost from the books", [](StateView& v) { v.granules.pop_back(); },
       "does not exist"},
      {"reserved bytes that are not there", [](StateView& v) { v.reserved_bytes += 2 * kMiB; },
       "reserved"},
      {"a counter that drifts", [](StateView& v) { v.counters.live_bytes[0].current += 1; },
       "live_bytes"},
      {"a segment that is not counted",
       [](StateView& v) { v.segment_counters.segments[0].current += 1; }, "counter number 0"},
      {"a block of a private pool among others",
       [](StateView& v) { v.pools[0].private_pool_id = 2; },
       "of private pool 0 lies in an arena of default pools"},
      {"a private pool's memory that is another's",
       [](StateView& v) { SegmentIn(v).tiles[1].pool = 0; }, "and of pool 0"},
      {"a private pool's granule that was moved",
       [](StateView& v) {
         const uint32_t index = SegmentIn(v).granules[0].index;
         for (StateView::GranuleView& granule : v.granules) {
           if (granule.index == index) ++granule.old_mappings;
         }
       },
       "was moved"},
      {"a size class that drifts",
       [](StateView& v) { v.counters.allocated_bytes[1].current += 512; }, "allocated_bytes"},
  };
  for (const Plant& plant : plants) {
    SCOPED_TRACE(plant.what);
    StateView view = HealthyView();
    plant.change(view);
    const absl::Status status = Audit(view);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(plant.found));
  }
}

}  // namespace
}  // namespace offcut
