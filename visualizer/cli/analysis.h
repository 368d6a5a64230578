// Analysis: the figures of a recording that text, JSON and pictures share.
//
// Reads each process's device twice: once for the totals and to find the instant of the reserved
// peak, once up to that instant for what was held then. Treats events as hostile: those that no
// allocator can have written (IsPlausible) are counted and otherwise left out. Knows no output
// format. Not thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_ANALYSIS_H_
#define OFFCUT_VISUALIZER_CLI_ANALYSIS_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/events/event.h"
#include "allocator/events/memory_state.h"
#include "allocator/trace/reader.h"

namespace offcut {

// Whether an allocator on an existing device can have written this. What fails cannot overflow a
// sum.
bool IsPlausible(const Event& event);

struct LiveBlock {
  DevicePtr address = 0;
  Bytes requested = 0;
  Bytes size = 0;
  uint16_t pool = kNoPool;
  uint32_t stream_index = 0;
  bool pending = false;
  uint64_t age_ns = 0;            // at the instant that it is listed for
  uint64_t allocation_index = 0;  // how many allocations came before it
};

// The instant that the sum is shown for: of the events after which reserved is at its maximum, the
// one after which live is largest, and the first of these. (At the first event of the maximum, a
// granule has just come that nobody uses yet.)
struct ReservedPeak {
  uint64_t events = 0;  // events of the trace up to and including that instant; 0: never reserved
  uint64_t time_ns = 0;
  Accounting accounting;
  std::vector<LiveBlock> blocks;  // live and pending, largest request first
};

// Why a request failed, as the allocator wrote it then.
struct FailureReport {
  uint64_t time_ns = 0;  // of the failure
  std::string text;      // several lines; from a file, so it may hold anything
};

// One process on one device.
struct DeviceAnalysis {
  std::string process;  // name of the process's directory
  std::string file;
  TraceMetadata metadata;
  TraceSummary summary;

  std::array<uint64_t, 256> events_by_kind{};
  uint64_t dropped_events = 0;
  uint64_t implausible_events = 0;
  uint64_t inconsistencies = 0;  // of MemoryState
  uint64_t out_of_memory = 0;    // of the failed requests
  static constexpr size_t kMostReports = 16;
  std::vector<FailureReport> reports;  // the latest of them, in order
  uint64_t driver_ns = 0;
  uint64_t begin_ns = 0;  // of the first event
  uint64_t end_ns = 0;    // of the last
  Bytes peak_live_bytes = 0;
  uint64_t peak_live_ns = 0;
  Bytes peak_reserved_live_bytes = 0;  // of live without what lies in foreign memory
  Bytes peak_reserved_bytes = 0;
  Bytes end_live_bytes = 0;
  Bytes end_reserved_bytes = 0;
  ReservedPeak peak;

  uint64_t Count(EventKind kind) const { return events_by_kind[static_cast<uint8_t>(kind)]; }
  uint64_t allocations() const { return Count(EventKind::kBlockAllocated); }
  // Frees by the program, whether the block was reusable at once or pended.
  uint64_t frees() const {
    return Count(EventKind::kBlockFreed) + Count(EventKind::kBlockFreePended);
  }
  // Peak live, without what lies in foreign memory, over peak reserved, each the maximum over the
  // whole run; 0 without reserved memory.
  double live_over_reserved() const;
  // Size of a chunk per event in it; 0 without chunks.
  double chunk_bytes_per_event() const;
};

absl::StatusOr<DeviceAnalysis> AnalyzeDevice(TraceReader& reader);

struct Analysis {
  std::vector<DeviceAnalysis> devices;  // never empty, sorted by file
  // Files that could not be read at all, as messages.
  std::vector<std::string> unreadable;

  // The device with the largest peak reserved, and the first of these.
  const DeviceAnalysis& main_device() const;
};

// All recordings under `path` (see FindTraceFiles). An error if none can be read.
absl::StatusOr<Analysis> AnalyzeRecording(absl::string_view path);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_ANALYSIS_H_
