// IdTable: objects behind numbers that are never used twice, so that whoever uses a number after
// its object is gone is found out. Finding one is an index and a comparison.
//
// A number is the slot's, and how often the slot was used before: the first 2^32 - 1 objects count
// up from 1 as long as none goes. Objects move when others are created. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_ID_TABLE_H_
#define OFFCUT_ALLOCATOR_SIM_ID_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace offcut::sim {

template <typename T>
class IdTable {
 public:
  // Never 0.
  uint64_t Create(T object) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    slot.id = (uint64_t{slot.uses++} << 32) | (uint64_t{index} + 1);
    return slot.id;
  }

  // nullptr if the number is of no living object.
  T* Find(uint64_t id) {
    const uint64_t index = (id & 0xffff'ffff) - 1;
    if (index >= slots_.size() || slots_[index].id != id) return nullptr;
    return &slots_[index].object;
  }
  const T* Find(uint64_t id) const { return const_cast<IdTable*>(this)->Find(id); }

  // Requires: Find(id) is not nullptr.
  void Destroy(uint64_t id) {
    const uint32_t index = static_cast<uint32_t>(id & 0xffff'ffff) - 1;
    slots_[index].id = 0;
    free_.push_back(index);
  }

  uint64_t size() const { return slots_.size() - free_.size(); }

 private:
  struct Slot {
    uint64_t id = 0;  // 0: empty
    uint32_t uses = 0;
    T object;
  };

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_ID_TABLE_H_
