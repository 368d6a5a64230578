// ArenaLayout: memory in granules, mapped into arenas as it is needed.
//
// Owns the arenas and granules of a device's default pools. A request gets the best fit among the
// free blocks of its pool; up to policy::kSlotMax, a slot of a slab. If none fits, the cheapest
// window of free blocks and gaps is chosen and its gaps are filled: with new granules up to the
// soft target, beyond it with granules that lie wholly free elsewhere. Those are moved: mapped a
// second time at their new place, for use there at once, because the stream that used them last is
// the stream that will use them next; the old mapping goes when the stream has passed the move.
//
// Rules that cost data if broken:
//   a granule is mapped a second time only for the stream that its free memory belongs to
//   a granule passes to another pool, or back to the driver, only if that stream's epochs prove it
//   idle and it has no old mapping left
//
// Not thread-safe: guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_
#define OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "allocator/core/arena.h"
#include "allocator/core/free_index.h"
#include "allocator/core/granule_pool.h"
#include "allocator/core/layout.h"
#include "allocator/core/slab.h"
#include "allocator/policy/growth.h"

namespace offcut {

class ArenaLayout final : public Layout {
 public:
  explicit ArenaLayout(LayoutContext& context);
  ~ArenaLayout() override;

  std::unique_ptr<Pool> NewPool(uint16_t index, StreamLedger::Stream& stream) override;
  Block* Take(Pool& pool, Bytes requested) override;
  void GiveBack(Block* block, uint64_t epoch) override;
  absl::Span<const ReclaimStep> ladder() const override;
  absl::Status TakeStep(ReclaimStep step, Pool& pool, Bytes requested) override;
  Bytes GrowthFor(Bytes requested) const override;
  Bytes ReleaseIdle(const Pool* only) override;
  absl::Status OpenTo(DeviceIndex peer) override { return granules_.OpenTo(peer); }
  Bytes LargestFree(const Pool& pool) const override;
  Range RangeOf(const Block& block) const override;
  void AddTo(StateView& view) const override;

 private:
  // The arenas of one pool for requests of one kind.
  struct ArenaSet {
    FreeIndex free;
    std::vector<std::unique_ptr<Arena>> arenas;
    bool small = false;
  };
  struct ArenaPool final : Pool {
    ArenaPool(uint16_t pool_index, StreamLedger::Stream& pool_stream, ArenaLayout& pool_layout)
        : Pool(pool_index, pool_stream, pool_layout) {
      small.small = true;
    }
    ArenaSet small;
    ArenaSet large;
    SlabSet slabs;
    std::deque<Block*> old_tiles;  // in order of epoch
  };
  // Where in an arena a request will go.
  struct Site {
    Arena* arena = nullptr;
    policy::Window window;
  };
  // A granule that lies wholly free and may be moved.
  struct Donor {
    Block* tile = nullptr;
    DevicePtr address = 0;
  };
  // How the gaps of a site are filled.
  struct Supply {
    Bytes preferred_new = 0;  // new granules up to here before any is moved
    Bytes most_new = 0;       // and up to here if too few can be moved
    bool may_move = false;
  };

  static ArenaPool& Cast(Pool& pool) { return static_cast<ArenaPool&>(pool); }
  static const ArenaPool& Cast(const Pool& pool) { return static_cast<const ArenaPool&>(pool); }
  static ArenaSet& SetOf(ArenaPool& pool, Bytes requested);

  // --- arena_growth.cc: the slow path ---
  // Memory by which reserved may grow, up to the soft target or to the limit.
  Bytes RoomWithinTarget(Bytes requested) const;
  Bytes RoomWithinLimit() const;
  absl::Status MakeRoomSlow(ArenaPool& pool, Bytes requested, const Supply& supply);
  std::optional<Site> CheapestSite(const ArenaSet& set, Bytes size) const;
  absl::StatusOr<Site> FindSiteSlow(ArenaPool& pool, ArenaSet& set, Bytes size);
  absl::Status AddArenaSlow(ArenaPool& pool, ArenaSet& set, Bytes size);
  // At most `count` donors for `pool`, none of them within `site`.
  std::vector<Donor> ChooseDonors(ArenaPool& pool, const Site& site, size_t count);
  // So that what is free in the pool now may soon serve other pools.
  void CloseEpochOfIdle(ArenaPool& pool);
  void AddDonors(ArenaPool& from, ArenaSet& set, bool same_stream, const Site& site, size_t count,
                 std::vector<Donor>& donors);
  absl::Status FillSlow(ArenaPool& pool, const ArenaSet& set, const Site& site,
                        const std::vector<Donor>& donors);
  // The donors' places become old tiles, in use up to `epoch`; those that the device is done with
  // become gaps at once.
  void RetireDonors(const std::vector<Donor>& donors, uint64_t epoch);
  // Old mappings that the stream has passed go.
  void RemoveOldMappings(ArenaPool& pool);
  Bytes ReleaseIdleOf(ArenaPool& pool, ArenaSet& set);

  const RemapMode remap_;
  GranulePool& granules_;
  std::vector<ArenaPool*> pools_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_
