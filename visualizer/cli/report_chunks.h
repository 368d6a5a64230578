// ReportChunks: turns events into the compressed chunks that the viewer decodes.
//
// Owns the numbering of allocations and the finished chunks (about 2 bytes per event, in memory).
// The bytes are specified in visualizer/web/CONTAINER.md. Knows neither HTML nor files. The caller
// passes only events that agree with the state before them (report_device.cc). Not thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_REPORT_CHUNKS_H_
#define OFFCUT_VISUALIZER_CLI_REPORT_CHUNKS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "allocator/base/units.h"
#include "allocator/events/event.h"

namespace offcut {

// The three quantities that the viewer draws over time.
struct ReportLevels {
  Bytes live = 0;
  Bytes reserved = 0;
  Bytes device_used = 0;
  bool operator==(const ReportLevels&) const = default;
};

struct ReportChunk {
  uint64_t rows = 0;
  uint64_t allocations = 0;
  uint64_t first_allocation = 0;
  uint64_t begin_ns = 0;  // the first row's time
  uint64_t end_ns = 0;    // the last row's time
  ReportLevels before;    // before the first row
  std::string deflated;
};

class ReportChunks {
 public:
  static constexpr uint64_t kMaxRows = 1u << 16;

  // Whether events of this kind have a row.
  static bool HasRow(EventKind kind);
  // As the viewer knows it: what comes to reserved memory and what goes, wherever it lies.
  static EventKind KindOfRow(EventKind kind);

  // Requires HasRow(event.kind) and IsPlausible(event), which keeps numbers exact in JavaScript.
  // `before`: the levels before the event.
  absl::Status Add(const Event& event, const ReportLevels& before);
  absl::Status Finish();

  std::vector<ReportChunk> TakeChunks() && { return std::move(chunks_); }
  uint64_t allocations() const { return allocations_; }

 private:
  absl::Status FinishChunk();

  std::vector<ReportChunk> chunks_;
  ReportChunk open_;
  uint64_t last_ns_ = 0;
  uint64_t last_unit_ = 0;  // address of the last allocation, in block units
  uint64_t allocations_ = 0;
  // Address -> number of the allocation, of live and of pending blocks.
  absl::flat_hash_map<DevicePtr, uint64_t> numbers_;

  std::vector<uint64_t> kinds_, times_, addresses_, requested_, blocks_, pools_, frees_, values_;
};

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPORT_CHUNKS_H_
