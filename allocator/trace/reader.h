// TraceReader: reads what a Recorder wrote, also of a run still going, also torn by a kill.
//
// One TraceReader is one process's events on one device. It treats the files as hostile: bounded,
// checked, never trusted; an unreadable part is an error that says where, and what could be read
// before it is still delivered. Opens files read-only. Not thread-safe; several readers of one file
// are fine.

#ifndef OFFCUT_ALLOCATOR_TRACE_READER_H_
#define OFFCUT_ALLOCATOR_TRACE_READER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/events/event.h"

namespace offcut {

// From the file's header.
struct TraceMetadata {
  uint32_t format_version = 0;
  std::string offcut_version;
  std::string host;
  int64_t pid = 0;
  std::string command_line;
  uint64_t epoch_unix_ns = 0;  // wall-clock time of time_ns == 0
  DeviceIndex device = 0;
  std::string device_name;
  Bytes device_total_bytes = 0;
  std::string options_json;
};

struct TraceSummary {
  uint64_t events = 0;       // delivered by ForEach
  uint64_t ring_events = 0;  // of these, found in the ring only (not yet in a chunk)
  uint64_t chunks = 0;
  Bytes chunk_bytes = 0;        // size of the chunks on disk, headers included
  uint64_t dropped_events = 0;  // as the recorder counted them
  uint64_t unknown_events = 0;  // of those delivered, of kinds that this version does not know
  bool closed = false;          // the recorder closed the file itself
  // Why reading ended early, in words; "" if everything was read. A torn last chunk whose events
  // are in the ring is not a problem and not mentioned.
  std::string problem;
};

// One chunk, as the index knows it.
struct TraceChunk {
  uint64_t offset = 0;  // in the file
  uint64_t first_index = 0;
  uint64_t event_count = 0;
  uint64_t first_time_ns = 0;
  uint64_t last_time_ns = 0;
  int64_t live_bytes = 0;  // before its first event
  int64_t reserved_bytes = 0;
  bool operator==(const TraceChunk&) const = default;
};

class TraceReader {
 public:
  // `file`: a chunk file (the ring is looked for beside it). NotFound, or InvalidArgument with
  // path, offset and what would be right.
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(absl::string_view file);
  virtual ~TraceReader() = default;

  virtual const TraceMetadata& metadata() const = 0;
  virtual const std::string& path() const = 0;

  // Calls `visit` with runs of events, in order, from the beginning. May be called again (a run
  // still going may then have more). A corrupt middle ends the reading with summary.problem set;
  // errors are for what cannot be read at all.
  virtual absl::StatusOr<TraceSummary> ForEach(
      const std::function<void(absl::Span<const Event>)>& visit) = 0;

  // The whole chunks of the file: from its index if it was closed, else by going through it. Does
  // not tell of events that are in the ring only.
  virtual absl::StatusOr<std::vector<TraceChunk>> Chunks() = 0;
};

// The chunk files of `path`: itself, or those of a process's directory, or of a directory of such,
// sorted by name. NotFound with the remedy if there is none.
absl::StatusOr<std::vector<std::string>> FindTraceFiles(absl::string_view path);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_READER_H_
