#include "allocator/driver/faulty_driver.h"

#include <gtest/gtest.h>

#include "allocator/sim/sim_driver.h"

namespace offcut {
namespace {

class FaultyDriverTest : public testing::Test {
 protected:
  FaultyDriverTest() { EXPECT_TRUE(sim_.Initialize().ok()); }

  bool Creates() {
    const auto handle = faulty_.CreateMemory(0, sim::kGranularity, {});
    return handle.ok();
  }

  SimDriver sim_;
  FaultyDriver faulty_{&sim_};
};

TEST_F(FaultyDriverTest, ForwardsWhatItIsNotToldToFail) {
  const auto address = faulty_.ReserveAddress(0, 2 * sim::kGranularity, 0, 0);
  ASSERT_TRUE(address.ok());
  const auto handle = faulty_.CreateMemory(0, sim::kGranularity, {});
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(faulty_.Map(*address, sim::kGranularity, *handle).ok());
  EXPECT_TRUE(faulty_.SetAccess(*address, sim::kGranularity, 0).ok());
  EXPECT_EQ(sim_.model().memory().Census().mapped_bytes, sim::kGranularity);
  EXPECT_EQ(faulty_.CallCount(), 4u);
  EXPECT_EQ(faulty_.FaultCount(), 0u);
}

TEST_F(FaultyDriverTest, FailsTheNthCallOfAKindWithTheResultAsked) {
  faulty_.Inject({.call = DriverCall::kCreateMemory, .nth = 3, .cu_result = CudaResult::kUnknown});
  EXPECT_TRUE(Creates());
  EXPECT_TRUE(faulty_.GetMemoryInfo(0).ok());
  EXPECT_TRUE(Creates());
  const auto third = faulty_.CreateMemory(0, sim::kGranularity, {});
  EXPECT_EQ(DriverErrorCode(third.status()), CudaResult::kUnknown);
  EXPECT_TRUE(Creates());
  EXPECT_EQ(faulty_.FaultCount(), 1u);
}

TEST_F(FaultyDriverTest, FailsTheNthCallOfAnyKind) {
  faulty_.Inject({.nth = 2});
  EXPECT_TRUE(Creates());
  EXPECT_EQ(faulty_.GetMemoryInfo(0).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Creates());
}

TEST_F(FaultyDriverTest, AFailedCallNeverReachesTheOtherDriver) {
  faulty_.Inject({.call = DriverCall::kCreateMemory});
  EXPECT_FALSE(Creates());
  EXPECT_EQ(sim_.CallCount(DriverCall::kCreateMemory), 0u);
  EXPECT_EQ(faulty_.CallCount(DriverCall::kCreateMemory), 1u);
}

TEST_F(FaultyDriverTest, FailsSeveralInARow) {
  faulty_.Inject({.call = DriverCall::kCreateMemory, .times = 2});
  EXPECT_FALSE(Creates());
  EXPECT_FALSE(Creates());
  EXPECT_TRUE(Creates());
}

TEST_F(FaultyDriverTest, FaultsAreCleared) {
  faulty_.Inject({.times = 100});
  EXPECT_FALSE(Creates());
  faulty_.ClearFaults();
  EXPECT_TRUE(Creates());
}

}  // namespace
}  // namespace offcut
