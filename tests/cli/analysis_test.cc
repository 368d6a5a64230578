#include "visualizer/cli/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/cli/event_script.h"
#include "tests/cli/vector_trace_reader.h"

namespace offcut {
namespace {

DeviceAnalysis Analyze(const EventScript& script) {
  VectorTraceReader reader(script.events());
  return *AnalyzeDevice(reader);
}

TEST(AnalysisTest, AnEmptyTraceHasNoPeak) {
  VectorTraceReader reader({});
  const DeviceAnalysis device = *AnalyzeDevice(reader);
  EXPECT_EQ(device.peak.events, 0u);
  EXPECT_EQ(device.peak.accounting, Accounting());
  EXPECT_EQ(device.live_over_reserved(), 0);
  EXPECT_EQ(device.chunk_bytes_per_event(), 0);
}

TEST(AnalysisTest, ThePeakIsTheFullestInstantAmongThoseAtTheLargestReserved) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000).Allocate(4096, 2000);
  const uint64_t fullest = script.events().size();
  script.Free(0).Allocate(0, 1000).Free(0);
  script.Shrink(0);
  const DeviceAnalysis device = Analyze(script);
  EXPECT_EQ(device.peak.events, fullest);
  EXPECT_EQ(device.peak.time_ns, 10 * fullest);
  EXPECT_EQ(device.peak_reserved_bytes, kGranule);
  EXPECT_EQ(device.peak_live_bytes, 3000u);
  EXPECT_EQ(device.peak.accounting.live_bytes, 3000u);
  EXPECT_EQ(device.end_reserved_bytes, 0u);
}

TEST(AnalysisTest, EveryByteOfTheDeviceHasOnePlaceInTheSum) {
  EventScript script;
  script.Grow(0).Grow(1).Allocate(4096, 500).Pend(4096).Allocate(0, 1000).Allocate(16384, 7);
  const Accounting sum = Analyze(script).peak.accounting;
  EXPECT_EQ(sum.live_bytes, 1007u);
  EXPECT_EQ(sum.rounding_bytes, 24u + 505u);
  EXPECT_EQ(sum.pending_bytes, 512u);
  EXPECT_EQ(sum.pinned_bytes, kGranule - 1024 - 512 - 512);
  EXPECT_EQ(sum.idle_bytes, kGranule);
  EXPECT_EQ(sum.outside_bytes, int64_t{500 * kMiB});
  EXPECT_EQ(sum.device_used_bytes, 2 * kGranule + 500 * kMiB);
}

TEST(AnalysisTest, CountsFreesWhetherOrNotTheyPended) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000).Allocate(4096, 2000).Allocate(8192, 1);
  script.Free(0).Pend(4096).FinishPending(4096);
  const DeviceAnalysis device = Analyze(script);
  EXPECT_EQ(device.allocations(), 3u);
  EXPECT_EQ(device.frees(), 2u);
  EXPECT_EQ(device.inconsistencies, 0u);
}

TEST(AnalysisTest, ListsTheBlocksOfThePeakLargestFirst) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000).Allocate(4096, 3000).Allocate(8192, 2000).Step(1).Free(0);
  const std::vector<LiveBlock> blocks = Analyze(script).peak.blocks;
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].address, kBase + 4096);
  EXPECT_EQ(blocks[0].size, 3072u);
  EXPECT_EQ(blocks[0].allocation_index, 1u);
  EXPECT_EQ(blocks[0].age_ns, 10u);
  EXPECT_EQ(blocks[1].requested, 2000u);
  EXPECT_EQ(blocks[2].requested, 1000u);
}

TEST(AnalysisTest, PeaksAndCountsOutliveTheProgramsResets) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000).Step(1).Free(0);
  script.Add({.kind = EventKind::kPeaksReset}).Add({.kind = EventKind::kTotalsReset});
  const DeviceAnalysis device = Analyze(script);
  EXPECT_EQ(device.peak_live_bytes, 1000u);
  EXPECT_EQ(device.Count(EventKind::kStepMarked), 1u);
}

TEST(AnalysisTest, LeavesOutAndCountsWhatNoAllocatorCanHaveWritten) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000);
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  script.Add({.address = kBase, .bytes = huge, .extra = 1, .kind = EventKind::kBlockAllocated});
  script.Add({.address = 3, .bytes = 1, .extra = 1, .kind = EventKind::kBlockAllocated});
  script.Add({.bytes = huge, .extra = 9, .kind = EventKind::kGranuleCreated});
  script.Add({.address = huge, .bytes = huge, .kind = EventKind::kDeviceUsedSampled});
  const DeviceAnalysis device = Analyze(script);
  EXPECT_EQ(device.implausible_events, 4u);
  EXPECT_EQ(device.peak_live_bytes, 1000u);
  EXPECT_EQ(device.peak_reserved_bytes, kGranule);
}

TEST(AnalysisTest, BelievesTheLargerOfTheTwoCountsOfDroppedEvents) {
  EventScript script;
  script.Add({.bytes = 5, .kind = EventKind::kEventsDropped});
  script.Add({.bytes = 6, .kind = EventKind::kEventsDropped});
  VectorTraceReader reader(script.events());
  EXPECT_EQ(AnalyzeDevice(reader)->dropped_events, 11u);
  reader.summary_.dropped_events = 12;
  EXPECT_EQ(AnalyzeDevice(reader)->dropped_events, 12u);
}

TEST(AnalysisTest, TellsFailuresForLackOfMemoryFromOthers) {
  EventScript script;
  for (const FailureReason reason :
       {FailureReason::kOutOfMemory, FailureReason::kLimit, FailureReason::kDriverError}) {
    script.Add(
        {.bytes = 1, .extra = static_cast<uint32_t>(reason), .kind = EventKind::kRequestFailed});
  }
  const DeviceAnalysis device = Analyze(script);
  EXPECT_EQ(device.Count(EventKind::kRequestFailed), 3u);
  EXPECT_EQ(device.out_of_memory, 2u);
}

TEST(AnalysisTest, TheDeviceWithTheLargestPeakStandsForTheRun) {
  Analysis analysis;
  for (const Bytes peak : {Bytes{1}, Bytes{3}, Bytes{3}, Bytes{2}}) {
    analysis.devices.emplace_back().peak_reserved_bytes = peak;
  }
  EXPECT_EQ(&analysis.main_device(), &analysis.devices[1]);
}

}  // namespace
}  // namespace offcut
