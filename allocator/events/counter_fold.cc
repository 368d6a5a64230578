#include "allocator/events/counter_fold.h"

namespace offcut {

Counters CounterFold::Read() const {
  Counters counters = before_;
  AddChangesTo(counters);
  return counters;
}

void CounterFold::ApplyOther(const Event& event) {
  // Events of other kinds come in runs.
  if (by_class_ != decltype(by_class_){}) {
    AddChangesTo(before_);
    by_class_ = {};
    peaks_of_all_ = {};
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
  const auto add_class = [&](size_t size_class, const Changes& changes) {
    add(changes.blocks, counters.allocations[size_class]);
    add(changes.blocks, counters.active_blocks[size_class]);
    add(changes.requested, counters.live_bytes[size_class]);
    add(changes.requested, counters.active_requested_bytes[size_class]);
    add(changes.bytes, counters.allocated_bytes[size_class]);
    add(changes.bytes, counters.active_bytes[size_class]);
  };
  const auto& [small, large] = by_class_;
  const auto sum = [](const Change& one, const Change& other, int64_t peak) {
    return Change{.net = one.net + other.net, .net_max = peak, .risen = one.risen + other.risen};
  };
  add_class(static_cast<size_t>(SizeClassOf::kAll),
            {.blocks = sum(small.blocks, large.blocks, peaks_of_all_.blocks),
             .requested = sum(small.requested, large.requested, peaks_of_all_.requested),
             .bytes = sum(small.bytes, large.bytes, peaks_of_all_.bytes)});
  add_class(static_cast<size_t>(SizeClassOf::kSmall), small);
  add_class(static_cast<size_t>(SizeClassOf::kLarge), large);
}

}  // namespace offcut
