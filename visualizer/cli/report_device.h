// DeviceReport: all that a report says of one process on one device.
//
// Reads the recording twice: once for the rows and the series, once up to the reserved peak for
// what was live then. Knows neither HTML nor files.

#ifndef OFFCUT_VISUALIZER_CLI_REPORT_DEVICE_H_
#define OFFCUT_VISUALIZER_CLI_REPORT_DEVICE_H_

#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "allocator/events/event.h"
#include "allocator/events/memory_state.h"
#include "allocator/trace/reader.h"
#include "nlohmann/json.hpp"
#include "visualizer/cli/report_chunks.h"

namespace offcut {

struct DeviceReport {
  nlohmann::ordered_json overview;  // one entry of `devices`, still without `chunks`
  std::vector<ReportChunk> chunks;
};

absl::StatusOr<DeviceReport> MakeDeviceReport(TraceReader& reader);

// `event`, made to agree with `state`, the state before it: nothing, itself, or a free that was
// lost and then itself. Adding up what comes out gives what MemoryState::Apply(event) gives.
using ReconciledEvents = absl::InlinedVector<Event, 2>;
ReconciledEvents Reconcile(const MemoryState& state, const Event& event);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPORT_DEVICE_H_
