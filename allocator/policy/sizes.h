// Sizes: how large a block a request gets, and from which kind of arena.
//
// Pure functions and constants, no state. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_POLICY_SIZES_H_
#define OFFCUT_ALLOCATOR_POLICY_SIZES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/units.h"

namespace offcut::policy {

// Requests up to this size live in arenas of their own: they are 20-88 % of all requests and under
// 35 MiB of live memory in the runs that were measured, so what they waste does not matter and what
// they would splinter does.
inline constexpr Bytes kSmallRequestMax = kMiB;

// Requests up to this size come from slabs of equal slots.
inline constexpr Bytes kSlotMax = 32 * kKiB;

// No request beyond this can be served by any address space (PyTorch refuses from here on too).
inline constexpr Bytes kRequestMax = Bytes{1} << 60;

// Sizes of slots: eight steps per doubling at the top, every multiple of 512 at the bottom, so a
// slot is at most 1/4 larger than its request from 2 KiB on. Increasing.
inline constexpr std::array<uint16_t, 20> kSlotUnits = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12,
                                                        14, 16, 20, 24, 28, 32, 40, 48, 56, 64};
inline constexpr size_t kSlotClasses = kSlotUnits.size();
static_assert(kSlotUnits.back() * kBlockAlignment == kSlotMax);

constexpr Bytes SlotSize(size_t slot_class) { return kSlotUnits[slot_class] * kBlockAlignment; }

namespace sizes_internal {
constexpr std::array<uint8_t, kSlotUnits.back() + 1> MakeClassByUnits() {
  std::array<uint8_t, kSlotUnits.back() + 1> table{};
  size_t slot_class = 0;
  for (size_t units = 0; units < table.size(); ++units) {
    while (kSlotUnits[slot_class] < units) ++slot_class;
    table[units] = static_cast<uint8_t>(slot_class);
  }
  return table;
}
inline constexpr auto kClassByUnits = MakeClassByUnits();
}  // namespace sizes_internal

// The smallest slot that holds the request. Requires: 0 < requested <= kSlotMax.
constexpr size_t SlotClassFor(Bytes requested) {
  return sizes_internal::kClassByUnits[(requested + kBlockAlignment - 1) / kBlockAlignment];
}

// Bytes of one slab: about 16 slots, at least 64 KiB, so that a slab of any class fits into a
// granule several times.
constexpr Bytes SlabSize(size_t slot_class) {
  const Bytes wanted = SlotSize(slot_class) * 16;
  const Bytes rounded = RoundUp(wanted, 64 * kKiB);
  return rounded / SlotSize(slot_class) * SlotSize(slot_class);
}

// Address space for the arenas of one pool's large requests: 9/8 of the device, so that the free
// space between blocks never keeps a request out that memory could serve. 47 bits of address space
// hold that for 8 cards and 32 streams each.
constexpr Bytes LargeArenaSize(Bytes device_total, Bytes granularity) {
  return RoundUp(device_total / 8 * 9, granularity);
}

// And for small requests: a pool rarely needs a second one.
constexpr Bytes SmallArenaSize(Bytes device_total, Bytes granularity) {
  const Bytes wanted = device_total < kGiB ? device_total : kGiB;
  return RoundUp(wanted, granularity);
}

}  // namespace offcut::policy

#endif  // OFFCUT_ALLOCATOR_POLICY_SIZES_H_
