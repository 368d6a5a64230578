// SegmentCounters: what PyTorch counts of segments, beside the counters that are a fold over
// events.
//
// Which free block is the rest of a cut is known only where it is cut, and an event for each would
// double what an allocation costs: the segments layout counts as it cuts and joins. Plain data,
// guarded by the device's lock.
//
// Invariant: each `current` is what the segments hold now; tests recompute it from them.

#ifndef OFFCUT_ALLOCATOR_CORE_SEGMENT_COUNTERS_H_
#define OFFCUT_ALLOCATOR_CORE_SEGMENT_COUNTERS_H_

#include "absl/functional/function_ref.h"
#include "allocator/base/units.h"
#include "allocator/events/counters.h"

namespace offcut {

struct SegmentCounters {
  GaugeBySize segments;  // held; small: for small requests
  // Free blocks of segments that hold other blocks too, which no cudaFree could give back.
  GaugeBySize remainders;  // blocks
  GaugeBySize remainder_bytes;
  // Of at least max_split_size_mb.
  Gauge oversize_blocks;  // that the program holds
  Gauge oversize_segments;
  // max_split_size_mb in bytes, at the start; ~0: none.
  Bytes max_split_bytes = ~Bytes{0};
  // Another one holds since: what is oversize depends on when it was counted.
  bool max_split_changed = false;

  void ForEachGauge(absl::FunctionRef<void(Gauge&)> visit) {
    for (GaugeBySize* gauges : {&segments, &remainders, &remainder_bytes}) {
      for (Gauge& gauge : *gauges) visit(gauge);
    }
    visit(oversize_blocks);
    visit(oversize_segments);
  }
  void ResetPeaks() {
    ForEachGauge([](Gauge& gauge) { gauge.peak = gauge.current; });
  }
  void ResetTotals() {
    ForEachGauge([](Gauge& gauge) { gauge.risen = gauge.fallen = 0; });
  }
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SEGMENT_COUNTERS_H_
