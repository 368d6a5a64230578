#include "visualizer/cli/report_device.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "visualizer/cli/analysis.h"
#include "visualizer/cli/report_series.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

// What the page lists before the chunks are decoded; from then on it lists all.
constexpr size_t kFirstBlocks = 200;

// A level's highest value and when it was first reached.
struct Peak {
  Bytes bytes = 0;
  uint64_t time_ns = 0;
  void See(Bytes value, uint64_t now_ns) {
    if (value <= bytes) return;
    bytes = value;
    time_ns = now_ns;
  }
  Json ToJson() const { return {{"bytes", bytes}, {"time_ns", time_ns}}; }
};

// Numbers as the viewer reads them fastest: base64 of little-endian float64.
Json Column(const std::vector<double>& values) {
  static_assert(std::endian::native == std::endian::little);
  return absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(values.data()),
                                              values.size() * sizeof(double)));
}

// The levels over time and the rows, once the analysis has found the peak.
class RowPass {
 public:
  explicit RowPass(uint64_t peak_events) : peak_events_(peak_events) {}

  absl::Status See(const Event& event);
  absl::Status Finish() { return chunks_.Finish(); }

  Json ToJson() const;
  std::vector<ReportChunk> TakeChunks() { return std::move(chunks_).TakeChunks(); }

 private:
  void SeeMark(const Event& event);
  absl::Status AddRows(const Event& event);
  ReportLevels Levels() const {
    return {state_.live_bytes(), state_.reserved_bytes(), state_.device_used_bytes()};
  }

  struct Marks {
    std::vector<double> times, values;
    Json ToJson() const { return {{"time_ns", Column(times)}, {"value", Column(values)}}; }
  };

  const uint64_t peak_events_;
  MemoryState state_;
  ReportChunks chunks_;
  ReportSeries series_;
  uint64_t events_ = 0, rows_ = 0, peak_rows_ = 0;
  uint64_t last_ns_ = 0;
  Peak device_used_peak_;
  Marks steps_, failures_, drops_;
};

absl::Status RowPass::See(const Event& event) {
  ++events_;
  if (IsPlausible(event)) {
    SeeMark(event);
    if (ReportChunks::HasRow(event.kind)) {
      OFFCUT_RETURN_IF_ERROR(AddRows(event));
    } else {
      state_.Apply(event);
    }
  }
  if (events_ == peak_events_) peak_rows_ = rows_;
  return absl::OkStatus();
}

absl::Status RowPass::AddRows(const Event& event) {
  for (const Event& row : Reconcile(state_, event)) {
    const ReportLevels before = Levels();
    state_.Apply(row);
    OFFCUT_RETURN_IF_ERROR(chunks_.Add(row, before));
    ++rows_;
  }
  last_ns_ = std::max(last_ns_, event.time_ns);
  series_.Add(last_ns_, Levels());
  device_used_peak_.See(state_.device_used_bytes(), last_ns_);
  return absl::OkStatus();
}

void RowPass::SeeMark(const Event& event) {
  Marks* marks = event.kind == EventKind::kStepMarked      ? &steps_
                 : event.kind == EventKind::kRequestFailed ? &failures_
                 : event.kind == EventKind::kEventsDropped ? &drops_
                                                           : nullptr;
  if (marks == nullptr) return;
  marks->times.push_back(static_cast<double>(event.time_ns));
  marks->values.push_back(static_cast<double>(event.bytes));
}

Json SeriesToJson(const ReportSeries& series) {
  struct Range {
    Bytes ReportLevels::* level;
    const char* name;
  };
  Json json = {{"begin_ns", series.begin_ns()}, {"slice_ns", series.slice_ns()}};
  for (const auto& [level, name] :
       {Range{&ReportLevels::live, "live"}, Range{&ReportLevels::reserved, "reserved"},
        Range{&ReportLevels::device_used, "device_used"}}) {
    std::vector<double> least, most;
    for (const ReportSeries::Slice& slice : series.slices()) {
      least.push_back(static_cast<double>(slice.least.*level));
      most.push_back(static_cast<double>(slice.most.*level));
    }
    json[absl::StrCat(name, "_least")] = Column(least);
    json[absl::StrCat(name, "_most")] = Column(most);
  }
  return json;
}

Json RowPass::ToJson() const {
  Json json;
  json["rows"] = rows_;
  json["allocations"] = chunks_.allocations();
  json["device_used_peak"] = device_used_peak_.ToJson();
  json["steps"] = steps_.ToJson();
  json["failures"] = failures_.ToJson();
  json["drops"] = drops_.ToJson();
  json["series"] = SeriesToJson(series_);
  json["pools"] = Json::array();
  for (const auto& [index, pool] : state_.pools()) {
    json["pools"].push_back({{"index", index},
                             {"stream", pool.stream_index},
                             {"private_pool_id", absl::StrCat(pool.private_pool_id)}});
  }
  json["peak"] = {{"rows", peak_rows_}};
  return json;
}

Json AccountingToJson(const Accounting& sum) {
  Json json = {{"live_bytes", sum.live_bytes},
               {"rounding_bytes", sum.rounding_bytes},
               {"pending_bytes", sum.pending_bytes},
               {"private_pools_free_bytes", sum.private_pools_free_bytes},
               {"pinned_bytes", sum.pinned_bytes},
               {"idle_bytes", sum.idle_bytes},
               {"driver_pool_free_bytes", sum.driver_pool_free_bytes},
               {"reserved_bytes", sum.reserved_bytes},
               {"outside_bytes", sum.outside_bytes},
               {"device_used_bytes", sum.device_used_bytes}};
  if (sum.foreign_bytes > 0) json["foreign_bytes"] = sum.foreign_bytes;
  return json;
}

// The largest live blocks, and how many there are.
void AddBlocks(const ReservedPeak& peak, Json& json) {
  uint64_t live_blocks = 0;
  std::vector<double> addresses, requested, sizes, times, pools;
  for (const LiveBlock& block : peak.blocks) {
    if (block.pending || ++live_blocks > kFirstBlocks) continue;
    addresses.push_back(static_cast<double>(block.address));
    requested.push_back(static_cast<double>(block.requested));
    sizes.push_back(static_cast<double>(block.size));
    times.push_back(static_cast<double>(peak.time_ns - block.age_ns));
    pools.push_back(block.pool);
  }
  json["live_blocks"] = live_blocks;
  json["first_blocks"] = {{"address", Column(addresses)},
                          {"requested_bytes", Column(requested)},
                          {"block_bytes", Column(sizes)},
                          {"allocated_ns", Column(times)},
                          {"pool", Column(pools)}};
}

Json AnalysisToJson(const DeviceAnalysis& analysis) {
  Json json;
  json["process"] = analysis.process;
  json["events"] = analysis.summary.events;
  json["begin_ns"] = analysis.begin_ns;
  json["end_ns"] = std::max(analysis.begin_ns, analysis.end_ns);
  json["counts"] = Json::object();
  for (const EventDescription& kind : EventDescriptions()) {
    if (const uint64_t count = analysis.Count(kind.kind); count > 0) {
      json["counts"][std::string(kind.name)] = count;
    }
  }
  json["honesty"] = {{"dropped_events", analysis.dropped_events},
                     {"inconsistencies", analysis.inconsistencies},
                     {"implausible_events", analysis.implausible_events},
                     {"closed", analysis.summary.closed},
                     {"problem", analysis.summary.problem}};
  if (!analysis.reports.empty()) {
    json["failure_reports"] = Json::array();
    for (const FailureReport& report : analysis.reports) {
      json["failure_reports"].push_back({{"time_ns", report.time_ns}, {"text", report.text}});
    }
  }
  json["live_peak"] = {{"bytes", analysis.peak_live_bytes}, {"time_ns", analysis.peak_live_ns}};
  return json;
}

Json MetadataToJson(const TraceReader& reader) {
  const TraceMetadata& metadata = reader.metadata();
  return {{"file", reader.path()},
          {"format_version", metadata.format_version},
          {"offcut_version", metadata.offcut_version},
          {"host", metadata.host},
          {"pid", metadata.pid},
          {"command_line", metadata.command_line},
          {"epoch_unix_ms", static_cast<double>(metadata.epoch_unix_ns) / 1e6},
          {"device", metadata.device},
          {"device_name", metadata.device_name},
          {"device_total_bytes", metadata.device_total_bytes},
          {"options_json", metadata.options_json}};
}

}  // namespace

ReconciledEvents Reconcile(const MemoryState& state, const Event& event) {
  const auto block = state.blocks().find(event.address);
  const bool known_block = block != state.blocks().end();
  // A free of `block` with the numbers that it was allocated with.
  const auto free_of_block = [&](EventKind kind) {
    Event free = event;
    free.kind = kind;
    free.bytes = block->second.requested;
    free.extra = static_cast<uint32_t>(block->second.size / kBlockAlignment);
    return free;
  };
  // What ends it, in the state that it is in.
  const auto end_of_block = [&] {
    return free_of_block(block->second.pending ? EventKind::kPendingFreeFinished
                                               : EventKind::kBlockFreed);
  };
  const auto granule = state.granules().find(event.extra);
  const bool known_granule = granule != state.granules().end();
  switch (event.kind) {
    case EventKind::kBlockAllocated:
      if (known_block) return {end_of_block(), event};
      return {event};
    case EventKind::kBlockFreed:
    case EventKind::kPendingFreeFinished:
      if (!known_block) return {};
      return {end_of_block()};
    case EventKind::kBlockFreePended:
      if (!known_block || block->second.pending) return {};
      return {free_of_block(EventKind::kBlockFreePended)};
    case EventKind::kGranuleCreated:
      if (known_granule) return {};
      return {event};
    case EventKind::kGranuleReleased: {
      if (!known_granule) return {};
      Event release = event;
      release.bytes = granule->second.size;
      return {release};
    }
    case EventKind::kDriverPoolShrunk: {
      const auto pool = state.driver_pools().find(event.extra);
      if (pool == state.driver_pools().end() || pool->second < event.bytes) return {};
      return {event};
    }
    default:
      return {event};
  }
}

absl::StatusOr<DeviceReport> MakeDeviceReport(TraceReader& reader) {
  OFFCUT_ASSIGN_OR_RETURN(const DeviceAnalysis analysis, AnalyzeDevice(reader));
  RowPass rows(analysis.peak.events);
  absl::Status failure;
  uint64_t seen = 0;
  OFFCUT_RETURN_IF_ERROR(reader
                             .ForEach([&](absl::Span<const Event> events) {
                               for (const Event& event : events) {
                                 // A run still going may have more by now; the figures would not
                                 // agree with those.
                                 if (seen++ == analysis.summary.events || !failure.ok()) return;
                                 failure.Update(rows.See(event));
                               }
                             })
                             .status());
  OFFCUT_RETURN_IF_ERROR(failure);
  OFFCUT_RETURN_IF_ERROR(rows.Finish());

  DeviceReport report;
  Json& overview = report.overview;
  overview = MetadataToJson(reader);
  overview.update(AnalysisToJson(analysis));
  overview.update(rows.ToJson());
  overview["peak"]["time_ns"] = analysis.peak.time_ns;
  overview["peak"]["accounting"] = AccountingToJson(analysis.peak.accounting);
  AddBlocks(analysis.peak, overview["peak"]);
  report.chunks = rows.TakeChunks();
  return report;
}

}  // namespace offcut
