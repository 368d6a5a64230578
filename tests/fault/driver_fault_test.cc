// The n-th driver call fails, for every n of scenarios that reach every call of the core: nothing
// is lost, the books stay true, and the next request works.
//
// A scenario is a program of the fuzzer (tests/fuzz/program.h), played on its machine: so all of
// its witnesses look after each operation, and at the end it demands that all memory goes back,
// that a request is served, and that the driver holds nothing once the allocators are gone.

#include <array>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "gtest/gtest.h"
#include "tests/fuzz/machine.h"
#include "tests/fuzz/program.h"

namespace offcut {
namespace {

using fuzz::Op;
using fuzz::Program;
using enum fuzz::OpKind;

constexpr uint64_t kForever = 1'000'000;

struct Scenario {
  std::string name;
  Program program;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

// What a layout does between two requests, and when memory runs out: growing, reuse, pending frees,
// waits, moves where there are any, giving back, failing. 64 MiB, streams 0 to 3.
std::vector<Op> Requests() {
  return {
      {.kind = kAllocate, .block = 1, .bytes = 5 * kMiB},
      {.kind = kAllocate, .block = 2, .bytes = 700},
      {.kind = kAllocate, .stream = 1, .block = 3, .bytes = 200 * kKiB},
      {.kind = kAllocate, .stream = 1, .block = 4, .bytes = 9 * kMiB},
      {.kind = kAllocate, .stream = 2, .block = 5, .bytes = 12 * kMiB},
      {.kind = kUse, .block = 1, .ns = 50'000},
      {.kind = kUse, .stream = 1, .block = 1, .ns = 100'000},
      {.kind = kUse, .stream = 2, .block = 2, .ns = 100'000},
      {.kind = kUse, .stream = 1, .block = 4, .ns = 100'000},
      {.kind = kRecordStream, .stream = 3, .block = 4},
      {.kind = kFree, .block = 1},
      {.kind = kFree, .block = 2},
      {.kind = kFree, .block = 4},
      // Beside what is pending, then from what was.
      {.kind = kAllocate, .block = 6, .bytes = 6 * kMiB},
      {.kind = kAdvance, .ns = 10'000'000},
      {.kind = kAllocate, .stream = 1, .block = 7, .bytes = 11 * kMiB},
      {.kind = kUse, .stream = 1, .block = 7, .ns = 2'000'000},
      {.kind = kFree, .block = 7},
      {.kind = kAllocate, .stream = 1, .block = 8, .bytes = 13 * kMiB},
      // Of another stream, which has not passed the free: only a wait gets at it.
      {.kind = kUse, .stream = 2, .block = 5, .ns = 2'000'000},
      {.kind = kUse, .stream = 3, .block = 5, .ns = 3'000'000},
      {.kind = kFree, .block = 5},
      {.kind = kAllocate, .stream = 3, .block = 9, .bytes = 24 * kMiB},
      {.kind = kAllocate, .block = 10, .bytes = 100 * kMiB},
      {.kind = kAccount},
      {.kind = kFree, .block = 8},
      {.kind = kEmptyCache},
      {.kind = kSetLimit, .bytes = 48 * kMiB},
      {.kind = kAllocate, .stream = 2, .block = 11, .bytes = 15 * kMiB},
      {.kind = kAllocate, .stream = 2, .block = 12, .bytes = 40 * kMiB},
      {.kind = kFree, .block = 9},
      {.kind = kAllocate, .stream = 2, .block = 13, .bytes = 20 * kMiB},
      {.kind = kBadFree, .block = 9},
      {.kind = kFindBlock, .block = 13, .bytes = kMiB},
  };
}

// Frees that no event can be recorded for: beside a capture, and after the end of a stream.
std::vector<Op> AwkwardFrees() {
  return {
      {.kind = kAllocate, .block = 1, .bytes = 4 * kMiB},
      {.kind = kAllocate, .block = 2, .bytes = 600},
      {.kind = kAllocate, .stream = 1, .block = 3, .bytes = 3 * kMiB},
      {.kind = kRecordStream, .stream = 1, .block = 1},
      {.kind = kBeginCapture, .stream = 1, .value = 2},
      {.kind = kFree, .block = 1},
      {.kind = kAllocate, .block = 4, .bytes = 2 * kMiB},
      {.kind = kEndCapture, .stream = 1},
      {.kind = kAllocate, .block = 5, .bytes = 3 * kMiB},
      {.kind = kUse, .stream = 2, .block = 2, .ns = 100'000},
      {.kind = kRecordStream, .stream = 2, .block = 2},
      {.kind = kDestroyStream, .stream = 2},
      {.kind = kFree, .block = 2},
      {.kind = kAllocate, .block = 6, .bytes = 800 * kMiB},
      {.kind = kEmptyCache},
  };
}

// Two devices, each open to the other.
std::vector<Op> Peers() {
  return {
      {.kind = kAllocate, .block = 1, .bytes = 5 * kMiB},
      {.kind = kAllocate, .device = 1, .block = 2, .bytes = 900},
      {.kind = kOpenTo, .value = 1},
      {.kind = kOpenTo, .device = 1},
      {.kind = kUse, .device = 1, .stream = 1, .block = 1, .ns = 1000},
      {.kind = kUse, .stream = 1, .block = 2, .ns = 1000},
      {.kind = kAllocate, .stream = 1, .block = 3, .bytes = 9 * kMiB},
      {.kind = kUse, .device = 1, .block = 3, .ns = 1000},
      {.kind = kJoin, .block = 3},
      {.kind = kFree, .block = 3},
      {.kind = kFree, .block = 1},
      {.kind = kEmptyCache},
      {.kind = kAllocate, .block = 4, .bytes = 3 * kMiB},
      {.kind = kUse, .device = 1, .block = 4, .ns = 1000},
  };
}

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios;
  for (const auto& [name, conf] : std::vector<std::pair<std::string, std::string>>{
           {"Alias", ""},
           {"Wait", "remap:wait"},
           {"Off", "remap:off"},
           {"Segments", "expandable_segments:False"},
           {"SegmentsWithLimits",
            "expandable_segments:False,max_split_size_mb:20,garbage_collection_threshold:0.5"}}) {
    const fuzz::Setup machine = {.conf = conf, .streams = 4, .lag_ns = 1'000'000};
    fuzz::Setup two = machine;
    two.devices = 2;
    scenarios.push_back({name + "Requests", {.setup = machine, .ops = Requests()}});
    scenarios.push_back({name + "AwkwardFrees", {.setup = machine, .ops = AwkwardFrees()}});
    scenarios.push_back({name + "Peers", {.setup = two, .ops = Peers()}});
  }
  return scenarios;
}

using CallCounts = std::array<uint64_t, 256>;

CallCounts CountsOf(const FaultyDriver& driver) {
  CallCounts counts{};
  for (size_t call = 0; call < counts.size(); ++call) {
    counts[call] = driver.CallCount(static_cast<DriverCall>(call));
  }
  return counts;
}

struct Calls {
  uint64_t before_close = 0;  // those that a fault may hit
  CallCounts counts{};        // of all
};

// Plays the program, with a fault if there is one; `calls`, if given, gets what was called.
absl::Status Play(const Program& program, const FaultyDriver::Fault* fault, Calls* calls) {
  fuzz::Machine machine(program.setup);
  if (fault != nullptr) machine.driver().Inject(*fault);
  const absl::Status opened = machine.Open();
  // Without an allocator there is nothing to play; what was made goes back all the same.
  if (!opened.ok() && machine.driver().FaultCount() > 0) return machine.CloseUnopened();
  OFFCUT_RETURN_IF_ERROR(opened);
  fuzz::Player player(machine, /*alone=*/true);
  for (const Op& op : program.ops) {
    OFFCUT_RETURN_IF_ERROR(player.Play(op));
    OFFCUT_RETURN_IF_ERROR(machine.Check());
  }
  OFFCUT_RETURN_IF_ERROR(player.FreeAll());
  if (calls != nullptr) calls->before_close = machine.driver().CallCount();
  OFFCUT_RETURN_IF_ERROR(machine.Close());
  if (calls != nullptr) calls->counts = CountsOf(machine.driver());
  return absl::OkStatus();
}

TEST(DriverFaultTest, TheScenariosReachEveryCallOfTheCore) {
  // The core does not choose devices, and waits for them without an event.
  const std::set<DriverCall> not_of_the_core = {
      DriverCall::kDeviceCount,          DriverCall::kRecordDeviceEvent,
      DriverCall::kCreateDriverPool,     DriverCall::kDestroyDriverPool,
      DriverCall::kSetDriverPoolOptions, DriverCall::kGetDriverPoolUsage,
      DriverCall::kTrimDriverPool,       DriverCall::kOpenDriverPoolTo,
      DriverCall::kAllocateAsync,        DriverCall::kFreeAsync};
  CallCounts sum{};
  for (const Scenario& scenario : Scenarios()) {
    Calls calls;
    const absl::Status status = Play(scenario.program, nullptr, &calls);
    ASSERT_TRUE(status.ok()) << scenario.name << ": " << status.message();
    for (size_t call = 0; call < sum.size(); ++call) sum[call] += calls.counts[call];
  }
#define OFFCUT_DRIVER_CALL(name, number, cuda_name) \
  EXPECT_EQ(sum[number] > 0, !not_of_the_core.contains(DriverCall::k##name)) << #name;
#include "allocator/driver/driver_calls.def"
#undef OFFCUT_DRIVER_CALL
}

class EveryDriverCallTest : public ::testing::TestWithParam<Scenario> {
 protected:
  // Fails the n-th call and those after it, for every n.
  void FailEach(uint64_t times, int cu_result) {
    const Program& program = GetParam().program;
    Calls calls;
    ASSERT_TRUE(Play(program, nullptr, &calls).ok());
    ASSERT_GT(calls.before_close, 20u);
    for (uint64_t nth = 1; nth <= calls.before_close; ++nth) {
      const FaultyDriver::Fault fault = {.nth = nth, .times = times, .cu_result = cu_result};
      const absl::Status status = Play(program, &fault, nullptr);
      ASSERT_TRUE(status.ok()) << "call " << nth << " of " << calls.before_close << ": "
                               << status.message();
    }
  }
};

TEST_P(EveryDriverCallTest, MayFindMemoryOut) { FailEach(1, CudaResult::kOutOfMemory); }
TEST_P(EveryDriverCallTest, MayFail) { FailEach(1, CudaResult::kUnknown); }
TEST_P(EveryDriverCallTest, MayFailThreeTimes) { FailEach(3, CudaResult::kUnknown); }
TEST_P(EveryDriverCallTest, MayBeTheFirstOfAllToFail) { FailEach(kForever, CudaResult::kUnknown); }

INSTANTIATE_TEST_SUITE_P(Scenarios, EveryDriverCallTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace offcut
