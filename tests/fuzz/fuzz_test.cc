// Random programs, as many as every run of the tests can afford, or $OFFCUT_FUZZ_OPERATIONS of each
// kind, in $OFFCUT_FUZZ_JOBS processes.

#include "tests/fuzz/fuzzer.h"

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"

namespace offcut::fuzz {
namespace {

// The sanitizers make everything several times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kOperations = 20'000;
#else
constexpr uint64_t kOperations = 200'000;
#endif

uint64_t FromEnvironment(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void ExpectNoFailure(FuzzOptions options) {
  options.operations = FromEnvironment("OFFCUT_FUZZ_OPERATIONS", kOperations);
  options.jobs = static_cast<int>(FromEnvironment("OFFCUT_FUZZ_JOBS", 1));
  const FuzzReport report = Fuzz(options);
  std::printf("%.0f operations a second\n",
              static_cast<double>(report.operations) / report.seconds);
  EXPECT_GE(report.operations, options.operations);
  EXPECT_EQ(report.failure, "");
}

TEST(FuzzTest, ProgramsOfOneThread) { ExpectNoFailure({}); }

TEST(FuzzTest, ProgramsOfSeveralThreads) { ExpectNoFailure({.threads = 4}); }

}  // namespace
}  // namespace offcut::fuzz
