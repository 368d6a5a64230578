// ArenaLayout: memory in granules, mapped into arenas as it is needed.
//
// Owns the arenas and granules of a device's default pools, which share them. A request gets the
// best fit among the free blocks of its pool; up to policy::kSlotMax, a slot of a slab. If none
// fits, the cheapest window of free blocks and gaps is chosen and its gaps are filled: with new
// granules up to the soft target, beyond it with granules that lie wholly free elsewhere. Those are
// moved: mapped a second time at their new place, for use there at once, because the stream that
// used them last is the stream that will use them next; the old mapping goes when the stream has
// passed the move.
//
// Rules that cost data if broken:
//   a granule is mapped a second time only for the stream that its free memory belongs to
//   a granule passes to another pool, or back to the driver, only if that stream's epochs prove it
//   idle and it has no old mapping left
//
// Not thread-safe: guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_
#define OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "allocator/core/arena.h"
#include "allocator/core/arena_pool.h"
#include "allocator/core/granule_pool.h"
#include "allocator/core/layout.h"
#include "allocator/policy/growth.h"
#include "allocator/policy/native_sizes.h"

namespace offcut {

class ArenaLayout final : public Layout {
 public:
  explicit ArenaLayout(LayoutContext& context);
  ~ArenaLayout() override;

  void SetSizeOptions(const SizeOptions& options) override;
  std::unique_ptr<Pool> NewPool(uint16_t index, StreamLedger::Stream& stream) override;
  Block* Take(Pool& pool, Bytes requested) override;
  void GiveBack(Block* block, uint64_t epoch) override;
  absl::Span<const ReclaimStep> ladder() const override;
  absl::Status TakeStep(ReclaimStep step, Pool& pool, Bytes requested) override;
  WaitPlan PlanWait(Pool& pool, Bytes requested) override;
  Bytes GrowthFor(Bytes requested) const override;
  Bytes ReleaseIdle(const Pool* only) override;
  absl::Status OpenTo(DeviceIndex peer) override { return granules_.OpenTo(peer); }
  Bytes LargestFree(const Pool& pool) const override;
  Range RangeOf(const Block& block) const override;
  void AddTo(StateView& view) const override;

 private:
  // The arenas for requests of one kind, shared by all pools.
  struct ArenaSet {
    std::vector<std::unique_ptr<Arena>> arenas;
    bool small = false;
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
    Bytes bytes = 0;
  };
  // What the gaps of a site are filled with.
  struct Filling {
    std::vector<GranulePool::Place> places;  // in order of address
    std::vector<Donor> donors;               // of the granules among them that are moved
    absl::flat_hash_set<DevicePtr> chosen;   // the donors' addresses
    Bytes new_bytes = 0;                     // of the other granules

    // The donor's granule goes to the front of a gap, which is shorter from then on.
    void Move(const Donor& donor, Range& gap);
  };
  // How the gaps of a site are filled.
  struct Supply {
    Bytes preferred_new = 0;  // new granules up to here before any is moved
    Bytes most_new = 0;       // and up to here if too few can be moved
    bool may_move = false;
  };

  // Whether granules may be mapped a second time while their stream still uses them.
  bool MayAlias() const {
    return context_.config.remap() == RemapMode::kAlias && context_.second_mappings_work;
  }
  static ArenaPool& Cast(Pool& pool) { return static_cast<ArenaPool&>(pool); }
  static const ArenaPool& Cast(const Pool& pool) { return static_cast<const ArenaPool&>(pool); }
  ArenaSet& SetOf(Bytes requested);
  // Of a block that is not a slot.
  Bytes BlockSize(Bytes requested) const;

  // --- arena_growth.cc: the slow path ---
  // The most live bytes there ever were, counting the request.
  Bytes LargestLiveWith(Bytes requested) const;
  bool MovingHasHadItsShare(Bytes largest_live) const;
  // Bytes by which reserved memory may grow up to `target`, or to the limit where one is set.
  Bytes RoomWithin(Bytes target) const;
  absl::Status MakeRoomSlow(ArenaPool& pool, Bytes requested, const Supply& supply);
  // The site for the pool that needs the fewest granules: of its own free memory, gaps, and what
  // other pools have idle.
  std::optional<Site> CheapestSite(const ArenaPool& pool, const ArenaSet& set, Bytes size) const;
  static bool MayUse(const ArenaPool& pool, const Block* tile);
  // What other pools own of the site passes to the pool.
  void AdoptWithin(ArenaPool& pool, const Site& site);
  absl::StatusOr<Site> FindSiteSlow(ArenaPool& pool, ArenaSet& set, Bytes size);
  absl::Status AddArenaSlow(ArenaSet& set, Bytes size);
  void JoinIdleNeighbours();
  Bytes ReleaseIdleOf(ArenaPool& pool, bool small);
  // So that what is free in the pool now may soon serve other pools.
  void CloseEpochOfIdle(ArenaPool& pool);

  // --- arena_filling.cc: the slow path ---
  Filling PlanFilling(ArenaPool& pool, const Site& site, const Supply& supply);
  // Whole places, in order of address.
  std::vector<Range> GapsOf(const Site& site) const;
  // Bytes of the gap at a place, from there on, as far as `most`.
  static Bytes GapFrom(const Arena& arena, DevicePtr place, Bytes most);
  // Donors for `to_move` bytes of the gaps, or as many as there are; what they fill is no gap any
  // more.
  void PlanMoves(ArenaPool& pool, const Site& site, Bytes to_move, std::vector<Range>& gaps,
                 Filling& filling);
  // New granules for the gaps.
  void PlanGrowth(const Site& site, const Supply& supply, std::vector<Range>& gaps,
                  Filling& filling) const;
  // At most `count` donors of `bytes` each for `pool`, none of them within `site`.
  void AddDonors(ArenaPool& pool, const Site& site, Bytes bytes, size_t count, Filling& filling);
  void AddDonorsOf(ArenaPool& from, bool small, bool same_stream, const Site& site, Bytes bytes,
                   size_t most, Filling& filling);
  // Visits the granules that lie wholly in a free tile, the last first, until `visit` returns
  // false.
  void ForEachGranuleFromEnd(
      const Block& tile,
      absl::FunctionRef<bool(DevicePtr address, const GranulePool::Granule&)> visit) const;
  absl::Status FillSlow(ArenaPool& pool, const Site& site, Filling& filling);
  // Moving tiles that the donors' granules, and what a site and its filling consist of, become.
  static std::vector<Block*> TakeDonors(std::vector<Donor>& donors);
  static std::vector<Block*> TakeSite(const Site& site, const Filling& filling);
  // The places that granules were moved away from become old tiles, in use up to `epoch`; those
  // that the device is done with become gaps, at once if they are few.
  void Retire(const std::vector<Block*>& leaving, uint64_t epoch, bool few);
  // Old mappings that the stream has passed go. `mutex`: the device's lock, to be given up where
  // there are many; nullptr: it is kept.
  void RemoveOldMappings(ArenaPool& pool, DeviceMutex* mutex);

  const uint64_t created_ns_;
  uint64_t moves_ = 0;  // granules, in all
  policy::native::Divisions divisions_;
  bool divided_;
  GranulePool& granules_;
  ArenaSet small_{.small = true};
  ArenaSet large_;
  std::vector<ArenaPool*> pools_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ARENA_LAYOUT_H_
