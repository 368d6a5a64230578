#include "allocator/core/memory_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

TEST(MemoryReportTest, SplitsFreeMemoryIntoOwnAndOthers) {
  World world({.memory_bytes = 64 * kMiB});
  const StreamHandle side = world.NewStream();
  const DevicePtr own = world.Allocate(8 * kMiB);
  world.Allocate(3 * kMiB, side);
  world.Free(own);
  MemoryReport report;
  report.AddState(world.allocator->View(), /*own_pool=*/0, 20 * kMiB);
  EXPECT_EQ(report.accounting.idle_bytes, 8 * kMiB);
  EXPECT_EQ(report.own_idle_bytes, 8 * kMiB);
  EXPECT_EQ(report.accounting.pinned_bytes, kMiB);
  EXPECT_EQ(report.own_pinned_bytes, 0u);
  EXPECT_EQ(report.own_largest_free, 8 * kMiB);
  EXPECT_EQ(report.other_largest_free, kMiB);
  EXPECT_THAT(report.ToText(), HasSubstr("this stream's pool: 0 B, other streams': 1.00 MiB"));
}

TEST(MemoryReportTest, ShowsTheSumAndTheCause) {
  World world({.memory_bytes = 64 * kMiB});
  world.Allocate(30 * kMiB);
  const std::string text(world.TryAllocate(40 * kMiB).message());
  EXPECT_THAT(text, HasSubstr("cause: "));
  EXPECT_THAT(text, HasSubstr("reserved        30.00 MiB"));
  EXPECT_THAT(text, HasSubstr("device: 30.00 MiB used of 64.00 MiB"));
}

}  // namespace
}  // namespace offcut
