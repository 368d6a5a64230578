// Random programs over one device, checked after every step against the four witnesses of World.

#include <random>

#include "allocator/core/audit.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

class RandomProgramTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomProgramTest, KeepsEveryInvariant) {
  const uint64_t seed = GetParam();
  std::mt19937_64 random(seed);
  World world({.memory_bytes = 96 * kMiB, .lag_ns = (seed % 3) * 2'000'000});
  const std::vector<StreamHandle> streams = {nullptr, world.NewStream(), world.NewStream()};
  std::vector<DevicePtr> live;
  const auto any_stream = [&] { return streams[random() % streams.size()]; };
  const auto any_size = [&] {
    switch (random() % 4) {
      case 0:
        return 1 + random() % (2 * kKiB);
      case 1:
        return 1 + random() % (64 * kKiB);
      case 2:
        return 1 + random() % (2 * kMiB);
      default:
        return 1 + random() % (12 * kMiB);
    }
  };
  for (int step = 0; step < 1500 && !HasFailure(); ++step) {
    SCOPED_TRACE(step);
    switch (random() % 10) {
      case 0:
        if (!live.empty()) world.RecordStream(live[random() % live.size()], any_stream());
        break;
      case 1:
        world.sim.AdvanceNs(random() % 1'000'000);
        break;
      case 2:
        if (random() % 20 == 0) world.allocator->EmptyCache();
        break;
      case 3:
      case 4:
      case 5:
      case 6:
        if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          if (random() % 2 == 0) world.Launch(any_stream(), live.back(), random() % 500'000);
          // Work on a stream that the allocator was not told of is the program's mistake, so it is
          // told of all.
          for (StreamHandle stream : streams) world.RecordStream(live.back(), stream);
          world.Free(live.back());
          live.pop_back();
        }
        break;
      default: {
        const auto block = world.allocator->Allocate(any_stream(), any_size());
        if (block.ok()) {
          live.push_back(*block);
        } else {
          ASSERT_TRUE(absl::IsResourceExhausted(block.status())) << block.status();
        }
      }
    }
    world.Check();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramTest, ::testing::Range<uint64_t>(0, 6));

}  // namespace
}  // namespace offcut
