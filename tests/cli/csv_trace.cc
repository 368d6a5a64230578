#include "tests/cli/csv_trace.h"

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

struct Line {
  uint64_t time_ns = 0;
  std::string action;
  DevicePtr address = 0;
  Bytes size = 0;
  uint32_t stream = 0;
};

absl::StatusOr<std::vector<Line>> ReadLines(std::istream& csv) {
  std::vector<Line> lines;
  std::string text;
  std::getline(csv, text);
  while (std::getline(csv, text)) {
    const std::vector<std::string> fields = absl::StrSplit(text, ',');
    Line line;
    uint64_t time_us = 0;
    if (fields.size() != 5 || !absl::SimpleAtoi(fields[0], &time_us) ||
        !absl::SimpleHexAtoi(fields[2], &line.address) ||
        !absl::SimpleAtoi(fields[3], &line.size) || !absl::SimpleAtoi(fields[4], &line.stream)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", lines.size() + 2, ": no time_us,action,address,size,stream: ", text));
    }
    line.time_ns = time_us * 1000;
    line.action = fields[1];
    lines.push_back(std::move(line));
  }
  return lines;
}

class Converter {
 public:
  explicit Converter(const CsvTraceOptions& options) : options_(options) {}

  // `next`: the line behind it, or nullptr. Returns whether that was used up as well.
  bool Convert(const Line& line, const Line* next);
  void MarkStep(uint64_t time_ns) {
    Emit(time_ns, {.bytes = step_++, .kind = EventKind::kStepMarked});
  }
  std::vector<Event> TakeEvents() { return std::move(events_); }

 private:
  void Emit(uint64_t time_ns, Event event) {
    event.time_ns = time_ns;
    events_.push_back(event);
  }
  void SeeStream(const Line& line);
  Event BlockEvent(EventKind kind, const Line& line) const {
    const Bytes requested = requested_.at(line.address);
    const Bytes size = std::max<Bytes>(RoundUp(requested, kBlockAlignment), kBlockAlignment);
    return {.address = line.address,
            .bytes = requested,
            .extra = static_cast<uint32_t>(size / kBlockAlignment),
            .pool = pools_.at(line.stream),
            .kind = kind};
  }

  const CsvTraceOptions options_;
  std::vector<Event> events_;
  std::map<uint32_t, uint16_t> pools_;  // by stream
  std::map<DevicePtr, Bytes> requested_;
  Bytes reserved_ = 0;
  uint32_t granules_ = 0;
  uint64_t step_ = 0;
};

void Converter::SeeStream(const Line& line) {
  const auto pool = static_cast<uint16_t>(pools_.size());
  if (!pools_.try_emplace(line.stream, pool).second) return;
  Emit(line.time_ns, {.address = line.stream, .extra = pool, .kind = EventKind::kStreamSeen});
  Emit(line.time_ns, {.extra = pool, .pool = pool, .kind = EventKind::kPoolCreated});
}

bool Converter::Convert(const Line& line, const Line* next) {
  SeeStream(line);
  if (line.action == "segment_alloc") {
    const uint32_t id = ++granules_;
    reserved_ += line.size;
    Emit(line.time_ns, {.bytes = line.size, .extra = id, .kind = EventKind::kGranuleCreated});
    Emit(line.time_ns, {.address = line.address,
                        .bytes = line.size,
                        .extra = id,
                        .kind = EventKind::kGranuleMapped});
    Emit(line.time_ns, {.address = options_.device_total_bytes,
                        .bytes = reserved_ + options_.outside_bytes,
                        .kind = EventKind::kDeviceUsedSampled});
    return false;
  }
  if (line.action == "alloc") {
    requested_[line.address] = line.size;
    Emit(line.time_ns, BlockEvent(EventKind::kBlockAllocated, line));
    return false;
  }
  if (!requested_.contains(line.address)) return false;  // allocated before the trace began
  if (line.action == "free_completed") {
    Emit(line.time_ns, BlockEvent(EventKind::kPendingFreeFinished, line));
    return false;
  }
  const bool at_once =
      next != nullptr && next->action == "free_completed" && next->address == line.address;
  Emit(line.time_ns,
       BlockEvent(at_once ? EventKind::kBlockFreed : EventKind::kBlockFreePended, line));
  return at_once;
}

}  // namespace

absl::StatusOr<std::vector<Event>> ReadCsvTrace(std::istream& csv, const CsvTraceOptions& options) {
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<Line> lines, ReadLines(csv));
  Converter converter(options);
  const uint64_t end_ns = lines.empty() ? 0 : lines.back().time_ns;
  const uint64_t step_ns = options.steps > 0 ? end_ns / options.steps : end_ns + 1;
  uint64_t next_step_ns = options.steps > 0 ? 0 : end_ns + 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].time_ns >= next_step_ns) {
      converter.MarkStep(lines[i].time_ns);
      next_step_ns += std::max<uint64_t>(step_ns, 1);
    }
    if (converter.Convert(lines[i], i + 1 < lines.size() ? &lines[i + 1] : nullptr)) ++i;
  }
  return converter.TakeEvents();
}

}  // namespace offcut
