#include "visualizer/cli/inspect.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "visualizer/cli/text.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBlocksInJson = 100;
constexpr size_t kBlocksInText = 5;

// The terms of the sum, in the order of "first that fits" (allocator/README.md).
struct Term {
  const char* name;
  int64_t bytes;
  const char* sentence;
};

std::vector<Term> HeldTerms(const Accounting& sum) {
  const auto term = [](const char* name, Bytes bytes, const char* sentence) {
    return Term{name, static_cast<int64_t>(bytes), sentence};
  };
  return {term("live", sum.live_bytes, "asked for by the program and not freed"),
          term("rounding", sum.rounding_bytes, "the same blocks' size, minus live"),
          term("pending", sum.pending_bytes, "freed, still used by a stream"),
          term("private_pools_free", sum.private_pools_free_bytes, "free in private pools"),
          term("pinned", sum.pinned_bytes, "free, in a granule that also holds a block"),
          term("idle", sum.idle_bytes, "the rest that we hold"),
          term("driver_pool_free", sum.driver_pool_free_bytes, "in the driver's own pools")};
}

Json AccountingJson(const Accounting& sum) {
  Json json;
  for (const Term& term : HeldTerms(sum)) json[absl::StrCat(term.name, "_bytes")] = term.bytes;
  json["outside_bytes"] = sum.outside_bytes;
  json["device_used_bytes"] = sum.device_used_bytes;
  json["foreign_bytes"] = sum.foreign_bytes;
  return json;
}

// The figures that the top level and each device have alike.
Json FiguresJson(const DeviceAnalysis& device) {
  return {{"process", device.process},
          {"device", device.metadata.device},
          {"events", device.summary.events},
          {"allocations", device.allocations()},
          {"frees", device.frees()},
          {"dropped_events", device.dropped_events},
          {"peak_live_bytes", device.peak_live_bytes},
          {"peak_reserved_bytes", device.peak_reserved_bytes},
          {"accounting", AccountingJson(device.peak.accounting)}};
}

Json BlocksJson(const std::vector<LiveBlock>& blocks) {
  Json json = Json::array();
  for (size_t i = 0; i < std::min(blocks.size(), kBlocksInJson); ++i) {
    const LiveBlock& block = blocks[i];
    json.push_back({{"address", block.address},
                    {"requested_bytes", block.requested},
                    {"block_bytes", block.size},
                    {"pool", block.pool},
                    {"stream", block.stream_index},
                    {"pending", block.pending},
                    {"age_ns", block.age_ns},
                    {"allocation", block.allocation_index}});
  }
  return json;
}

Json DeviceJson(const DeviceAnalysis& device) {
  Json json = FiguresJson(device);
  const TraceMetadata& metadata = device.metadata;
  const TraceSummary& summary = device.summary;
  json.update({{"file", device.file},
               {"device_name", metadata.device_name},
               {"device_total_bytes", metadata.device_total_bytes},
               {"host", metadata.host},
               {"pid", metadata.pid},
               {"command_line", metadata.command_line},
               {"offcut_version", metadata.offcut_version},
               {"format_version", metadata.format_version},
               {"start_unix_ns", metadata.epoch_unix_ns},
               {"duration_ns", device.end_ns - std::min(device.begin_ns, device.end_ns)},
               {"steps", device.Count(EventKind::kStepMarked)},
               {"failed_requests", device.Count(EventKind::kRequestFailed)},
               {"out_of_memory", device.out_of_memory},
               {"live_over_reserved", device.live_over_reserved()},
               {"peak_live_time_ns", device.peak_live_ns},
               {"peak_reserved_time_ns", device.peak.time_ns},
               {"peak_reserved_event", device.peak.events},
               {"peak_blocks", device.peak.blocks.size()},
               {"largest_peak_blocks", BlocksJson(device.peak.blocks)},
               {"end_live_bytes", device.end_live_bytes},
               {"end_reserved_bytes", device.end_reserved_bytes},
               {"driver_calls", device.Count(EventKind::kDriverCalled)},
               {"driver_ns", device.driver_ns},
               {"chunks", summary.chunks},
               {"chunk_bytes", summary.chunk_bytes},
               {"chunk_bytes_per_event", device.chunk_bytes_per_event()},
               {"ring_events", summary.ring_events},
               {"closed", summary.closed},
               {"problem", summary.problem},
               {"implausible_events", device.implausible_events},
               {"inconsistencies", device.inconsistencies}});
  Json kinds = Json::object();
  for (const EventDescription& kind : EventDescriptions()) {
    if (device.Count(kind.kind) > 0) kinds[std::string(kind.name)] = device.Count(kind.kind);
  }
  json["events_by_kind"] = std::move(kinds);
  json["failure_reports"] = Json::array();
  for (const FailureReport& report : device.reports) {
    json["failure_reports"].push_back({{"time_ns", report.time_ns}, {"text", report.text}});
  }
  json["options"] = Json::parse(metadata.options_json, nullptr, /*allow_exceptions=*/false);
  if (json["options"].is_discarded()) json["options"] = nullptr;
  return json;
}

void AppendSum(const Accounting& sum, std::string* text) {
  const auto line = [&](const char* name, int64_t bytes, const char* sentence) {
    const std::string size = absl::StrCat(bytes < 0 ? "-" : "", ShowBytes(std::abs(bytes)));
    const std::string exact =
        absl::StrCat(bytes < 0 ? "-" : "", ShowCount(static_cast<uint64_t>(std::abs(bytes))));
    absl::StrAppendFormat(text, "    %-20s %11s %20s   %s\n", name, size, exact, sentence);
  };
  const std::string rule = absl::StrCat("    ", std::string(53, '-'), "\n");
  for (const Term& term : HeldTerms(sum)) line(term.name, term.bytes, term.sentence);
  absl::StrAppend(text, rule);
  line("reserved", static_cast<int64_t>(sum.reserved_bytes), "held from the driver");
  line("outside", sum.outside_bytes, "the CUDA context, other libraries, other processes");
  absl::StrAppend(text, rule);
  line("device used", static_cast<int64_t>(sum.device_used_bytes), "as last sampled");
  if (sum.foreign_bytes > 0) {
    line("foreign", static_cast<int64_t>(sum.foreign_bytes),
         "beside the sum: private pools' memory that another allocator gave");
  }
}

void AppendBlocks(const std::vector<LiveBlock>& blocks, std::string* text) {
  if (blocks.empty()) return;
  absl::StrAppendFormat(text, "  The largest of the %s blocks held then\n",
                        ShowCount(blocks.size()));
  for (size_t i = 0; i < std::min(blocks.size(), kBlocksInText); ++i) {
    const LiveBlock& block = blocks[i];
    absl::StrAppendFormat(text, "    %#x %11s   stream %d, %s old%s\n", block.address,
                          ShowBytes(block.requested), block.stream_index,
                          ShowDuration(block.age_ns), block.pending ? ", pending" : "");
  }
}

void AppendReports(const std::vector<FailureReport>& reports, std::string* text) {
  if (reports.empty()) return;
  const FailureReport& last = reports.back();
  absl::StrAppendFormat(text, "\n  Why the request at %s failed%s\n", ShowDuration(last.time_ns),
                        reports.size() == 1 ? "" : " (earlier reports: --json)");
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(last.text, "\n"), '\n')) {
    absl::StrAppend(text, "    ", ShowForeign(line), "\n");
  }
}

void AppendDevice(const DeviceAnalysis& device, std::string* text) {
  const TraceMetadata& metadata = device.metadata;
  absl::StrAppendFormat(text, "%s, device %d: %s, %s\n", ShowForeign(device.process),
                        metadata.device, ShowForeign(metadata.device_name),
                        ShowBytes(metadata.device_total_bytes));
  absl::StrAppendFormat(text, "  %s (process %d on %s, Offcut %s, format %d)\n",
                        ShowForeign(metadata.command_line), metadata.pid,
                        ShowForeign(metadata.host), ShowForeign(metadata.offcut_version),
                        metadata.format_version);
  for (const std::string& caveat : Caveats(device)) absl::StrAppend(text, "  ! ", caveat, "\n");
  absl::StrAppend(text, "\n");
  const auto line = [&](const char* name, const std::string& value) {
    absl::StrAppendFormat(text, "  %-16s %s\n", name, value);
  };
  line("peak live",
       absl::StrCat(ShowBytes(device.peak_live_bytes), " at ", ShowDuration(device.peak_live_ns)));
  line("peak reserved", absl::StrCat(ShowBytes(device.peak_reserved_bytes), " at ",
                                     ShowDuration(device.peak.time_ns)));
  line("live/reserved", absl::StrFormat("%.3f", device.live_over_reserved()));
  line("requests",
       absl::StrCat(ShowCount(device.allocations()), " served, ", ShowCount(device.frees()),
                    " freed, ", ShowCount(device.Count(EventKind::kRequestFailed)), " failed"));
  line("steps", ShowCount(device.Count(EventKind::kStepMarked)));
  line("duration", ShowDuration(device.end_ns - std::min(device.begin_ns, device.end_ns)));
  line("driver calls", absl::StrCat(ShowCount(device.Count(EventKind::kDriverCalled)), ", ",
                                    ShowDuration(device.driver_ns)));
  std::string events = absl::StrCat(ShowCount(device.summary.events), " in ",
                                    ShowCount(device.summary.chunks), " chunks");
  if (device.summary.chunks > 0) {
    absl::StrAppendFormat(&events, " (%.2f bytes per event)", device.chunk_bytes_per_event());
  }
  if (device.summary.ring_events > 0) {
    absl::StrAppend(&events, ", ", ShowCount(device.summary.ring_events), " still in the ring");
  }
  line("events", events);
  absl::StrAppend(text, "\n  Where the memory was at the reserved peak\n");
  AppendSum(device.peak.accounting, text);
  absl::StrAppend(text, "\n");
  AppendBlocks(device.peak.blocks, text);
  AppendReports(device.reports, text);
}

}  // namespace

std::vector<std::string> Caveats(const DeviceAnalysis& device) {
  std::vector<std::string> caveats;
  const auto say = [&](auto&&... parts) { caveats.push_back(absl::StrCat(parts...)); };
  if (device.dropped_events > 0) {
    say(ShowCount(device.dropped_events),
        " events were dropped while recording: the figures are incomplete");
  }
  if (!device.summary.problem.empty()) {
    say("reading ended early: ", ShowForeign(device.summary.problem));
  }
  if (!device.summary.closed) say("not closed: the process still runs, or it was killed");
  if (device.summary.events == 0) say("no events");
  if (device.implausible_events > 0) {
    say(ShowCount(device.implausible_events), " events hold impossible figures and were left out");
  }
  if (device.inconsistencies > 0) {
    say(ShowCount(device.inconsistencies),
        " events contradict those before them; `offcut check` lists them");
  }
  return caveats;
}

Json InspectJson(const Analysis& analysis) {
  Json json = FiguresJson(analysis.main_device());
  json["devices"] = Json::array();
  for (const DeviceAnalysis& device : analysis.devices)
    json["devices"].push_back(DeviceJson(device));
  json["unreadable"] = analysis.unreadable;
  return json;
}

std::string InspectText(const Analysis& analysis) {
  std::string text;
  for (const std::string& message : analysis.unreadable) {
    absl::StrAppend(&text, "! not readable: ", ShowForeign(message), "\n");
  }
  for (const DeviceAnalysis& device : analysis.devices) {
    if (!text.empty()) absl::StrAppend(&text, "\n");
    AppendDevice(device, &text);
  }
  return text;
}

}  // namespace offcut
