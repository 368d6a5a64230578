// What SimDriver has beyond the contract: its script, its counts, its strictness.

#include "allocator/sim/sim_driver.h"

#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

TEST(SimDriverTest, RefusesEverythingBeforeInitialize) {
  SimDriver driver;
  EXPECT_EQ(driver.CreateMemory(0, sim::kGranularity, {}).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(driver.Initialize().ok());
  EXPECT_TRUE(driver.CreateMemory(0, sim::kGranularity, {}).ok());
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

TEST(SimDriverTest, TheNextAllocationLandsWhereTheScriptSays) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  const DevicePtr last = sim::MemoryModel::kAddressEnd - sim::kGranularity;
  for (const DevicePtr address : {DevicePtr{0x7f31'c400'0000}, sim::MemoryModel::kAddressMin, last,
                                  DevicePtr{0x5555'0020'0000}}) {
    driver.FixNextAllocation(address);
    EXPECT_EQ(*driver.AllocateMemory(0, sim::kGranularity), address);
    const DevicePtr next = *driver.AllocateMemory(0, sim::kGranularity);
    EXPECT_NE(next, address + sim::kGranularity) << "fixed once only";
    driver.FixNextAllocation(address);
    EXPECT_NE(*driver.AllocateMemory(0, sim::kGranularity), address) << "taken";
    EXPECT_TRUE(driver.FreeMemory(0, address).ok());
    driver.FixNextAllocation(address);
    EXPECT_EQ(*driver.AllocateMemory(0, sim::kGranularity), address) << "free again";
  }
}

TEST(SimDriverTest, WhatFlagsTheDeviceRefusesIsScripted) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  sim::MemoryModel& memory = driver.model().memory();
  const MemoryFlags rdma{.rdma = true}, fd{.export_fd = true}, fabric{.export_fabric = true};
  const MemoryFlags rdma_fd{.rdma = true, .export_fd = true};
  EXPECT_EQ(*GrantedMemoryFlags(driver, 0), rdma_fd) << "as an H200";
  EXPECT_EQ(DriverErrorCode(driver.CreateMemory(0, sim::kGranularity, fabric).status()),
            CudaResult::kNotPermitted);
  memory.SetMemoryFlags(rdma_fd, {rdma_fd});
  EXPECT_EQ(*GrantedMemoryFlags(driver, 0), fd);
  memory.SetMemoryFlags(rdma_fd, {rdma_fd, fd});
  EXPECT_EQ(*GrantedMemoryFlags(driver, 0), rdma);
  memory.SetMemoryFlags(fabric, {});
  EXPECT_EQ(*GrantedMemoryFlags(driver, 0), fabric);
  EXPECT_EQ(DriverErrorCode(driver.CreateMemory(0, sim::kGranularity, rdma).status()),
            CudaResult::kNotPermitted)
      << "not claimed";
  memory.SetMemoryFlags({}, {});
  EXPECT_EQ(*GrantedMemoryFlags(driver, 0), MemoryFlags{});
  EXPECT_EQ(memory.Census().handles, 0u);
}

TEST(SimDriverTest, CapacityAndOtherUsersAreScripted) {
  SimDriver driver;
  ASSERT_TRUE(driver.Initialize().ok());
  ASSERT_TRUE(driver.model().memory().SetTotalBytes(0, 100 * kMiB).ok());
  ASSERT_TRUE(driver.model().memory().SetOutsideBytes(0, 90 * kMiB).ok());
  EXPECT_EQ(driver.GetMemoryInfo(0)->free_bytes, 10 * kMiB);
  EXPECT_EQ(driver.CreateMemory(0, 12 * kMiB, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(driver.CreateMemory(0, 10 * kMiB, {}).ok());
}

}  // namespace
}  // namespace offcut
