// The n-th driver call fails, for every n: nothing crashes, nothing leaks, the books stay true.

#include <tuple>

#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

// Grows, reuses, records streams, releases, and fails once for lack of memory.
void RunScenario(World& world) {
  const StreamHandle side = world.NewStream();
  std::vector<DevicePtr> blocks;
  const auto allocate = [&](Bytes requested, StreamHandle stream) {
    const absl::StatusOr<DevicePtr> block = world.allocator->Allocate(stream, requested);
    world.Check();
    if (block.ok()) blocks.push_back(*block);
  };
  allocate(5 * kMiB, nullptr);
  allocate(700, nullptr);
  allocate(200 * kKiB, side);
  allocate(9 * kMiB, side);
  for (DevicePtr block : blocks) {
    world.allocator->RecordStream(block, side).IgnoreError();
    world.Check();
  }
  for (size_t i = 0; i < blocks.size(); i += 2) world.Free(blocks[i]);
  world.sim.AdvanceNs(10'000'000);
  allocate(7 * kMiB, nullptr);
  allocate(100 * kMiB, nullptr);
  world.allocator->EmptyCache();
  world.Check();
  allocate(20 * kMiB, nullptr);
  for (size_t i = 1; i < blocks.size(); i += 2) world.Free(blocks[i]);
  for (size_t i = 4; i < blocks.size(); i += 2) world.Free(blocks[i]);
}

World::Options Machine(const char* conf) {
  return {.memory_bytes = 64 * kMiB,
          .lag_ns = 1'000'000,
          .config = *Config::Parse({.offcut_conf = conf})};
}

class DriverFaultTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(DriverFaultTest, EveryCallMayFailOnce) {
  const auto [conf, cu_result] = GetParam();
  uint64_t calls = 0;
  {
    World world(Machine(conf));
    const uint64_t before = world.driver.CallCount();
    RunScenario(world);
    calls = world.driver.CallCount() - before;
  }
  ASSERT_GT(calls, 20u);
  for (uint64_t nth = 1; nth <= calls; ++nth) {
    SCOPED_TRACE(nth);
    World world(Machine(conf));
    world.driver.Inject({.nth = nth, .cu_result = cu_result});
    RunScenario(world);
    EXPECT_EQ(world.driver.FaultCount(), 1u);
    world.driver.ClearFaults();
    world.allocator->EmptyCache();
    world.Check();
    // The books may keep a granule whose release the driver refused, and then so does the driver.
    const Bytes kept = world.reserved();
    EXPECT_LE(kept, 2 * kMiB);
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DriverFaultTest,
                         ::testing::Combine(::testing::Values("", "expandable_segments:False"),
                                            ::testing::Values(CudaResult::kOutOfMemory,
                                                              CudaResult::kUnknown)));

}  // namespace
}  // namespace offcut
