#include "tests/cli/csv_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "allocator/base/status_macros.h"
#include "allocator/replay/csv_trace.h"

namespace offcut {
namespace {

uint64_t TimeNs(const CsvEntry& entry) { return entry.time_us * 1000; }

class Converter {
 public:
  explicit Converter(const CsvTraceOptions& options) : options_(options) {}

  // `next`: the entry behind it, or nullptr. Returns whether that was used up as well.
  bool Convert(const CsvEntry& entry, const CsvEntry* next);
  void MarkStep(uint64_t time_ns) {
    Emit(time_ns, {.bytes = step_++, .kind = EventKind::kStepMarked});
  }
  std::vector<Event> TakeEvents() { return std::move(events_); }

 private:
  void Emit(uint64_t time_ns, Event event) {
    event.time_ns = time_ns;
    events_.push_back(event);
  }
  void SeeStream(const CsvEntry& entry);
  Event BlockEvent(EventKind kind, const CsvEntry& entry) const {
    const Bytes requested = requested_.at(entry.address);
    const Bytes size = std::max<Bytes>(RoundUp(requested, kBlockAlignment), kBlockAlignment);
    return {.address = entry.address,
            .bytes = requested,
            .extra = static_cast<uint32_t>(size / kBlockAlignment),
            .pool = pools_.at(entry.stream),
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

void Converter::SeeStream(const CsvEntry& entry) {
  const auto pool = static_cast<uint16_t>(pools_.size());
  if (!pools_.try_emplace(entry.stream, pool).second) return;
  Emit(TimeNs(entry), {.address = entry.stream, .extra = pool, .kind = EventKind::kStreamSeen});
  Emit(TimeNs(entry), {.extra = pool, .pool = pool, .kind = EventKind::kPoolCreated});
}

bool Converter::Convert(const CsvEntry& entry, const CsvEntry* next) {
  SeeStream(entry);
  if (entry.action == CsvAction::kSegmentAlloc) {
    const uint32_t id = ++granules_;
    reserved_ += entry.bytes;
    Emit(TimeNs(entry), {.bytes = entry.bytes, .extra = id, .kind = EventKind::kGranuleCreated});
    Emit(TimeNs(entry), {.address = entry.address,
                         .bytes = entry.bytes,
                         .extra = id,
                         .kind = EventKind::kGranuleMapped});
    Emit(TimeNs(entry), {.address = options_.device_total_bytes,
                         .bytes = reserved_ + options_.outside_bytes,
                         .kind = EventKind::kDeviceUsedSampled});
    return false;
  }
  if (entry.action == CsvAction::kAlloc) {
    requested_[entry.address] = entry.bytes;
    Emit(TimeNs(entry), BlockEvent(EventKind::kBlockAllocated, entry));
    return false;
  }
  if (!requested_.contains(entry.address)) return false;  // allocated before the trace began
  if (entry.action == CsvAction::kFreeCompleted) {
    Emit(TimeNs(entry), BlockEvent(EventKind::kPendingFreeFinished, entry));
    return false;
  }
  const bool at_once = next != nullptr && next->action == CsvAction::kFreeCompleted &&
                       next->address == entry.address;
  Emit(TimeNs(entry),
       BlockEvent(at_once ? EventKind::kBlockFreed : EventKind::kBlockFreePended, entry));
  return at_once;
}

}  // namespace

absl::StatusOr<std::vector<Event>> ReadCsvTrace(const std::string& path,
                                                const CsvTraceOptions& options) {
  std::vector<CsvEntry> entries;
  OFFCUT_RETURN_IF_ERROR(ReadCsvEntries(path, [&entries](const CsvEntry& entry) {
    entries.push_back(entry);
    return absl::OkStatus();
  }));
  Converter converter(options);
  const uint64_t end_ns = entries.empty() ? 0 : TimeNs(entries.back());
  const uint64_t step_ns = options.steps > 0 ? end_ns / options.steps : end_ns + 1;
  uint64_t next_step_ns = options.steps > 0 ? 0 : end_ns + 1;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (TimeNs(entries[i]) >= next_step_ns) {
      converter.MarkStep(TimeNs(entries[i]));
      next_step_ns += std::max<uint64_t>(step_ns, 1);
    }
    if (converter.Convert(entries[i], i + 1 < entries.size() ? &entries[i + 1] : nullptr)) ++i;
  }
  return converter.TakeEvents();
}

}  // namespace offcut
