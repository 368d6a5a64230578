// Growth: which gaps of an arena's address space to map for a request that no free block serves,
// and how much memory to hold before free granules are moved instead.
//
// Pure functions over numbers; no state. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_POLICY_GROWTH_H_
#define OFFCUT_ALLOCATOR_POLICY_GROWTH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "allocator/base/units.h"

namespace offcut::policy {

// Reserved memory up to which growing beats moving: the largest live bytes so far and some slack,
// at least 16 MiB. With memory on one stream, 1.5 %: found by replaying recorded training runs, it
// leaves live/reserved at .985, and moves are made mostly while live climbs; without slack, moving
// costs up to 7 % of a run's time. With memory on several streams, 4.5 %: what one stream has free
// is seldom idle when another needs it, and each per cent less costs hundreds of moves a step.
constexpr Bytes SoftTarget(Bytes largest_live, bool several_streams) {
  return largest_live + std::max(largest_live * (several_streams ? 9 : 3) / 200, 16 * kMiB);
}

// Reserved memory up to which growing beats waiting for what other streams, or pending frees, will
// soon set free: 4.5 % above the largest live bytes so far, and at least 64 MiB: less is not worth
// a stall.
constexpr Bytes WaitTarget(Bytes largest_live) {
  return largest_live + std::max(largest_live * 9 / 200, 64 * kMiB);
}

// Bytes that may have been moved by the time `elapsed_ns`, where there is room to grow instead: 40
// % of the largest live bytes, for the time in which live climbs, and what takes 1 % of the elapsed
// time at 40 us a granule (measured on an H200: 36-52 us, see
// bench/results/mapping_bench_h200.json). Programs whose sizes never repeat would move for ever
// without this.
constexpr Bytes MoveBudget(Bytes largest_live, uint64_t elapsed_ns, Bytes granularity) {
  constexpr uint64_t kMoveNs = 40'000;
  return largest_live / 5 * 2 + elapsed_ns / (100 * kMoveNs) * granularity;
}

// A free block or a gap within a run of such: together they cover it without holes, in order of
// address.
struct RunPiece {
  DevicePtr address = 0;
  Bytes bytes = 0;
  bool gap = false;  // then whole granules
};

// Where in a run to put a request, and what has to be mapped for it.
struct Window {
  DevicePtr address = 0;
  Bytes bytes = 0;          // the request's size
  Bytes missing_bytes = 0;  // whole granules of the gaps that it touches
  bool operator==(const Window&) const = default;
};

// The window of `size` bytes that touches the fewest granules of gaps; among equals, the one at the
// lowest address. nullopt if the run is too short. The best window begins where a piece begins or
// ends where one ends: anywhere else it could slide without touching more. Addresses of gaps count
// from `origin` in granules. O(pieces).
std::optional<Window> CheapestWindow(absl::Span<const RunPiece> run, Bytes size, DevicePtr origin,
                                     Bytes granularity);

}  // namespace offcut::policy

#endif  // OFFCUT_ALLOCATOR_POLICY_GROWTH_H_
