// CounterFold: the counters of a running allocator.
//
// The same function of the events as Counters::Apply, which defines it, made for the two kinds that
// nearly all events are. An allocation and a plain free change six gauges in two size classes: here
// they change three in one, two gauges always by the same amounts and all blocks being the small
// and the large ones. The sum is drawn when somebody asks or an event of another kind comes.
// (Against Counters::Apply: 4 to 9 of about 50 ns that an allocation and its free take;
// bench/micro.) Not thread-safe: inside the allocator the device's lock guards it.

#ifndef OFFCUT_ALLOCATOR_EVENTS_COUNTER_FOLD_H_
#define OFFCUT_ALLOCATOR_EVENTS_COUNTER_FOLD_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/base/optimization.h"
#include "allocator/events/counters.h"
#include "allocator/events/event.h"

namespace offcut {

class CounterFold {
 public:
  void Apply(const Event& event) {
    const auto requested = static_cast<int64_t>(event.bytes);
    const auto bytes = static_cast<int64_t>(event.block_bytes());
    if (event.kind == EventKind::kBlockAllocated) {
      by_class_[ClassOf(event)].Rise(requested, bytes);
      NotePeaks();
    } else if (ABSL_PREDICT_TRUE(event.kind == EventKind::kBlockFreed)) {
      by_class_[ClassOf(event)].Fall(requested, bytes);
    } else {
      ApplyOther(event);
    }
  }

  Counters Read() const;

 private:
  void ApplyOther(const Event& event);
  void AddChangesTo(Counters& counters) const;

  // What allocations and plain frees have changed since an event of another kind: blocks, requested
  // bytes and block bytes.
  struct Change {
    int64_t net = 0;
    int64_t net_max = 0;  // at least 0, where it began
    int64_t risen = 0;

    void Rise(int64_t by) {
      net += by;
      risen += by;
      if (net > net_max) net_max = net;  // a branch: a peak is rare, or the rule for a while
    }
    void Fall(int64_t by) { net -= by; }
    bool operator==(const Change&) const = default;
  };
  struct Changes {
    Change blocks, requested, bytes;

    void Rise(int64_t requested_bytes, int64_t block_bytes) {
      blocks.Rise(1);
      requested.Rise(requested_bytes);
      bytes.Rise(block_bytes);
    }
    void Fall(int64_t requested_bytes, int64_t block_bytes) {
      blocks.Fall(1);
      requested.Fall(requested_bytes);
      bytes.Fall(block_bytes);
    }
    bool operator==(const Changes&) const = default;
  };
  struct Peaks {
    int64_t blocks = 0, requested = 0, bytes = 0;
  };

  void NotePeaks() {
    const auto& [small, large] = by_class_;
    const auto note = [](const Change& one, const Change& other, int64_t& peak) {
      if (const int64_t net = one.net + other.net; net > peak) peak = net;
    };
    note(small.blocks, large.blocks, peaks_of_all_.blocks);
    note(small.requested, large.requested, peaks_of_all_.requested);
    note(small.bytes, large.bytes, peaks_of_all_.bytes);
  }

  static size_t ClassOf(const Event& event) {
    return static_cast<size_t>(SizeClassOfBlock(event.block_bytes())) - 1;
  }

  Counters before_;                    // the changes
  std::array<Changes, 2> by_class_{};  // small, large
  Peaks peaks_of_all_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_COUNTER_FOLD_H_
