#include "allocator/events/counter_fold.h"

namespace offcut {

Counters CounterFold::Read() const {
  Counters counters = before_;
  AddChangesTo(counters);
  return counters;
}

void CounterFold::ApplyOther(const Event& event) {
  // Events of other kinds come in runs.
  if (const Change& blocks = changes_[kAll].blocks; blocks.risen != 0 || blocks.net != 0) {
    AddChangesTo(before_);
    changes_ = {};
  }
  before_.Apply(event);
}

void CounterFold::AddChangesTo(Counters& counters) const {
  const auto add = [](const Change& change, Gauge& gauge) {
    gauge.peak = std::max(gauge.peak, gauge.current + change.net_max);
    gauge.current += change.net;
    gauge.risen += change.risen;
    gauge.fallen += change.risen - change.net;
  };
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Changes& changes = changes_[i];
    add(changes.blocks, counters.allocations[i]);
    add(changes.blocks, counters.active_blocks[i]);
    add(changes.requested, counters.live_bytes[i]);
    add(changes.requested, counters.active_requested_bytes[i]);
    add(changes.bytes, counters.allocated_bytes[i]);
    add(changes.bytes, counters.active_bytes[i]);
  }
}

}  // namespace offcut
