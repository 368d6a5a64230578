// The one door through which the core states facts: EventSink listens, Emitter tells.
//
// An Emitter belongs to one device. It stamps each event with time and device, folds it into the
// counters, then passes it to the sinks. Not thread-safe: its owner calls it under the device's
// lock, so a sink sees one producer per device and events in the order of their times.

#ifndef OFFCUT_ALLOCATOR_EVENTS_EMITTER_H_
#define OFFCUT_ALLOCATOR_EVENTS_EMITTER_H_

#include <algorithm>
#include <vector>

#include "absl/base/attributes.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "allocator/events/counter_fold.h"
#include "allocator/events/counters.h"
#include "allocator/events/event.h"

namespace offcut {

// An observer of events. OnEvent is called under a device's lock, on the program's threads: it must
// not block, allocate from the allocator, take the GIL or do I/O, and it cannot fail.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvent(const Event& event) = 0;
  // The same for the events of the hot path, whose words then stay in registers all the way.
  virtual void OnHotEvent(uint64_t time_ns, uint64_t address, uint64_t bytes, uint64_t last_word) {
    OnEvent(Event::OfWords(time_ns, address, bytes, last_word));
  }
};

class Emitter {
 public:
  // `clock` must outlive the emitter.
  Emitter(DeviceIndex device, const Clock& clock) : device_(device), clock_(clock) {}
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  // `sink` must outlive the emitter or be removed first. A sink added later misses what came
  // before.
  void AddSink(EventSink* sink) { sinks_.push_back(sink); }
  void RemoveSink(EventSink* sink) { std::erase(sinks_, sink); }
  void RemoveSinks() { sinks_.clear(); }

  // `fact.time_ns` and `fact.device` are not looked at: they are filled in here.
  void Emit(const Event& fact);

  // The same for the hot path, inlined there: what is known of the event then stays in registers.
  ABSL_ATTRIBUTE_ALWAYS_INLINE void EmitInline(const Event& fact) {
    counters_.Apply(fact);
    if (sinks_.empty()) return;  // nobody asks for the time, which is half of what an event costs
    // Readers rely on the order; the counters of two processors may differ by some nanoseconds.
    last_ns_ = std::max(last_ns_, clock_.NowNs());
    const uint64_t last_word = fact.last_word() | uint64_t{static_cast<uint8_t>(device_)} << 56;
    for (EventSink* sink : sinks_) {
      sink->OnHotEvent(last_ns_, fact.address, fact.bytes, last_word);
    }
  }

  Counters counters() const { return counters_.Read(); }
  const Clock& clock() const { return clock_; }

 private:
  const DeviceIndex device_;
  const Clock& clock_;
  uint64_t last_ns_ = 0;
  CounterFold counters_;
  std::vector<EventSink*> sinks_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_EMITTER_H_
