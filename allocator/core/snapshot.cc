#include "allocator/core/snapshot.h"

#include <algorithm>

namespace offcut {
namespace {

bool IsMapped(const StateView::Tile& tile) {
  return tile.state != BlockState::kGap && tile.state != BlockState::kOld &&
         tile.state != BlockState::kReturning;
}

class Builder {
 public:
  explicit Builder(const StateView& view) : view_(view) {}

  Snapshot Build() {
    std::vector<const StateView::ArenaView*> arenas;
    for (const StateView::ArenaView& arena : view_.arenas) arenas.push_back(&arena);
    std::sort(arenas.begin(), arenas.end(),
              [](const auto* a, const auto* b) { return a->base < b->base; });
    for (const StateView::ArenaView* arena : arenas) AddArena(*arena);
    return std::move(snapshot_);
  }

 private:
  void AddArena(const StateView::ArenaView& arena) {
    uint16_t pool = kNoPool;
    for (const StateView::Tile& tile : arena.tiles) {
      if (!IsMapped(tile)) {
        pool = kNoPool;
        continue;
      }
      if (tile.pool != pool) BeginSegment(arena, tile);
      pool = tile.pool;
      if (tile.state == BlockState::kSlab) {
        AddSlots(tile);
      } else {
        AddBlock({.size = tile.size, .requested = tile.requested, .state = tile.state});
      }
    }
  }

  void BeginSegment(const StateView::ArenaView& arena, const StateView::Tile& first) {
    Snapshot::Segment& segment =
        snapshot_.segments.emplace_back(Snapshot::Segment{.address = first.address,
                                                          .small = arena.small,
                                                          .in_one_piece = arena.segment,
                                                          .first_block = snapshot_.blocks.size()});
    if (first.pool < view_.pools.size()) {
      const StateView::PoolView& pool = view_.pools[first.pool];
      segment.stream = pool.stream;
      segment.pool = PrivatePoolId::Decode(pool.private_pool_id);
    }
  }

  void AddBlock(const Snapshot::Block& block) {
    Snapshot::Segment& segment = snapshot_.segments.back();
    segment.bytes += block.size;
    ++segment.block_count;
    snapshot_.blocks.push_back(block);
  }

  void AddSlots(const StateView::Tile& slab) {
    DevicePtr free_from = slab.address;
    const auto close_free = [&](DevicePtr end) {
      if (end > free_from) AddBlock({.size = end - free_from, .state = BlockState::kFree});
    };
    for (const StateView::Slot& slot : slab.slots) {
      if (slot.state == BlockState::kFree) continue;
      close_free(slot.address);
      AddBlock({.size = slot.size, .requested = slot.requested, .state = slot.state});
      free_from = slot.address + slot.size;
    }
    close_free(slab.address + slab.size);
  }

  const StateView& view_;
  Snapshot snapshot_;
};

}  // namespace

Snapshot SnapshotOf(const StateView& view) { return Builder(view).Build(); }

}  // namespace offcut
