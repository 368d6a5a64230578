// What SimDriver has beyond the contract: its script, its counts, its strictness.

#include "allocator/sim/sim_driver.h"

#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

TEST(SimDriverTest, RefusesEverythingBeforeInitialize) {
  SimDriver driver;
  EXPECT_EQ(driver.CreateMemory(0, sim::kGranularity).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(driver.Initialize().ok());
  EXPECT_TRUE(driver.CreateMemory(0, sim::kGranularity).ok());
}

TEST(SimDriverTest, CountsCalls) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(driver.GetMemoryInfo(0).ok());
  EXPECT_FALSE(driver.ReleaseMemory(99).ok());
  EXPECT_EQ(driver.CallCount(DriverCall::kGetMemoryInfo), 3u);
  EXPECT_EQ(driver.CallCount(DriverCall::kReleaseMemory), 1u) << "failed calls count too";
  EXPECT_EQ(driver.CallCount(), 5u);
}

TEST(SimDriverTest, ItsClockShowsVirtualTime) {
  SimDriver driver;
  const Clock clock = driver.clock();
  EXPECT_EQ(clock.NowNs(), 0u);
  driver.AdvanceNs(1234);
  EXPECT_EQ(clock.NowNs(), 1234u);
  EXPECT_EQ(clock.EpochUnixNs(), 0u);
}

TEST(SimDriverTest, TheNextReservationLandsWhereTheScriptSays) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  const DevicePtr address = 0x2100'0000'0000;
  driver.FixNextReservation(address);
  EXPECT_EQ(*driver.ReserveAddress(0, sim::kGranularity, 0, 0), address);
  EXPECT_NE(*driver.ReserveAddress(0, sim::kGranularity, 0, 0), address + sim::kGranularity);
}

TEST(SimDriverTest, CapacityAndOtherUsersAreScripted) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  ASSERT_TRUE(driver.model().memory().SetTotalBytes(0, 100 * kMiB).ok());
  ASSERT_TRUE(driver.model().memory().SetOutsideBytes(0, 90 * kMiB).ok());
  EXPECT_EQ(driver.GetMemoryInfo(0)->free_bytes, 10 * kMiB);
  EXPECT_EQ(driver.CreateMemory(0, 12 * kMiB).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(driver.CreateMemory(0, 10 * kMiB).ok());
}

TEST(SimDriverTest, TheCurrentDeviceIsPerThread) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  EXPECT_EQ(driver.CurrentDevice().status().code(), absl::StatusCode::kFailedPrecondition);
  SimDriver::SetCurrentDevice(0);
  EXPECT_EQ(*driver.CurrentDevice(), 0);
  SimDriver::SetCurrentDevice(-1);
}

}  // namespace
}  // namespace offcut
