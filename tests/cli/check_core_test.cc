// What the allocator really emits, on the simulated GPU, withstands `offcut check`, and its own
// accounting is what `offcut inspect` finds.

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cli/vector_trace_reader.h"
#include "tests/core/world.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/run.h"
#include "visualizer/cli/analysis.h"
#include "visualizer/cli/check.h"

namespace offcut {
namespace {

TEST(CheckCoreTest, ARunUnderMemoryPressureHasNoFault) {
  std::mt19937_64 random(20);
  World world({.memory_bytes = 128 * kMiB, .lag_ns = 1'000'000});
  const std::vector<StreamHandle> streams = {nullptr, world.NewStream(), world.NewStream()};
  std::vector<DevicePtr> live;
  for (int step = 0; step < 3000; ++step) {
    world.allocator->MarkStep(static_cast<uint64_t>(step));
    if (!live.empty() && random() % 2 == 0) {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 4 == 0) world.RecordStream(live.back(), streams[random() % 3]);
      ASSERT_TRUE(world.allocator->Free(live.back()).ok());
      live.pop_back();
    } else {
      const Bytes requested = 1 + random() % (random() % 2 == 0 ? 4 * kKiB : 12 * kMiB);
      const auto block = world.allocator->Allocate(streams[random() % 3], requested);
      if (block.ok()) live.push_back(*block);
    }
    if (random() % 500 == 0) world.allocator->EmptyCache();
  }
  VectorTraceReader reader(world.log.events);
  const CheckResult result = *CheckTrace(reader);
  EXPECT_EQ(result.faults, 0u) << (result.first_faults.empty()
                                       ? ""
                                       : absl::StrCat(result.first_faults[0].what, ": ",
                                                      result.first_faults[0].event));
  const DeviceAnalysis device = *AnalyzeDevice(reader);
  EXPECT_EQ(device.implausible_events, 0u);
  EXPECT_GT(device.Count(EventKind::kGranuleReleased), 0u);
  EXPECT_GT(device.Count(EventKind::kBlockFreePended), 0u);
  EXPECT_EQ(device.end_reserved_bytes, world.reserved());
  EXPECT_EQ(static_cast<int64_t>(device.peak_live_bytes),
            world.allocator->counters().live_bytes[0].peak);
}

// Private pools, graphs, captures, peers, faults: whatever random programs do.
TEST(CheckCoreTest, RandomProgramsHaveNoFault) {
  uint64_t waits = 0, private_pools = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    fuzz::Program program = fuzz::Generate(seed);
    program.setup.check_every = 1000;
    std::vector<EventLog> logs(program.setup.devices);
    fuzz::Replacements listeners;
    for (EventLog& log : logs) listeners.sinks.push_back(&log);
    const absl::Status status = fuzz::RunProgram(program, listeners);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t device = 0; device < logs.size(); ++device) {
      waits += logs[device].Count(EventKind::kDeviceWaited);
      private_pools += logs[device].Count(EventKind::kPrivatePoolReleased);
      VectorTraceReader reader(logs[device].events);
      reader.metadata_.device = static_cast<uint16_t>(device);
      const CheckResult result = *CheckTrace(reader);
      ASSERT_EQ(result.faults, 0u)
          << (result.first_faults.empty()
                  ? ""
                  : absl::StrCat(result.first_faults[0].what, ": ", result.first_faults[0].event));
    }
  }
  EXPECT_GT(waits, 0u);
  EXPECT_GT(private_pools, 0u);
}

}  // namespace
}  // namespace offcut
