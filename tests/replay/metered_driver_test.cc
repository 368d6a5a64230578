#include "allocator/replay/metered_driver.h"

#include "allocator/replay/driver_costs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

constexpr Bytes kGranule = 2 * kMiB;

class MeteredDriverTest : public testing::Test {
 protected:
  MeteredDriverTest() { EXPECT_TRUE(driver_.Initialize().ok()); }

  // What `calls` costs by the meter.
  template <typename Calls>
  uint64_t CostOf(Calls&& calls) {
    const uint64_t before_ns = driver_.meter().ns;
    EXPECT_TRUE(calls().ok());
    return driver_.meter().ns - before_ns;
  }

  SimDriver sim_;
  MeteredDriver driver_{sim_};
};

TEST_F(MeteredDriverTest, RangesCostByTheHandlesInThem) {
  const DevicePtr range = *driver_.ReserveAddress(0, 8 * kGranule, 0, 0);
  const Bytes sizes[] = {kGranule, 4 * kGranule, kGranule};
  DevicePtr end = range;
  for (const Bytes size : sizes) {
    const PhysicalHandle handle = *driver_.CreateMemory(0, size, {});
    EXPECT_EQ(CostOf([&] { return driver_.Map(end, size, handle); }), kMapNs);
    end += size;
  }
  EXPECT_EQ(CostOf([&] { return driver_.SetAccess(range, end - range, 0); }), 3 * kSetAccessNs);
  EXPECT_EQ(CostOf([&] { return driver_.Unmap(range, 5 * kGranule); }), 2 * kUnmapNs);
  EXPECT_EQ(CostOf([&] { return driver_.Unmap(range + 5 * kGranule, kGranule); }), kUnmapNs);
}

TEST_F(MeteredDriverTest, CountsCallsThatFailToo) {
  const uint64_t before = driver_.meter().calls;
  const DevicePtr range = *driver_.ReserveAddress(0, 8 * kGranule, 0, 0);
  EXPECT_FALSE(driver_.FreeAddress(range, 4 * kGranule).ok());
  EXPECT_TRUE(driver_.FreeAddress(range, 8 * kGranule).ok());
  EXPECT_EQ(driver_.meter().calls - before, 3);
}

TEST_F(MeteredDriverTest, AWaitCountsOnlyIfTheHostStalls) {
  const EventHandle event = *driver_.CreateEvent(0);
  EXPECT_TRUE(driver_.SynchronizeDevice(0).ok());
  EXPECT_EQ(driver_.meter().waits, 0);
  ASSERT_TRUE(sim_.model().streams().Submit(0, nullptr, 500).ok());
  ASSERT_TRUE(driver_.RecordEvent(0, event, nullptr).ok());
  EXPECT_TRUE(driver_.SynchronizeEvent(0, event).ok());
  EXPECT_TRUE(driver_.SynchronizeEvent(0, event).ok());
  EXPECT_EQ(driver_.meter().waits, 1);
  EXPECT_EQ(driver_.meter().wait_ns, 500);
}

TEST_F(MeteredDriverTest, AWaitForTheDeviceIsOneForWorkSubmittedJustNow) {
  sim_.model().streams().SetLagNs(300);
  sim_.AdvanceNs(1000);
  EXPECT_TRUE(driver_.SynchronizeDevice(0).ok());
  EXPECT_EQ(driver_.meter().waits, 1);
  EXPECT_EQ(driver_.meter().wait_ns, 300);
  EXPECT_EQ(sim_.model().clock().NowNs(), 1300);
}

TEST_F(MeteredDriverTest, SegmentsLieWhereTheRecordedOnesLay) {
  const RecordedSegment recorded[] = {{.address = 0x7fe3ca000000, .bytes = 20 * kMiB},
                                      {.address = 0x7fe3c8000000, .bytes = 2 * kMiB}};
  MeteredDriver driver(sim_, recorded);
  EXPECT_EQ(*driver.AllocateMemory(0, 20 * kMiB), recorded[0].address);
  EXPECT_EQ(*driver.AllocateMemory(0, 2 * kMiB), recorded[1].address);
  EXPECT_TRUE(driver.AllocateMemory(0, 512 * kMiB).ok());
  EXPECT_THAT(driver.allocations(), testing::ElementsAre(20 * kMiB, 2 * kMiB, 512 * kMiB));
  EXPECT_EQ(driver.meter().growth_ns, CudaMallocCostNs(20 * kMiB) + CudaMallocCostNs(2 * kMiB) +
                                          CudaMallocCostNs(512 * kMiB));
  EXPECT_EQ(CudaMallocCostNs(2 * kMiB), 32'500);
  EXPECT_EQ(CudaMallocCostNs(512 * kMiB), 111'500);
}

TEST_F(MeteredDriverTest, GivingASegmentBackWaitsForTheDevice) {
  const DevicePtr segment = *driver_.AllocateMemory(0, 2 * kMiB);
  sim_.model().streams().SetLagNs(300);
  EXPECT_TRUE(driver_.FreeMemory(0, segment).ok());
  EXPECT_EQ(driver_.meter().waits, 1);
  EXPECT_EQ(driver_.meter().wait_ns, 300);
}

}  // namespace
}  // namespace offcut
