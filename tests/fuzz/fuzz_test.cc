// Random programs, as many as every run of the tests can afford; allocator_fuzz plays more.

#include "tests/fuzz/fuzzer.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace offcut::fuzz {
namespace {

// The sanitizers make everything several times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kOperations = 20'000;
#else
constexpr uint64_t kOperations = 200'000;
#endif

void ExpectNoFailure(const FuzzOptions& options) {
  const FuzzReport report = Fuzz(options);
  std::printf("%.0f operations a second\n",
              static_cast<double>(report.operations) / report.seconds);
  EXPECT_GE(report.operations, options.operations);
  EXPECT_EQ(report.failure, "");
}

TEST(FuzzTest, ProgramsOfOneThread) { ExpectNoFailure({.operations = kOperations}); }

TEST(FuzzTest, ProgramsOfSeveralThreads) {
  ExpectNoFailure({.operations = kOperations, .threads = 4});
}

}  // namespace
}  // namespace offcut::fuzz
