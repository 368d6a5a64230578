// CounterFold: the counters of a running allocator.
//
// The same function of the events as Counters::Apply, which defines it, made for the two kinds that
// nearly all events are. An allocation and a plain free change six gauges, two at a time by the
// same amounts: here they change three, and the sum is drawn when somebody asks or an event of
// another kind comes. (Against Counters::Apply: 4 to 9 of about 50 ns that an allocation and its
// free take; bench/micro.) Not thread-safe: inside the allocator the device's lock guards it.

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
      changes_[kAll].Rise(requested, bytes);
      changes_[ClassOf(event)].Rise(requested, bytes);
    } else if (ABSL_PREDICT_TRUE(event.kind == EventKind::kBlockFreed)) {
      changes_[kAll].Fall(requested, bytes);
      changes_[ClassOf(event)].Fall(requested, bytes);
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
      net_max = std::max(net_max, net);
    }
    void Fall(int64_t by) { net -= by; }
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
  };

  static constexpr size_t kAll = static_cast<size_t>(SizeClassOf::kAll);
  static size_t ClassOf(const Event& event) {
    return static_cast<size_t>(SizeClassOfBlock(event.block_bytes()));
  }

  Counters before_;                   // the changes
  std::array<Changes, 3> changes_{};  // by SizeClassOf
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_COUNTER_FOLD_H_
