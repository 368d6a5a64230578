// Slab: a tile of a small requests' arena, cut into equal slots; SlabSet: the slabs of one pool.
//
// Owns the slots' Blocks and which of them are free. Does not map or grow: its owner hands it tiles
// and takes back those that it no longer needs. What a slab needs of the host's memory is kept when
// it goes, and serves the next one of its class: a steady state allocates nothing from the heap.
// Not thread-safe: guarded by the device's lock.
//
// Invariant: free slots + taken slots == slots of the slab, and a slab is in its class's list if
// and only if it has a free slot.

#ifndef OFFCUT_ALLOCATOR_CORE_SLAB_H_
#define OFFCUT_ALLOCATOR_CORE_SLAB_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/base/units.h"
#include "allocator/core/block.h"
#include "allocator/policy/sizes.h"

namespace offcut {

struct Slab {
  Block* tile = nullptr;
  size_t slot_class = 0;
  uint32_t slots = 0;
  uint32_t free_slots = 0;
  uint64_t epoch = 0;                  // of the last free of a slot, as Block::epoch
  std::unique_ptr<Block[]> all_slots;  // by address
  Block* first_free = nullptr;         // last in, first out: the slot freed last is the warmest
  size_t place = 0;                    // in the list of all slabs
  // In the list of its class, of those with free slots or of those that are spare.
  Slab* previous = nullptr;
  Slab* next = nullptr;
};

class SlabSet {
 public:
  SlabSet() = default;
  SlabSet(const SlabSet&) = delete;
  SlabSet& operator=(const SlabSet&) = delete;
  ~SlabSet();

  // A slot in state kLive, or nullptr if all slabs of the class are full.
  Block* Take(size_t slot_class) {
    Slab* slab = with_free_[slot_class];
    if (slab == nullptr) return nullptr;
    Block* slot = slab->first_free;
    slab->first_free = slot->next;
    slot->next = nullptr;
    slot->state = BlockState::kLive;
    if (--slab->free_slots == 0) Unlink(slab);
    return slot;
  }

  // Cuts a tile in state kSlab of policy::SlabSize(slot_class) bytes into slots.
  void AddSlow(Block* tile, size_t slot_class);

  // Takes a slot back, in use up to `epoch`. Returns the slab's tile if the slab is empty now and
  // its class has another free slot elsewhere: the slab is gone, and the tile, which bears the
  // epoch up to which any of its slots was in use, is the caller's to give back.
  Block* GiveBack(Block* slot, uint64_t epoch);

  // Removes all empty slabs; `give_back` gets their tiles, each with the epoch up to which it was
  // in use.
  void RemoveEmptySlow(absl::FunctionRef<void(Block*)> give_back);

  void ForEach(absl::FunctionRef<void(const Slab&)> visit) const;

 private:
  void Link(Slab* slab);
  void Unlink(Slab* slab);
  Slab* NewSlab(size_t slot_class);
  // Requires: all its slots are free. Returns the tile; the slab is spare.
  Block* Dissolve(Slab* slab);

  std::array<Slab*, policy::kSlotClasses> with_free_{};
  std::array<Slab*, policy::kSlotClasses> spare_{};
  std::vector<Slab*> slabs_;  // without the spare ones
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SLAB_H_
