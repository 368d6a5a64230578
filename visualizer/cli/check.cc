#include "visualizer/cli/check.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "allocator/base/status_macros.h"
#include "allocator/events/counters.h"
#include "allocator/events/memory_state.h"
#include "visualizer/cli/analysis.h"
#include "visualizer/cli/private_pool_rules.h"
#include "visualizer/cli/range_set.h"

namespace offcut {
namespace {

class Checker {
 public:
  explicit Checker(const TraceMetadata& metadata) : metadata_(metadata) {}

  void See(const Event& event) {
    event_ = &event;
    if (event.time_ns < last_ns_) {
      Damage(absl::StrCat("its time is ", last_ns_ - event.time_ns, " ns before the event before"));
    }
    last_ns_ = std::max(last_ns_, event.time_ns);
    if (event.device != metadata_.device) {
      Damage(absl::StrCat("it is of another device than the file (", metadata_.device, ")"));
    }
    if (DescribeEvent(event.kind) == nullptr) {
      ++unknown_kinds_;
    } else if (!IsPlausible(event)) {
      Damage("no allocator can have written its figures");
    } else {
      CheckAddresses(event);
      CheckPrivatePools(event);
      Fold(event);
    }
    ++index_;
  }

  CheckResult Finish(const TraceReader& reader, const TraceSummary& summary);

 private:
  // What dropped events explain.
  void Contradiction(std::string what) { AddFault(std::move(what), &contradictions_); }
  // What nothing explains.
  void Damage(std::string what) { AddFault(std::move(what), &damages_); }

  void AddFault(std::string what, uint64_t* count) {
    ++*count;
    std::vector<CheckFault>& faults = count == &damages_ ? first_damages_ : first_contradictions_;
    if (faults.size() >= CheckResult::kFaultsKept) return;
    faults.push_back({index_, event_ == nullptr ? "" : ToString(*event_), std::move(what)});
  }

  void CheckAddresses(const Event& event);
  void CheckNewBlock(const Event& event);
  void CheckPrivatePools(const Event& event);
  bool InForeignMemory(DevicePtr begin, DevicePtr end) const;
  void Fold(const Event& event);
  void CheckNewMapping(DevicePtr begin, DevicePtr end);
  void CheckSums();

  const TraceMetadata& metadata_;
  const Event* event_ = nullptr;
  uint64_t index_ = 0;
  uint64_t last_ns_ = 0;
  // Counters are not folded beyond this: their running totals could overflow.
  static constexpr uint64_t kMaxFoldedBytes = uint64_t{1} << 62;
  uint64_t folded_bytes_ = 0;
  Counters counters_;
  MemoryState state_;
  PrivatePoolRules private_pools_;
  bool maps_ranges_ = false;  // only some layouts reserve address space of their own
  RangeSet reserved_addresses_;
  RangeSet mapped_;      // current mappings
  RangeSet old_mapped_;  // those that stay for work submitted before a move
  bool grown_ = false;   // since the sums were last checked
  uint64_t dropped_events_ = 0;
  uint64_t unknown_kinds_ = 0;
  uint64_t contradictions_ = 0;
  uint64_t damages_ = 0;
  std::vector<CheckFault> first_contradictions_;
  std::vector<CheckFault> first_damages_;
};

bool HoldsBlock(const MemoryState& state, DevicePtr begin, DevicePtr end) {
  const auto behind = state.blocks().lower_bound(end);
  if (behind == state.blocks().begin()) return false;
  const auto& [address, block] = *std::prev(behind);
  return address + block.size > begin;
}

void Checker::CheckAddresses(const Event& event) {
  const DevicePtr begin = event.address;
  const DevicePtr end = event.address + event.bytes;
  switch (event.kind) {
    case EventKind::kBlockAllocated:
      CheckNewBlock(event);
      break;
    case EventKind::kPoolCreated:
      if (state_.streams().count(event.extra) == 0) Contradiction("its stream was not seen before");
      break;
    case EventKind::kAddressRangeReserved:
      maps_ranges_ = true;
      if (!reserved_addresses_.Add(begin, end)) Contradiction("the range was reserved already");
      break;
    case EventKind::kAddressRangeFreed:
      if (mapped_.Intersects(begin, end)) Contradiction("granules are still mapped in the range");
      if (!reserved_addresses_.Remove(begin, end)) Contradiction("the range was not reserved");
      break;
    case EventKind::kGranuleMapped:
      CheckNewMapping(begin, end);
      break;
    case EventKind::kGranuleMoved: {
      const auto granule = state_.granules().find(event.extra);
      if (granule == state_.granules().end()) break;  // MemoryState says so
      const DevicePtr former = granule->second.mapped_at;
      if (HoldsBlock(state_, former, former + event.bytes)) {
        Contradiction("moved away from under a live or pending block");
      }
      mapped_.Remove(former, former + event.bytes);
      CheckNewMapping(begin, end);
      break;
    }
    case EventKind::kOldMappingMade:
      if (mapped_.Intersects(begin, end)) Contradiction("the mapping is a current one");
      if (!old_mapped_.Add(begin, end)) Contradiction("there is an old mapping already");
      break;
    case EventKind::kOldMappingRemoved:
      if (!old_mapped_.Remove(begin, end)) Contradiction("there is no old mapping");
      break;
    case EventKind::kGranuleUnmapped:
      if (HoldsBlock(state_, begin, end)) Contradiction("unmapped under a live or pending block");
      if (!mapped_.Remove(begin, end)) Contradiction("nothing was mapped there");
      break;
    case EventKind::kGranuleReleased: {
      const auto granule = state_.granules().find(event.extra);
      if (granule == state_.granules().end()) break;  // MemoryState says so
      if (granule->second.mapped_at != 0) Contradiction("released while it is mapped");
      if (granule->second.size != event.bytes) Contradiction("released with another size");
      break;
    }
    default:
      break;
  }
}

void Checker::CheckNewMapping(DevicePtr begin, DevicePtr end) {
  if (maps_ranges_ && !reserved_addresses_.Covers(begin, end)) {
    Contradiction("mapped outside reserved ranges");
  }
  if (old_mapped_.Intersects(begin, end) || !mapped_.Add(begin, end)) {
    Contradiction("something is mapped there already");
  }
}

bool Checker::InForeignMemory(DevicePtr begin, DevicePtr end) const {
  const auto behind = state_.foreign_segments().upper_bound(begin);
  if (behind == state_.foreign_segments().begin()) return false;
  const auto& [base, bytes] = *std::prev(behind);
  return end <= base + bytes;
}

void Checker::CheckNewBlock(const Event& event) {
  const DevicePtr end = event.address + event.block_bytes();
  // Foreign memory is not ours to map, and may lie within a block of the program's.
  if (!InForeignMemory(event.address, end)) {
    if (HoldsBlock(state_, event.address, end)) {
      Contradiction("the block overlaps one that is live or pending");
    }
    // Where the driver's pools lie, no event tells.
    if (state_.driver_pools().empty() && !mapped_.Covers(event.address, end)) {
      Contradiction("the block lies outside mapped granules");
    }
  }
  if (state_.pools().count(event.pool) == 0) {
    Contradiction(absl::StrCat("pool ", event.pool, " was not created"));
  }
}

void Checker::CheckPrivatePools(const Event& event) {
  const bool unmapped = event.kind == EventKind::kBlockAllocated &&
                        (!state_.driver_pools().empty() ||
                         InForeignMemory(event.address, event.address + event.block_bytes()));
  std::string broken = private_pools_.Apply(event, unmapped);
  if (!broken.empty()) Contradiction(std::move(broken));
}

void Checker::Fold(const Event& event) {
  if (event.kind == EventKind::kEventsDropped) dropped_events_ += event.bytes;
  grown_ |= event.kind == EventKind::kGranuleCreated || event.kind == EventKind::kDriverPoolGrown;
  const uint64_t before = state_.inconsistencies();
  if (folded_bytes_ < kMaxFoldedBytes) {
    folded_bytes_ += event.bytes + event.block_bytes();
    counters_.Apply(event);
  }
  state_.Apply(event);
  if (state_.inconsistencies() != before) Contradiction("it contradicts the state before it");
  // A growth is a run of events; the request that it was for ends it.
  if (grown_ && event.kind == EventKind::kBlockAllocated) CheckSums();
}

// The two folds agree, and every byte has exactly one place.
void Checker::CheckSums() {
  grown_ = false;
  const Accounting sum = state_.Account();
  const Bytes held = sum.live_bytes + sum.rounding_bytes + sum.pending_bytes +
                     sum.private_pools_free_bytes + sum.pinned_bytes + sum.idle_bytes +
                     sum.driver_pool_free_bytes;
  const auto expect_equal = [&](absl::string_view what, uint64_t a, uint64_t b) {
    if (a != b) Contradiction(absl::StrCat(what, ": ", a, " and ", b, " bytes"));
  };
  const auto current = [](const GaugeBySize& gauge) {
    return static_cast<uint64_t>(gauge[static_cast<size_t>(SizeClassOf::kAll)].current);
  };
  expect_equal("the terms of the sum and reserved differ", held, sum.reserved_bytes);
  expect_equal("reserved and outside do not add up to device used",
               sum.reserved_bytes + static_cast<uint64_t>(sum.outside_bytes),
               sum.device_used_bytes);
  if (folded_bytes_ >= kMaxFoldedBytes) return;
  // The sum leaves out the blocks in foreign memory, the counters do not.
  Bytes live = sum.live_bytes, allocated = sum.live_bytes + sum.rounding_bytes;
  Bytes pending = sum.pending_bytes;
  for (const auto& [address, block] : state_.blocks()) {
    if (!block.foreign) continue;
    (block.pending ? pending : allocated) += block.size;
    if (!block.pending) live += block.requested;
  }
  expect_equal("live differs between counters and state", current(counters_.live_bytes), live);
  expect_equal("allocated differs between counters and state", current(counters_.allocated_bytes),
               allocated);
  expect_equal("pending differs between counters and state", current(counters_.pending_bytes),
               pending);
  expect_equal("foreign differs between counters and state", current(counters_.foreign_bytes),
               sum.foreign_bytes);
  expect_equal("reserved differs between counters and state", current(counters_.reserved_bytes),
               sum.reserved_bytes);
}

CheckResult Checker::Finish(const TraceReader& reader, const TraceSummary& summary) {
  event_ = nullptr;
  CheckSums();
  if (!summary.problem.empty()) Damage(summary.problem);
  if (summary.events != index_) {
    Damage(absl::StrCat("the reader delivered ", index_, " events and counted ", summary.events));
  }
  CheckResult result{.file = reader.path(), .events = index_};
  const uint64_t dropped = std::max(dropped_events_, summary.dropped_events);
  if (dropped > 0) {
    result.warnings.push_back(absl::StrCat(
        dropped, " events were dropped while recording; contradictions are expected after that (",
        contradictions_, " found)"));
  }
  if (!summary.closed) {
    result.warnings.push_back("not closed: the process still runs, or it was killed");
  }
  if (unknown_kinds_ > 0) {
    result.warnings.push_back(absl::StrCat(unknown_kinds_,
                                           " events are of kinds that this version does not know "
                                           "(recorded by a newer Offcut, or damaged)"));
  }
  result.faults = damages_;
  result.first_faults = std::move(first_damages_);
  if (dropped == 0) {
    result.faults += contradictions_;
    std::move(first_contradictions_.begin(), first_contradictions_.end(),
              std::back_inserter(result.first_faults));
    std::stable_sort(
        result.first_faults.begin(), result.first_faults.end(),
        [](const CheckFault& a, const CheckFault& b) { return a.event_index < b.event_index; });
    if (result.first_faults.size() > CheckResult::kFaultsKept) {
      result.first_faults.resize(CheckResult::kFaultsKept);
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<CheckResult> CheckTrace(TraceReader& reader) {
  Checker checker(reader.metadata());
  OFFCUT_ASSIGN_OR_RETURN(const TraceSummary summary,
                          reader.ForEach([&](absl::Span<const Event> events) {
                            for (const Event& event : events) checker.See(event);
                          }));
  return checker.Finish(reader, summary);
}

}  // namespace offcut
