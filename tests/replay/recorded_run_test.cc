#include "allocator/replay/recorded_run.h"

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/replay/load_program.h"
#include "allocator/replay/replay.h"
#include "allocator/sim/sim_driver.h"
#include "allocator/trace/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/vector_trace_reader.h"
#include "tests/trace/temporary_directory.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordedRunTest : public testing::Test {
 protected:
  // Records a random run with several streams and returns its counters at the end.
  Counters RecordRandomRun(int operations, uint32_t seed) {
    SimDriver driver;
    const Clock clock = driver.clock();
    AddressMap address_map;
    std::unique_ptr<Recorder> recorder = *Recorder::Start(directory_.File("runs"), "[]", clock);
    path_ = recorder->directory();
    EventSink* const sink = *recorder->SinkFor(0, "NVIDIA H200", 140 * kGiB);
    std::unique_ptr<DeviceAllocator> allocator =
        *DeviceAllocator::Create(driver, 0, clock, address_map, Config(), {sink});
    // Work runs on `users` alone, which own no blocks: no recording tells of work on a stream, but
    // only of when a block was done with, and work on a block's own stream keeps granules from
    // moving.
    std::vector<StreamHandle> streams = {nullptr};
    std::vector<StreamHandle> users;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(*driver.model().streams().CreateStream(0, {.non_blocking = true}));
      users.push_back(*driver.model().streams().CreateStream(0, {.non_blocking = true}));
    }
    std::mt19937 random(seed);
    std::vector<DevicePtr> live;
    for (int i = 0; i < operations; ++i) {
      driver.AdvanceNs(random() % 3000);
      if (i == operations / 2) allocator->EmptyCache();
      if (live.empty() || random() % 100 < 52) {
        const Bytes bytes = random() % 2 == 0 ? 1 + random() % 5000 : 1 + random() % (20 * kMiB);
        live.push_back(*allocator->Allocate(streams[random() % streams.size()], bytes));
        continue;
      }
      std::swap(live[random() % live.size()], live.back());
      if (random() % 4 == 0) {
        const StreamHandle user = users[random() % users.size()];
        EXPECT_TRUE(allocator->RecordStream(live.back(), 0, user).ok());
        EXPECT_TRUE(driver.model().streams().Submit(0, user, random() % 100'000).ok());
      }
      EXPECT_TRUE(allocator->Free(live.back()).ok());
      live.pop_back();
    }
    Counters counters = allocator->counters();
    allocator->RemoveSinks();
    recorder->Flush();
    return counters;
  }

  // Records `events`, as they are, on each of `devices` devices.
  void Record(const std::vector<Event>& events, int devices = 1) {
    std::unique_ptr<Recorder> recorder =
        *Recorder::Start(directory_.File("runs"), "[]", Clock::Real());
    path_ = recorder->directory();
    for (int device = 0; device < devices; ++device) {
      EventSink* const sink = *recorder->SinkFor(device, "NVIDIA H200", 140 * kGiB);
      for (Event event : events) {
        event.device = static_cast<uint8_t>(device);
        sink->OnEvent(event);
      }
    }
  }

  TemporaryDirectory directory_;
  std::string path_;
};

Event Block(EventKind kind, uint64_t time_ns, DevicePtr address, Bytes bytes, uint16_t pool = 0) {
  return {.time_ns = time_ns,
          .address = address,
          .bytes = bytes,
          .extra = static_cast<uint32_t>(RoundUp(bytes, kBlockAlignment) / kBlockAlignment),
          .pool = pool,
          .kind = kind};
}

// What waits for a device depends on when the program does what, and the recorded times hold the
// waits of the recorded run: played again it waits elsewhere, and by a little its memory differs.
TEST_F(RecordedRunTest, ReplayedUnderTheSameOptionsItTakesTheSameMemory) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Counters recorded = RecordRandomRun(20'000, seed);
    const absl::StatusOr<Program> program = LoadProgram(path_);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_THAT(program->caveats, ElementsAre());
    const absl::StatusOr<ReplayResult> result = Replay(*program, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->completed());
    EXPECT_EQ(result->counters.live_bytes, recorded.live_bytes);
    EXPECT_EQ(result->counters.allocations, recorded.allocations);
    EXPECT_EQ(result->counters.allocated_bytes, recorded.allocated_bytes);
    const double reserved = static_cast<double>(recorded.reserved_bytes[0].peak);
    EXPECT_NEAR(static_cast<double>(result->counters.reserved_bytes[0].peak), reserved,
                0.01 * reserved);
    EXPECT_EQ(result->counters.cache_flushes, 1);
    EXPECT_EQ(result->peak_live_bytes, program->peak_live_bytes);
  }
}

TEST_F(RecordedRunTest, BlocksAreOfTheStreamOfTheirPool) {
  Record({{.address = 7, .bytes = 0x5000, .extra = 0, .kind = EventKind::kStreamSeen},
          {.extra = 0, .pool = 0, .kind = EventKind::kPoolCreated},
          {.address = 1, .bytes = 0, .extra = 1, .kind = EventKind::kStreamSeen},
          {.extra = 1, .pool = 1, .kind = EventKind::kPoolCreated},
          Block(EventKind::kBlockAllocated, 10, 0x1000, 100, 1),
          Block(EventKind::kBlockAllocated, 20, 0x2000, 100, 0)});
  const Program program = *LoadProgram(path_);
  ASSERT_EQ(program.operations.size(), 2);
  EXPECT_TRUE(program.stream_is_default[program.operations[0].stream]);
  EXPECT_FALSE(program.stream_is_default[program.operations[1].stream]);
}

TEST_F(RecordedRunTest, WhatWasLostIsMendedAndTold) {
  Record({Block(EventKind::kBlockAllocated, 10, 0x1000, 100),
          {.time_ns = 20, .bytes = 5, .kind = EventKind::kEventsDropped},
          Block(EventKind::kBlockAllocated, 30, 0x1000, 200),
          {.time_ns = 40, .bytes = kGiB, .kind = EventKind::kRequestFailed}});
  const Program program = *LoadProgram(path_);
  EXPECT_EQ(program.events, 3);
  EXPECT_EQ(program.peak_live_bytes, 200);
  EXPECT_THAT(program.caveats,
              ElementsAre(HasSubstr("5 events were lost"), HasSubstr("1 requests failed")));
}

TEST_F(RecordedRunTest, AContradictionIsAnErrorThatNamesFileAndEvent) {
  Record({Block(EventKind::kBlockAllocated, 10, 0x1000, 100),
          Block(EventKind::kBlockAllocated, 20, 0x1000, 100)});
  const absl::Status status = LoadProgram(path_).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("device0.offcut: event 1: 0x1000 is allocated"));
  Record({Block(EventKind::kBlockAllocated, 10, 0x1000, 0)});
  EXPECT_THAT(std::string(LoadProgram(path_).status().message()),
              HasSubstr("event 0: an allocation of 0 bytes"));
}

TEST_F(RecordedRunTest, BlocksOfPrivatePoolsArePlayedAndTold) {
  Record({{.bytes = 7, .extra = 0, .pool = 0, .kind = EventKind::kPoolCreated},
          Block(EventKind::kBlockAllocated, 10, 0x1000, 100)});
  const Program program = *LoadProgram(path_);
  EXPECT_EQ(program.events, 1);
  EXPECT_THAT(program.caveats, ElementsAre(HasSubstr("1 private pools")));
}

TEST_F(RecordedRunTest, EventsOfAnyKindInAnyOrderAreErrorsOrProgramsThatPlay) {
  std::mt19937 random(3);
  const auto few = [&random](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  int played = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Event> events;
    if (round % 2 == 0) events.push_back({.bytes = 1, .kind = EventKind::kEventsDropped});
    for (uint32_t count = few(60); count > 0; --count) {
      events.push_back({.time_ns = random() % 4 == 0 ? random() : events.size() * 1000,
                        .address = few(6) * 0x1000,
                        .bytes = few(20) == 0 ? ~uint64_t{0} : few(4) * kMiB + few(1000),
                        .extra = few(20) == 0 ? few(UINT32_MAX) : few(3),
                        .pool = static_cast<uint16_t>(few(20) == 0 ? random() : few(3)),
                        .kind = static_cast<EventKind>(few(34))});
    }
    VectorTraceReader reader(std::move(events));
    const absl::StatusOr<Program> program = LoadRecordedRun(reader);
    if (!program.ok()) continue;
    const absl::StatusOr<ReplayResult> result = Replay(*program, {});
    ASSERT_TRUE(result.ok()) << result.status();
    ++played;
  }
  EXPECT_GT(played, 50);
}

TEST_F(RecordedRunTest, OfSeveralDevicesOneMustBeNamed) {
  Record({Block(EventKind::kBlockAllocated, 10, 0x1000, 100)}, 2);
  const absl::Status status = LoadProgram(path_).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 devices were recorded here"));
  EXPECT_TRUE(LoadProgram(path_ + "/device1.offcut").ok());
}

TEST_F(RecordedRunTest, WhatIsNoTraceIsAnErrorThatNamesIt) {
  EXPECT_EQ(LoadProgram(directory_.File("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(LoadProgram(directory_.path()).ok());
  WriteFile(directory_.File("noise"), std::string("\x89OFFCUT no recording"));
  EXPECT_THAT(std::string(LoadProgram(directory_.File("noise")).status().message()),
              HasSubstr("noise"));
}

}  // namespace
}  // namespace offcut
