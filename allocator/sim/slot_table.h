// SlotTable: objects behind handles that look like CUDA's: opaque pointers, reused as soon as their
// object is destroyed (the last one first), so that whoever relies on a handle being unique is
// found out.
//
// Handles are made-up addresses, never dereferenced. Objects do not move. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_SLOT_TABLE_H_
#define OFFCUT_ALLOCATOR_SIM_SLOT_TABLE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace offcut::sim {

template <typename Handle, typename T>
class SlotTable {
 public:
  // Handles count up from `base`, which keeps the kinds of handles apart.
  explicit SlotTable(uint64_t base) : base_(base) {}

  Handle Create(T object) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const uint64_t index = free_.back();
    free_.pop_back();
    slots_[index] = std::move(object);
    return reinterpret_cast<Handle>(base_ + index * kStride);
  }

  // nullptr if the handle is of no living object.
  T* Find(Handle handle) {
    const uint64_t distance = reinterpret_cast<uint64_t>(handle) - base_;
    if (distance % kStride != 0 || distance / kStride >= slots_.size()) return nullptr;
    std::optional<T>& slot = slots_[distance / kStride];
    return slot.has_value() ? &*slot : nullptr;
  }

  // Requires: Find(handle) is not nullptr.
  void Destroy(Handle handle) {
    const uint64_t index = (reinterpret_cast<uint64_t>(handle) - base_) / kStride;
    slots_[index].reset();
    free_.push_back(index);
  }

  uint64_t size() const { return slots_.size() - free_.size(); }

  template <typename Visit>
  void ForEach(Visit visit) {
    for (std::optional<T>& slot : slots_) {
      if (slot.has_value()) visit(*slot);
    }
  }

 private:
  static constexpr uint64_t kStride = 64;

  const uint64_t base_;
  std::deque<std::optional<T>> slots_;
  std::vector<uint64_t> free_;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_SLOT_TABLE_H_
