#include "allocator/base/clock.h"

#include <time.h>

#include <atomic>

#include "gtest/gtest.h"

namespace offcut {
namespace {

TEST(ClockTest, ShowsTheTimeOfItsVirtualWorld) {
  std::atomic<uint64_t> now_ns{7};
  const Clock clock(&now_ns);
  EXPECT_EQ(clock.NowNs(), 7u);
  now_ns = 1'000;
  EXPECT_EQ(clock.NowNs(), 1'000u);
  EXPECT_EQ(clock.EpochUnixNs(), 0u);
}

TEST(ClockTest, RealTimeNeverGoesBack) {
  const Clock& clock = Clock::Real();
  uint64_t last_ns = clock.NowNs();
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t now_ns = clock.NowNs();
    ASSERT_GE(now_ns, last_ns);
    last_ns = now_ns;
  }
}

TEST(ClockTest, RealTimeRunsWithTheMonotonicClock) {
  const auto monotonic_ns = [] {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  };
  const Clock& clock = Clock::Real();
  // The readings are taken between two of the other clock, so its span bounds ours, however long
  // the scheduler keeps us in between.
  const uint64_t outer_start = monotonic_ns();
  const uint64_t start = clock.NowNs();
  const uint64_t inner_start = monotonic_ns();
  while (monotonic_ns() - inner_start < 5'000'000) {
  }
  const uint64_t inner_end = monotonic_ns();
  const uint64_t end = clock.NowNs();
  const uint64_t outer_end = monotonic_ns();
  EXPECT_GE(end - start, (inner_end - inner_start) * 99 / 100);
  EXPECT_LE(end - start, (outer_end - outer_start) * 101 / 100);
}

}  // namespace
}  // namespace offcut
