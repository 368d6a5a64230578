// Sizes and splits of PyTorch's native allocator (2.11), which the segments layout follows step for
// step: how large a block a request gets, how large a segment is, which free block may serve, and
// whether its rest is split off.
//
// Pure functions and constants, no state. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_POLICY_NATIVE_SIZES_H_
#define OFFCUT_ALLOCATOR_POLICY_NATIVE_SIZES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/base/units.h"

namespace offcut::policy::native {

// PyTorch's constants (c10/core/AllocatorConfig.h): kMinBlockSize, kSmallSize, kSmallBuffer,
// kMinLargeAlloc and kRoundLarge.
inline constexpr Bytes kBlockMin = 512;
inline constexpr Bytes kSmallMax = kMiB;
inline constexpr Bytes kSmallSegment = 2 * kMiB;
inline constexpr Bytes kOwnSegmentMin = 10 * kMiB;
inline constexpr Bytes kSegmentUnit = 2 * kMiB;

// The slot of roundup_power2_divisions that a request falls into: one per power of two from 1 MiB
// on; what is smaller uses the first, what is larger the last.
inline constexpr size_t kDivisionSlots = 16;
constexpr size_t DivisionSlot(Bytes requested) {
  const int log2 = std::bit_width(requested | 1) - 1;
  constexpr int kFirst = std::bit_width(kMiB) - 1;
  return static_cast<size_t>(std::clamp(log2 - kFirst, 0, static_cast<int>(kDivisionSlots) - 1));
}

// Up to the next of the `divisions` equal parts between two powers of two: with 4, 1200 becomes
// 1280, since the parts between 1024 and 2048 begin at 1024, 1280, 1536 and 1792. `divisions`: a
// power of two, at most the power of two below `size`.
constexpr Bytes RoundUpToDivision(Bytes size, uint64_t divisions) {
  return RoundUp(size, std::bit_floor(size) / divisions);
}

// The block that a request gets: a multiple of 512, and of a division where there are at least two
// `divisions` (of the request's slot; 0 or a power of two) and none is smaller than 512.
// Requires: 0 < requested <= policy::kRequestMax.
constexpr Bytes BlockSize(Bytes requested, uint64_t divisions) {
  const bool divided = divisions >= 2 && (requested - 1) / kBlockMin >= divisions;
  return divided ? RoundUpToDivision(requested, divisions) : RoundUp(requested, kBlockMin);
}

// The same, by the divisions of all slots.
using Divisions = std::array<uint64_t, kDivisionSlots>;
constexpr Bytes BlockSize(Bytes requested, const Divisions& divisions) {
  return BlockSize(requested, divisions[DivisionSlot(requested)]);
}

// Blocks of this size come from segments of small requests.
constexpr bool IsSmall(Bytes block_size) { return block_size <= kSmallMax; }

// The segment that is made for a block. `large_segment`: large_segment_size_mb.
constexpr Bytes SegmentSize(Bytes block_size, Bytes large_segment) {
  if (IsSmall(block_size)) return kSmallSegment;
  if (block_size < kOwnSegmentMin) return large_segment;
  return RoundUp(block_size, kSegmentUnit);
}

// Blocks of at least `max_split` are oversize: they are not split, and serve only requests that
// waste less than `max_non_split_rounding` of them.
struct SplitLimits {
  Bytes max_split = ~Bytes{0};  // max_split_size_mb; the largest number: no block is oversize
  Bytes max_non_split_rounding = 20 * kMiB;
};

// Whether the best fit for a block of `size` may serve it. If it may not, no other free block is
// tried.
constexpr bool MayServe(Bytes free_block, Bytes size, const SplitLimits& limits) {
  if (size < limits.max_split) return free_block < limits.max_split;
  return free_block - size < limits.max_non_split_rounding;
}

// Whether what a block of `size` leaves of a free block becomes a free block of its own.
constexpr bool ShouldSplit(Bytes free_block, Bytes size, bool small, const SplitLimits& limits) {
  const Bytes rest = free_block - size;
  if (small) return rest >= kBlockMin;
  return size < limits.max_split && rest > kSmallMax;
}

}  // namespace offcut::policy::native

#endif  // OFFCUT_ALLOCATOR_POLICY_NATIVE_SIZES_H_
