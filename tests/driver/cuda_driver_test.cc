// What CudaDriver says where there is no CUDA. What it does where there is: tests/contract.

#include "allocator/driver/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaDriverTest, WithoutALibraryItSaysWhatIsMissingAndWhatToDo) {
  CudaDriver driver;
  const absl::Status initialized = driver.Initialize();
  if (initialized.ok()) GTEST_SKIP() << "this machine has a CUDA driver";
  EXPECT_EQ(initialized.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(initialized.message()),
              AllOf(HasSubstr("libcuda.so.1"), HasSubstr("install the NVIDIA driver"),
                    HasSubstr("liboffcut_cudasim.so")));
  EXPECT_EQ(driver.Initialize(), initialized) << "the first outcome is final";
}

TEST(CudaDriverTest, RefusesEverythingBeforeInitialize) {
  CudaDriver driver;
  EXPECT_EQ(driver.DeviceCount().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.GetProperties(0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.CreateMemory(0, 2 * kMiB, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.ReleaseMemory(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.Unmap(2 * kMiB, 2 * kMiB).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(driver.QueryEvent(0, nullptr).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace offcut
