// VectorTraceReader: a recording that lives in memory, for tests of what reads recordings.

#ifndef OFFCUT_TESTS_CLI_VECTOR_TRACE_READER_H_
#define OFFCUT_TESTS_CLI_VECTOR_TRACE_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "allocator/trace/reader.h"

namespace offcut {

class VectorTraceReader : public TraceReader {
 public:
  explicit VectorTraceReader(std::vector<Event> events) : events_(std::move(events)) {}

  const TraceMetadata& metadata() const override { return metadata_; }
  const std::string& path() const override { return path_; }
  absl::StatusOr<TraceSummary> ForEach(
      const std::function<void(absl::Span<const Event>)>& visit) override {
    visit(events_);
    summary_.events = events_.size();
    return summary_;
  }

  absl::StatusOr<std::vector<TraceChunk>> Chunks() override { return std::vector<TraceChunk>{}; }

  std::vector<Event> events_;
  TraceMetadata metadata_;
  TraceSummary summary_ = {.closed = true};
  std::string path_ = "memory";
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_CLI_VECTOR_TRACE_READER_H_
