#include "allocator/core/slab.h"

#include <algorithm>

namespace offcut {

SlabSet::~SlabSet() {
  for (Slab* slab : slabs_) delete slab;
}

void SlabSet::AddSlow(Block* tile, size_t slot_class) {
  const Bytes slot_size = policy::SlotSize(slot_class);
  Slab* slab = new Slab();
  slab->tile = tile;
  slab->slot_class = slot_class;
  slab->slots = static_cast<uint32_t>(tile->size / slot_size);
  slab->free_slots = slab->slots;
  slab->all_slots.reserve(slab->slots);
  tile->slab = slab;
  for (uint32_t i = 0; i < slab->slots; ++i) {
    Block* slot = store_.New();
    slot->address = tile->address + i * slot_size;
    slot->size = slot_size;
    slot->pool = tile->pool;
    slot->arena = tile->arena;
    slot->slab = slab;
    slot->state = BlockState::kFree;
    slab->all_slots.push_back(slot);
  }
  // So that the lowest address is taken first.
  for (auto slot = slab->all_slots.rbegin(); slot != slab->all_slots.rend(); ++slot) {
    (*slot)->next = slab->first_free;
    slab->first_free = *slot;
  }
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

Block* SlabSet::Dissolve(Slab* slab) {
  Unlink(slab);
  for (Block* slot : slab->all_slots) store_.Delete(slot);
  Block* tile = slab->tile;
  tile->slab = nullptr;
  tile->epoch = slab->epoch;
  slabs_.erase(std::find(slabs_.begin(), slabs_.end(), slab));
  delete slab;
  return tile;
}

}  // namespace offcut
