// Growth: which gaps of an arena's address space to map for a request that no free block serves, in
// granules of which size, and how much memory to hold before free granules are moved instead.
//
// Pure functions over numbers; no state. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_POLICY_GROWTH_H_
#define OFFCUT_ALLOCATOR_POLICY_GROWTH_H_

#include <algorithm>
#include <bit>
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

// Granules that may have been moved by the time `elapsed_ns`, where there is room to grow instead:
// as many as 40 % of the largest live bytes have at the granularity, for the time in which live
// climbs, and what takes 1 % of the elapsed time at 40 us a granule (measured on an H200: 36-52 us
// whatever its size, see bench/results/mapping_bench_h200.json). Programs whose sizes never repeat
// would move for ever without this.
constexpr uint64_t MoveBudget(Bytes largest_live, uint64_t elapsed_ns, Bytes granularity) {
  constexpr uint64_t kMoveNs = 40'000;
  return largest_live / granularity / 5 * 2 + elapsed_ns / (100 * kMoveNs);
}

// The largest granules that there are, where the granularity is not larger.
inline constexpr Bytes kGranuleMax = 32 * kMiB;

// Bytes of the granules that new memory for a request comes in, as far as they fit into what is
// missing: the granularity (a power of two) times a power of two. A granule costs the same whatever
// its size, to make and to move, but moves only where it lies wholly free. So with memory on
// several streams, which pass large buffers to and fro at each step, it is as large as the request
// allows. With memory on one, 1/64 of the request and 8 MiB at most: larger ones cost a job of 8
// GiB more than 2 % of memory. Where memory is limited, it is the granularity.
constexpr Bytes GranuleSize(Bytes requested, bool several_streams, bool limited,
                            Bytes granularity) {
  const Bytes wanted =
      several_streams ? std::min(requested, kGranuleMax) : std::min(requested / 64, 8 * kMiB);
  return limited ? granularity : std::max(std::bit_floor(wanted), granularity);
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
