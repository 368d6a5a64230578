// What is not simulated says so, by name, and fails.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/cuda_abi/cuda_abi.h"

namespace offcut::cuda_abi_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Listed {
  const char* behaviour;
  const char* library;
  const char* name;
};
constexpr Listed kListed[] = {
#define CUDA_FUNCTION(behaviour, library, name) {#behaviour, #library, #name},
#include "allocator/sim/cuda_abi/functions_13.def"
#undef CUDA_FUNCTION
};

TEST(Refusal, EveryFunctionOfTheListIsExported) {
  for (const Listed& function : kListed) EXPECT_NE(Find(function.name), nullptr);
}

TEST(Refusal, EveryRefusalNamesItsFunctionAndFails) {
  for (const Listed& function : kListed) {
    if (function.behaviour != std::string("Refuses")) continue;
    testing::internal::CaptureStderr();
    const long result = reinterpret_cast<long (*)()>(Find(function.name))();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(function.name));
    EXPECT_NE(result, 0) << function.name;
  }
  CALL(cudaGetLastError)();
}

cudaError_t Share() {
  cudaIpcMemHandle_t handle;
  return CALL(cudaIpcGetMemHandle)(&handle, nullptr);
}

TEST(Refusal, IsSaidOnce) {
  Share();
  EXPECT_THAT(StandardErrorOf([] { EXPECT_EQ(Share(), cudaErrorNotSupported); }), IsEmpty());
  EXPECT_EQ(CALL(cudaGetLastError)(), cudaErrorNotSupported);
}

TEST(Refusal, OfAWholeLibraryReachesItsErrorText) {
  for (const char* name : {"cudnnGetErrorString", "ncclGetErrorString", "cusparseGetErrorString"}) {
    EXPECT_THAT(reinterpret_cast<const char* (*)(int)>(Find(name))(1),
                HasSubstr("is not simulated"));
  }
}

}  // namespace
}  // namespace offcut::cuda_abi_test
