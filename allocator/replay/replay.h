// Replay: plays a program into the real allocator over a simulated device, and says what memory and
// time it took.
//
// The device holds no data (Backing::kNone) and its clock is virtual: between two operations it
// advances by as much as between the recorded ones, and a wait of the host for the device makes
// everything after it later. Deterministic, apart from what playing took itself. Modelled times are
// sums of measured costs (driver_costs.h) beside that clock; they do not move it. One replay uses
// one thread; several at once are fine.

#ifndef OFFCUT_ALLOCATOR_REPLAY_REPLAY_H_
#define OFFCUT_ALLOCATOR_REPLAY_REPLAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/config/config.h"
#include "allocator/core/state_view.h"
#include "allocator/events/counters.h"
#include "allocator/events/emitter.h"
#include "allocator/replay/program.h"
#include "allocator/sim/cards.h"

namespace offcut {

struct ReplayOptions {
  Config config;
  // On reserved memory; the lowest of this and the config's own limits holds.
  Bytes cap = kNoLimit;
  uint64_t lag_ns = 0;  // how far the device runs behind the host
  sim::SimOptions machine;
  // See every event of the replay, beside the counters. Each costs speed.
  std::vector<EventSink*> sinks;
};

// A part of a replay, summed up.
struct ReplayFigures {
  uint64_t events = 0;  // allocations and frees played
  uint64_t driver_calls = 0;
  uint64_t driver_ns = 0;  // modelled, of all calls
  uint64_t remap_ns = 0;   // modelled, of moving granules alone
  uint64_t growth_ns = 0;  // modelled, of creating, mapping and opening granules alone
  uint64_t moves = 0;      // granules moved
  Bytes remapped_bytes = 0;
  uint64_t move_batches = 0;
  uint64_t waits = 0;  // stalls of the host for the modelled device
  uint64_t wait_ns = 0;
};

struct ReplayResult {
  Bytes peak_live_bytes = 0;
  Bytes peak_reserved_bytes = 0;
  Bytes address_bytes_peak = 0;
  uint64_t largest_batch = 0;  // granules moved in one batch
  ReplayFigures whole;
  // What happened at or after half of the program's span.
  ReplayFigures second_half;
  uint64_t span_ns = 0;  // of the program, as recorded
  // The first request that could not be served, 0-based among allocations and frees, where the
  // replay ended; with the allocator's message.
  std::optional<uint64_t> failed_at_event;
  std::string failure;
  std::vector<Bytes> segments;  // allocated from the driver, in order; only of the segments layout
  double seconds = 0;           // of playing, by the wall clock
  double cpu_seconds = 0;  // the same, by the thread's clock: what else the machine did is left out
  Counters counters;       // of the allocator, at the end

  bool completed() const { return !failed_at_event.has_value(); }
  // Peak live over peak reserved; 0 if nothing was reserved.
  double live_over_reserved() const;
};

// OK if `result`, of `program` under the segments layout, is what the recorded allocator did: the
// same segments in the same order, and never one given back. Else the first difference.
absl::Status CheckSegments(const Program& program, const ReplayResult& result);

// An error if the allocator cannot be made as the options ask, or refuses an operation other than a
// request.
absl::StatusOr<ReplayResult> Replay(const Program& program, const ReplayOptions& options);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_REPLAY_H_
