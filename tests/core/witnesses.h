// Witnesses: what an allocator is held against. The audit, the state replayed from its events, the
// counters folded from them, and the simulated driver's own books.
//
// A Witnesses listens to one allocator from its first event and folds each event as it comes, so
// asking after every operation costs O(state), not O(events). Not thread-safe beyond what EventSink
// promises: ask while no other thread is in the allocator.

#ifndef OFFCUT_TESTS_CORE_WITNESSES_H_
#define OFFCUT_TESTS_CORE_WITNESSES_H_

#include <vector>

#include "absl/status/status.h"
#include "allocator/core/state_view.h"
#include "allocator/events/counters.h"
#include "allocator/events/emitter.h"
#include "allocator/events/memory_state.h"
#include "allocator/sim/device_model.h"

namespace offcut {

class Witnesses final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    replayed_.Apply(event);
    folded_.Apply(event);
  }

  // OK, or Internal with the first contradiction. `view` is the allocator's, taken now.
  absl::Status Check(const StateView& view) const;

  // By the events alone.
  Bytes reserved_bytes() const { return replayed_.reserved_bytes(); }

 private:
  absl::Status CheckReplayed(const StateView& view) const;

  MemoryState replayed_;
  Counters folded_;
};

// Whether the driver holds just what the allocators over it say. `views`: of all of them.
// `outside`: what it held before they did anything. Of its own pools it may hold less, since it
// does not tell what it takes back, and anything where it did not answer when it was asked.
absl::Status CheckDriverBooks(sim::DeviceModel& model, const std::vector<StateView>& views,
                              const sim::MemoryCensus& outside = {});

}  // namespace offcut

#endif  // OFFCUT_TESTS_CORE_WITNESSES_H_
