#include "allocator/core/slab.h"

#include <algorithm>
#include <utility>

namespace offcut {

SlabSet::~SlabSet() {
  for (Slab* slab : slabs_) delete slab;
  for (Slab* slab : spare_) {
    while (slab != nullptr) delete std::exchange(slab, slab->next);
  }
}

void SlabSet::AddSlow(Block* tile, size_t slot_class) {
  Slab* const slab = NewSlab(slot_class);
  slab->tile = tile;
  slab->free_slots = slab->slots;
  slab->epoch = 0;
  tile->slab = slab;
  // From the end, so that the lowest address is taken first.
  slab->first_free = nullptr;
  for (uint32_t i = slab->slots; i-- > 0;) {
    Block& slot = slab->all_slots[i];
    slot = {.address = tile->address + i * policy::SlotSize(slot_class),
            .size = policy::SlotSize(slot_class),
            .pool = tile->pool,
            .arena = tile->arena,
            .next = slab->first_free,
            .slab = slab,
            .state = BlockState::kFree};
    slab->first_free = &slot;
  }
  slab->place = slabs_.size();
  slabs_.push_back(slab);
  Link(slab);
}

Block* SlabSet::GiveBack(Block* slot, uint64_t epoch) {
  Slab* slab = slot->slab;
  slab->epoch = std::max(slab->epoch, epoch);
  slot->state = BlockState::kFree;
  slot->next = slab->first_free;
  slab->first_free = slot;
  if (++slab->free_slots == 1) Link(slab);
  // One empty slab per class stays, so that a program at the edge of one does not make and break
  // it.
  const bool only_one = with_free_[slab->slot_class] == slab && slab->next == nullptr;
  if (slab->free_slots < slab->slots || only_one) return nullptr;
  return Dissolve(slab);
}

void SlabSet::RemoveEmptySlow(absl::FunctionRef<void(Block*)> give_back) {
  const std::vector<Slab*> slabs = slabs_;
  for (Slab* slab : slabs) {
    if (slab->free_slots == slab->slots) give_back(Dissolve(slab));
  }
}

void SlabSet::ForEach(absl::FunctionRef<void(const Slab&)> visit) const {
  for (const Slab* slab : slabs_) visit(*slab);
}

void SlabSet::Link(Slab* slab) {
  Slab*& head = with_free_[slab->slot_class];
  slab->previous = nullptr;
  slab->next = head;
  if (head != nullptr) head->previous = slab;
  head = slab;
}

void SlabSet::Unlink(Slab* slab) {
  (slab->previous != nullptr ? slab->previous->next : with_free_[slab->slot_class]) = slab->next;
  if (slab->next != nullptr) slab->next->previous = slab->previous;
  slab->previous = slab->next = nullptr;
}

Slab* SlabSet::NewSlab(size_t slot_class) {
  if (Slab* const slab = spare_[slot_class]; slab != nullptr) {
    spare_[slot_class] = std::exchange(slab->next, nullptr);
    return slab;
  }
  const Bytes slots = policy::SlabSize(slot_class) / policy::SlotSize(slot_class);
  return new Slab{.slot_class = slot_class,
                  .slots = static_cast<uint32_t>(slots),
                  .all_slots = std::make_unique<Block[]>(slots)};
}

Block* SlabSet::Dissolve(Slab* slab) {
  Unlink(slab);
  slabs_.back()->place = slab->place;
  slabs_[slab->place] = slabs_.back();
  slabs_.pop_back();
  slab->next = std::exchange(spare_[slab->slot_class], slab);
  Block* const tile = std::exchange(slab->tile, nullptr);
  tile->slab = nullptr;
  tile->epoch = slab->epoch;
  return tile;
}

}  // namespace offcut
