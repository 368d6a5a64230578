#include "allocator/driver/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DriverErrorTest, SaysWhatWasTriedAndCudasNameForIt) {
  const absl::Status error = DriverError(2, "cuMemCreate(2097152 bytes on device 0)");
  EXPECT_EQ(error.message(),
            "cuMemCreate(2097152 bytes on device 0): CUDA_ERROR_OUT_OF_MEMORY (2)");
}

TEST(DriverErrorTest, TheNumberTravelsWithTheStatus) {
  EXPECT_EQ(DriverErrorCode(DriverError(CudaResult::kIllegalAddress, "x")), 700);
  EXPECT_EQ(DriverErrorCode(DriverError(4711, "x")), 4711);
  EXPECT_EQ(DriverErrorCode(absl::OkStatus()), 0);
  EXPECT_EQ(DriverErrorCode(absl::InternalError("not CUDA's")), -1);
}

TEST(DriverErrorTest, SuccessIsOk) { EXPECT_TRUE(DriverError(CudaResult::kSuccess, "x").ok()); }

TEST(DriverErrorTest, CodesFollowTheConventions) {
  const auto code = [](int cu_result) { return DriverError(cu_result, "x").code(); };
  EXPECT_EQ(code(CudaResult::kOutOfMemory), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(CudaResult::kNotSupported), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(CudaResult::kInvalidValue), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(CudaResult::kInvalidHandle), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(CudaResult::kStreamCaptureUnsupported), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(CudaResult::kDeinitialized), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(CudaResult::kContextIsDestroyed), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(CudaResult::kNoDevice), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(CudaResult::kLaunchFailed), absl::StatusCode::kInternal);
}

TEST(DriverErrorTest, ANumberThatNobodyKnowsIsInternalAndShown) {
  const absl::Status error = DriverError(4711, "cuMemMap");
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(error.message()), AllOf(HasSubstr("cuMemMap"), HasSubstr("4711")));
}

TEST(DriverCallTest, EveryCallHasCudasName) {
  EXPECT_EQ(DriverCallName(static_cast<uint8_t>(DriverCall::kMap)), "cuMemMap");
  EXPECT_EQ(DriverCallName(static_cast<uint8_t>(DriverCall::kQueryEvent)), "cuEventQuery");
  EXPECT_EQ(DriverCallName(0), "");
  EXPECT_EQ(DriverCallName(255), "");
}

}  // namespace
}  // namespace offcut
