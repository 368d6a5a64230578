// Counters: a fold over events, and nothing else.
//
// The allocator's own statistics and a reader's are the same function applied to the same events,
// so `counters == fold(events)` holds by construction in one process and is a test across the file.
// Not thread-safe; inside the allocator the device's lock guards it.

#ifndef OFFCUT_ALLOCATOR_EVENTS_COUNTERS_H_
#define OFFCUT_ALLOCATOR_EVENTS_COUNTERS_H_

#include <array>
#include <cstdint>

#include "allocator/base/units.h"
#include "allocator/events/event.h"

namespace offcut {

// A level with its peak and running totals. Invariant: current == risen - fallen, until totals are
// reset.
struct Gauge {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t risen = 0;
  int64_t fallen = 0;

  void Rise(int64_t by) {
    current += by;
    risen += by;
    if (current > peak) peak = current;
  }
  void Fall(int64_t by) {
    current -= by;
    fallen += by;
  }
  bool operator==(const Gauge&) const = default;
};

enum class SizeClassOf : uint8_t { kAll = 0, kSmall = 1, kLarge = 2 };

// One gauge per SizeClassOf. Invariant: all == small + large, except for peaks.
using GaugeBySize = std::array<Gauge, 3>;

inline void Rise(GaugeBySize& gauges, SizeClassOf size_class, uint64_t by) {
  gauges[static_cast<size_t>(SizeClassOf::kAll)].Rise(static_cast<int64_t>(by));
  gauges[static_cast<size_t>(size_class)].Rise(static_cast<int64_t>(by));
}
inline void Fall(GaugeBySize& gauges, SizeClassOf size_class, uint64_t by) {
  gauges[static_cast<size_t>(SizeClassOf::kAll)].Fall(static_cast<int64_t>(by));
  gauges[static_cast<size_t>(size_class)].Fall(static_cast<int64_t>(by));
}

inline constexpr Bytes kSmallBlockMax = kMiB;

constexpr SizeClassOf SizeClassOfBlock(Bytes block_bytes) {
  return block_bytes <= kSmallBlockMax ? SizeClassOf::kSmall : SizeClassOf::kLarge;
}

struct Counters {
#define OFFCUT_GAUGE(name, unit, sentence) GaugeBySize name;
#define OFFCUT_COUNT(name, unit, sentence) uint64_t name = 0;
#define OFFCUT_LEVEL(name, unit, sentence) uint64_t name = 0;
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_COUNT
#undef OFFCUT_LEVEL

  // Folds one event in. Kinds that no counter depends on, known or not, change nothing.
  void Apply(const Event& event);

  bool operator==(const Counters&) const = default;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_COUNTERS_H_
