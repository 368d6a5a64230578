// Growth: which gap of an arena's address space to map for a request that no free block serves.
//
// A pure function over the address ranges around one gap; no state. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_POLICY_GROWTH_H_
#define OFFCUT_ALLOCATOR_POLICY_GROWTH_H_

#include <optional>

#include "allocator/base/units.h"

namespace offcut::policy {

// One gap with the free blocks that touch it.
struct GapNeighborhood {
  DevicePtr gap = 0;      // a multiple of the granularity
  Bytes gap_bytes = 0;    // likewise
  Bytes free_before = 0;  // bytes of the free block that ends at `gap`; 0 if none
  Bytes free_behind = 0;  // bytes of the free block that begins at the gap's end; 0 if none
};

// The range of the gap to map: once it is free and merged with its neighbours, the request fits.
struct Growth {
  DevicePtr address = 0;
  Bytes bytes = 0;
  bool operator==(const Growth&) const = default;
};

// The smallest part of the gap that makes room for `size` bytes, in whole granules; nullopt if the
// gap and its neighbours are too short. Grows from the gap's beginning, unless the free block
// behind it makes growing from its end cheaper: low addresses stay dense.
constexpr std::optional<Growth> GrowIntoGap(const GapNeighborhood& around, Bytes size,
                                            Bytes granularity) {
  if (around.free_before + around.gap_bytes + around.free_behind < size) return std::nullopt;
  const Bytes missing_before = size > around.free_before ? size - around.free_before : 0;
  const Bytes missing_behind = size > around.free_behind ? size - around.free_behind : 0;
  const Bytes from_beginning = RoundUp(missing_before, granularity);
  const Bytes from_end = RoundUp(missing_behind, granularity);
  // Neither end alone may suffice; then the whole gap joins both neighbours.
  if (from_beginning >= around.gap_bytes && from_end >= around.gap_bytes) {
    return Growth{around.gap, around.gap_bytes};
  }
  if (from_beginning <= from_end) return Growth{around.gap, from_beginning};
  return Growth{around.gap + around.gap_bytes - from_end, from_end};
}

}  // namespace offcut::policy

#endif  // OFFCUT_ALLOCATOR_POLICY_GROWTH_H_
