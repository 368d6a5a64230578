#include "visualizer/cli/analysis.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "allocator/base/status_macros.h"
#include "allocator/events/report_text.h"

namespace offcut {
namespace {

// Larger than any device's memory and address, and small enough that sums do not overflow.
constexpr Bytes kMaxBytes = Bytes{1} << 44;
constexpr DevicePtr kMaxAddress = DevicePtr{1} << 57;
constexpr uint64_t kMaxNs = uint64_t{1} << 56;  // two years

bool IsPlausibleRange(DevicePtr address, Bytes bytes) {
  return address % kBlockAlignment == 0 && address <= kMaxAddress && bytes <= kMaxBytes;
}

// The first pass: totals, and where the peaks are.
class Totals {
 public:
  explicit Totals(DeviceAnalysis* analysis) : analysis_(*analysis) {}

  void See(const Event& event) {
    ++events_;
    ++analysis_.events_by_kind[static_cast<uint8_t>(event.kind)];
    if (!IsPlausible(event)) {
      ++analysis_.implausible_events;
      return;
    }
    if (events_ == 1) analysis_.begin_ns = event.time_ns;
    analysis_.end_ns = std::max(analysis_.end_ns, event.time_ns);
    if (event.kind == EventKind::kDriverCalled) analysis_.driver_ns += event.bytes;
    if (event.kind == EventKind::kEventsDropped) dropped_events_ += event.bytes;
    if (event.kind == EventKind::kRequestFailed && IsOutOfMemory(event)) ++analysis_.out_of_memory;
    if (std::optional<std::string> text = report_text_.See(event)) {
      if (analysis_.reports.size() == DeviceAnalysis::kMostReports) {
        analysis_.reports.erase(analysis_.reports.begin());
      }
      analysis_.reports.push_back({.time_ns = event.time_ns, .text = *std::move(text)});
    }
    state_.Apply(event);
    SeePeaks(event.time_ns);
  }

  void Finish(const TraceSummary& summary) {
    analysis_.summary = summary;
    analysis_.dropped_events = std::max(summary.dropped_events, dropped_events_);
    analysis_.inconsistencies = state_.inconsistencies();
    analysis_.end_live_bytes = state_.live_bytes();
    analysis_.end_reserved_bytes = state_.reserved_bytes();
  }

 private:
  static bool IsOutOfMemory(const Event& event) {
    return event.extra == static_cast<uint32_t>(FailureReason::kOutOfMemory) ||
           event.extra == static_cast<uint32_t>(FailureReason::kLimit);
  }

  void SeePeaks(uint64_t now_ns) {
    const Bytes live = state_.live_bytes();
    const Bytes reserved = state_.reserved_bytes();
    analysis_.peak_reserved_live_bytes =
        std::max(analysis_.peak_reserved_live_bytes, live - state_.foreign_live_bytes());
    if (live > analysis_.peak_live_bytes) {
      analysis_.peak_live_bytes = live;
      analysis_.peak_live_ns = now_ns;
    }
    if (std::tie(reserved, live) > std::tie(analysis_.peak_reserved_bytes, live_at_peak_)) {
      analysis_.peak_reserved_bytes = reserved;
      live_at_peak_ = live;
      analysis_.peak.events = events_;
      analysis_.peak.time_ns = now_ns;
    }
  }

  DeviceAnalysis& analysis_;
  MemoryState state_;
  ReportTextReader report_text_;
  uint64_t events_ = 0;
  uint64_t dropped_events_ = 0;
  Bytes live_at_peak_ = 0;
};

std::vector<LiveBlock> ListBlocks(const MemoryState& state, uint64_t now_ns) {
  std::vector<LiveBlock> blocks;
  blocks.reserve(state.blocks().size());
  for (const auto& [address, block] : state.blocks()) {
    const auto pool = state.pools().find(block.pool);
    blocks.push_back({.address = address,
                      .requested = block.requested,
                      .size = block.size,
                      .pool = block.pool,
                      .stream_index = pool == state.pools().end() ? 0 : pool->second.stream_index,
                      .pending = block.pending,
                      .age_ns = now_ns - std::min(now_ns, block.allocated_ns),
                      .allocation_index = block.allocation_index});
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) {
    return a.requested > b.requested;
  });
  return blocks;
}

}  // namespace

bool IsPlausible(const Event& event) {
  if (event.time_ns > kMaxNs) return false;
  switch (event.kind) {
    case EventKind::kBlockAllocated:
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended:
    case EventKind::kPendingFreeFinished:
      return IsPlausibleRange(event.address, event.block_bytes()) && event.address != 0 &&
             event.bytes > 0 && event.bytes <= event.block_bytes();
    case EventKind::kGranuleCreated:
    case EventKind::kGranuleReleased:
    case EventKind::kDriverPoolGrown:
    case EventKind::kDriverPoolShrunk:
      return IsPlausibleRange(0, event.bytes) && event.bytes > 0;
    case EventKind::kGranuleMapped:
    case EventKind::kGranuleUnmapped:
    case EventKind::kForeignSegmentAdded:
    case EventKind::kForeignSegmentRemoved:
      return IsPlausibleRange(event.address, event.bytes) && event.address != 0 && event.bytes > 0;
    case EventKind::kAddressRangeReserved:
    case EventKind::kAddressRangeFreed:
      return event.address != 0 && event.bytes > 0 && event.address % kBlockAlignment == 0 &&
             event.address <= kMaxAddress && event.bytes <= kMaxAddress;
    case EventKind::kDeviceUsedSampled:
      return event.address <= kMaxBytes && event.bytes <= kMaxBytes;
    case EventKind::kDriverCalled:
    case EventKind::kDeviceWaited:
      return event.bytes <= kMaxNs;
    case EventKind::kEventsDropped:
      return event.bytes <= kMaxBytes;
    default:
      return true;
  }
}

double DeviceAnalysis::live_over_reserved() const {
  return peak_reserved_bytes == 0 ? 0
                                  : static_cast<double>(peak_reserved_live_bytes) /
                                        static_cast<double>(peak_reserved_bytes);
}

double DeviceAnalysis::chunk_bytes_per_event() const {
  const uint64_t events = summary.events - std::min(summary.ring_events, summary.events);
  return events == 0 ? 0 : static_cast<double>(summary.chunk_bytes) / static_cast<double>(events);
}

absl::StatusOr<DeviceAnalysis> AnalyzeDevice(TraceReader& reader) {
  DeviceAnalysis analysis;
  analysis.file = reader.path();
  analysis.process = std::filesystem::path(analysis.file).parent_path().filename().string();
  analysis.metadata = reader.metadata();

  Totals totals(&analysis);
  OFFCUT_ASSIGN_OR_RETURN(const TraceSummary summary,
                          reader.ForEach([&](absl::Span<const Event> events) {
                            for (const Event& event : events) totals.See(event);
                          }));
  totals.Finish(summary);

  MemoryState state;
  uint64_t seen = 0;
  OFFCUT_RETURN_IF_ERROR(reader
                             .ForEach([&](absl::Span<const Event> events) {
                               for (const Event& event : events) {
                                 if (seen++ >= analysis.peak.events) return;
                                 if (IsPlausible(event)) state.Apply(event);
                               }
                             })
                             .status());
  analysis.peak.accounting = state.Account();
  analysis.peak.blocks = ListBlocks(state, analysis.peak.time_ns);
  return analysis;
}

const DeviceAnalysis& Analysis::main_device() const {
  return *std::max_element(devices.begin(), devices.end(),
                           [](const DeviceAnalysis& a, const DeviceAnalysis& b) {
                             return a.peak_reserved_bytes < b.peak_reserved_bytes;
                           });
}

absl::StatusOr<Analysis> AnalyzeRecording(absl::string_view path) {
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<std::string> files, FindTraceFiles(path));
  Analysis analysis;
  absl::Status first_error;
  for (const std::string& file : files) {
    absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(file);
    absl::StatusOr<DeviceAnalysis> device =
        reader.ok() ? AnalyzeDevice(**reader) : absl::StatusOr<DeviceAnalysis>(reader.status());
    if (device.ok()) {
      analysis.devices.push_back(*std::move(device));
    } else {
      first_error.Update(device.status());
      analysis.unreadable.emplace_back(device.status().message());
    }
  }
  if (analysis.devices.empty()) return first_error;
  return analysis;
}

}  // namespace offcut
