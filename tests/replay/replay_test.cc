#include "allocator/replay/replay.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "allocator/events/event.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

class Log final : public EventSink {
 public:
  void OnEvent(const Event& event) override { events.push_back(event); }

  std::vector<Event> Of(EventKind kind) const {
    std::vector<Event> found;
    for (const Event& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  std::vector<uint64_t> TimesOf(EventKind kind) const {
    std::vector<uint64_t> times;
    for (const Event& event : Of(kind)) times.push_back(event.time_ns);
    return times;
  }

  std::vector<Event> events;
};

// Writes programs in a line per operation.
class Script {
 public:
  Script& Allocate(uint64_t time_ns, DevicePtr address, Bytes bytes, uint64_t stream = 0) {
    EXPECT_TRUE(builder_.Allocate(time_ns, address, bytes, stream, stream == 0).ok());
    return *this;
  }
  Script& Free(uint64_t time_ns, DevicePtr address) {
    EXPECT_TRUE(builder_.Free(time_ns, address).ok());
    return *this;
  }
  Script& Finish(uint64_t time_ns, DevicePtr address) {
    EXPECT_TRUE(builder_.FinishFree(time_ns, address).ok());
    return *this;
  }
  Script& FreeAtOnce(uint64_t time_ns, DevicePtr address) {
    return Free(time_ns, address).Finish(time_ns, address);
  }
  Program Done() { return std::move(builder_).Finish(); }

 private:
  ProgramBuilder builder_;
};

ReplayResult Play(const Program& program, ReplayOptions options = {}, Log* log = nullptr) {
  if (log != nullptr) options.sinks = {log};
  absl::StatusOr<ReplayResult> result = Replay(program, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : ReplayResult{};
}

TEST(ReplayTest, CountsWhatWasPlayed) {
  const ReplayResult result = Play(Script()
                                       .Allocate(0, 1, 3 * kMiB)
                                       .Allocate(1000, 2, 5 * kMiB)
                                       .FreeAtOnce(2000, 1)
                                       .Allocate(3000, 1, kMiB)
                                       .Done());
  EXPECT_TRUE(result.completed());
  EXPECT_EQ(result.peak_live_bytes, 8 * kMiB);
  EXPECT_GE(result.peak_reserved_bytes, 8 * kMiB);
  EXPECT_EQ(result.live_over_reserved(), static_cast<double>(result.peak_live_bytes) /
                                             static_cast<double>(result.peak_reserved_bytes));
  EXPECT_EQ(result.whole.events, 4);
  EXPECT_EQ(result.counters.allocations[0].current, 2);
  EXPECT_GT(result.whole.driver_calls, 0);
  EXPECT_GT(result.whole.driver_ns, 0);
  EXPECT_GE(result.address_bytes_peak, result.peak_reserved_bytes);
}

TEST(ReplayTest, AnEmptyProgramIsPlayed) {
  const ReplayResult result = Play(Script().Done());
  EXPECT_TRUE(result.completed());
  EXPECT_EQ(result.whole.events, 0);
  EXPECT_EQ(result.live_over_reserved(), 0);
}

TEST(ReplayTest, TheClockShowsTheProgramsTime) {
  Log log;
  Play(Script().Allocate(0, 1, 100).Allocate(5 * kMs, 2, 100).FreeAtOnce(7 * kMs, 1).Done(), {},
       &log);
  EXPECT_THAT(log.TimesOf(EventKind::kBlockAllocated), ElementsAre(0, 5 * kMs));
  EXPECT_THAT(log.TimesOf(EventKind::kBlockFreed), ElementsAre(7 * kMs));
}

// A block that another stream uses until 30 ms, and a request every 10 ms.
Program LateFree() {
  return Script()
      .Allocate(0, 1, 64 * kMiB, 1)
      .Free(5 * kMs, 1)
      .Allocate(10 * kMs, 2, 64 * kMiB, 1)
      .Allocate(20 * kMs, 3, kMiB, 1)
      .Finish(30 * kMs, 1)
      .Allocate(30 * kMs, 4, 64 * kMiB, 1)
      .Done();
}

TEST(ReplayTest, ABlockIsPendingUntilTheRecordedTime) {
  Log log;
  const ReplayResult result = Play(LateFree(), {}, &log);
  EXPECT_THAT(log.TimesOf(EventKind::kBlockFreePended), ElementsAre(5 * kMs));
  EXPECT_THAT(log.TimesOf(EventKind::kPendingFreeFinished), ElementsAre(30 * kMs));
  const std::vector<Event> allocated = log.Of(EventKind::kBlockAllocated);
  ASSERT_EQ(allocated.size(), 4);
  EXPECT_NE(allocated[1].address, allocated[0].address);
  EXPECT_EQ(allocated[3].address, allocated[0].address);
  EXPECT_EQ(result.peak_live_bytes, 129 * kMiB);
  EXPECT_EQ(result.counters.active_requested_bytes[0].peak, int64_t{129 * kMiB});
}

TEST(ReplayTest, ADeviceThatLagsKeepsABlockPendingForAsLongAtLeast) {
  Log log;
  // The recorded end is 25 ms behind the free.
  Play(LateFree(), {.lag_ns = 24 * kMs}, &log);
  EXPECT_THAT(log.TimesOf(EventKind::kPendingFreeFinished), ElementsAre(30 * kMs));
  Log later;
  Play(LateFree(), {.lag_ns = 26 * kMs}, &later);
  EXPECT_THAT(later.TimesOf(EventKind::kPendingFreeFinished), ElementsAre(31 * kMs))
      << "the request at 30 ms waits for it";
}

TEST(ReplayTest, ARequestThatCannotBeServedEndsTheReplay) {
  const Program program = Script()
                              .Allocate(0, 1, 30 * kMiB)
                              .FreeAtOnce(1, 1)
                              .Allocate(2, 1, 40 * kMiB)
                              .Allocate(3, 2, 70 * kMiB)
                              .Allocate(4, 3, kMiB)
                              .Done();
  const ReplayResult result = Play(program, {.cap = 100 * kMiB});
  EXPECT_FALSE(result.completed());
  EXPECT_EQ(result.failed_at_event, 3);
  EXPECT_EQ(result.whole.events, 3);
  EXPECT_THAT(result.failure, HasSubstr("70.00 MiB"));
  EXPECT_LE(result.peak_reserved_bytes, 100 * kMiB);
  EXPECT_TRUE(Play(program, {.cap = 200 * kMiB}).completed());
}

TEST(ReplayTest, TheLowestOfAllLimitsHolds) {
  const Program program = Script().Allocate(0, 1, 300 * kMiB).Done();
  const auto completes = [&program](absl::string_view conf, Bytes cap) {
    ReplayOptions options = {.config = *Config::Parse({.offcut_conf = std::string(conf)}),
                             .cap = cap};
    options.machine.memory_bytes = kGiB;
    options.machine.outside_bytes = 0;
    return Play(program, options).completed();
  };
  EXPECT_TRUE(completes("", kNoLimit));
  EXPECT_FALSE(completes("memory_limit_mb:200", kNoLimit));
  EXPECT_FALSE(completes("per_process_memory_fraction:0.2", kNoLimit));
  EXPECT_FALSE(completes("memory_limit_mb:400", 200 * kMiB));
  EXPECT_TRUE(completes("memory_limit_mb:400,per_process_memory_fraction:0.5", 310 * kMiB));
}

TEST(ReplayTest, ALargerRequestThanAnyDeviceHasFails) {
  const ReplayResult result = Play(Script().Allocate(0, 1, ProgramBuilder::kBytesMax).Done());
  EXPECT_EQ(result.failed_at_event, 0);
}

TEST(ReplayTest, TheSecondHalfIsToldApart) {
  const ReplayResult result = Play(Script()
                                       .Allocate(0, 1, 100 * kMiB)
                                       .Allocate(49 * kMs, 2, kMiB)
                                       .FreeAtOnce(50 * kMs, 2)
                                       .Allocate(100 * kMs, 3, 200 * kMiB)
                                       .Done());
  EXPECT_EQ(result.whole.events, 4);
  EXPECT_EQ(result.second_half.events, 2);
  EXPECT_GT(result.second_half.growth_ns, 0);
  EXPECT_LT(result.second_half.growth_ns, result.whole.growth_ns);
  EXPECT_EQ(result.span_ns, 100 * kMs);
}

TEST(ReplayTest, IsDeterministic) {
  const Program program = LateFree();
  Log one, other;
  Play(program, {.lag_ns = 7 * kMs}, &one);
  Play(program, {.lag_ns = 7 * kMs}, &other);
  EXPECT_EQ(one.events, other.events);
}

TEST(ReplayTest, SegmentsAreHeldAgainstTheRecordedOnes) {
  Program program;
  program.segments = {{.address = 1, .bytes = 20 * kMiB}, {.address = 2, .bytes = 2 * kMiB}};
  ReplayResult result = {.peak_reserved_bytes = 22 * kMiB, .segments = {20 * kMiB, 2 * kMiB}};
  EXPECT_TRUE(CheckSegments(program, result).ok());
  result.peak_reserved_bytes = 20 * kMiB;
  EXPECT_THAT(std::string(CheckSegments(program, result).message()), HasSubstr("add up to"));
  result.segments = {20 * kMiB, 4 * kMiB};
  EXPECT_EQ(CheckSegments(program, result).message(),
            "segment 1: recorded 2097152 bytes, replayed 4194304 bytes");
  result.segments = {20 * kMiB};
  EXPECT_EQ(CheckSegments(program, result).message(),
            "segment 1: recorded 2097152 bytes, replayed not there, of 1");
  result.segments = {20 * kMiB, 2 * kMiB, 2 * kMiB};
  EXPECT_EQ(CheckSegments(program, result).message(),
            "segment 2: recorded not there, of 2, replayed 2097152 bytes");
}

TEST(ReplayTest, PlaysIntoTheDriversPools) {
  const absl::StatusOr<ReplayResult> result =
      Replay(LateFree(), {.config = *Config::Parse({.offcut_conf = "backend:cudaMallocAsync"})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->completed()) << result->failure;
  EXPECT_GT(result->peak_reserved_bytes, result->peak_live_bytes);
  EXPECT_EQ(result->whole.moves, 0u);
}

}  // namespace
}  // namespace offcut
