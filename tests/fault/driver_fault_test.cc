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

#include "allocator/base/clock.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/sim_driver.h"
#include "gtest/gtest.h"
#include "tests/core/witnesses.h"
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
      {.kind = kAllocate, .stream = 3, .block = 7, .bytes = 2 * kMiB},
      {.kind = kUse, .stream = 3, .block = 7, .ns = 100'000},
      {.kind = kDestroyStream, .stream = 3},
      {.kind = kFree, .block = 7},
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
           {"Async",
            "backend:cudaMallocAsync,async_reuse_follow_events:False,"
            "async_reuse_internal_dependencies:False"},
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
  // The core does not choose devices, and asks of the driver's pools only what they hold.
  const std::set<DriverCall> not_of_the_core = {DriverCall::kDeviceCount,
                                                DriverCall::kGetDriverPoolUsage};
  // See GraphMemoryFaultTest.
  const std::set<DriverCall> of_graphs = {DriverCall::kGetCaptureId, DriverCall::kWaitForEvent,
                                          DriverCall::kRecordDeviceEvent};
  CallCounts sum{};
  for (const Scenario& scenario : Scenarios()) {
    Calls calls;
    const absl::Status status = Play(scenario.program, nullptr, &calls);
    ASSERT_TRUE(status.ok()) << scenario.name << ": " << status.message();
    for (size_t call = 0; call < sum.size(); ++call) sum[call] += calls.counts[call];
  }
#define OFFCUT_DRIVER_CALL(name, number, cuda_name)                            \
  EXPECT_EQ(sum[number] > 0, !not_of_the_core.contains(DriverCall::k##name) && \
                                 !of_graphs.contains(DriverCall::k##name))     \
      << #name;
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

// --- Memory of graphs ----------------------------------------------------------------------------

// What a capture allocates from the driver's pools: no program of the fuzzer launches a graph.
class GraphMemoryFaultTest : public ::testing::Test {
 protected:
  // One graph's life, with a fault if there is one. Calls that the fault may fail, fail silently:
  // what counts is what is left.
  void Live(const FaultyDriver::Fault* fault, uint64_t* calls) {
    SimDriver sim({.memory_bytes = 256 * kMiB, .lag_ns = 1'000'000, .outside_bytes = 0});
    FaultyDriver driver(&sim);
    const Clock clock = sim.clock();
    AddressMap address_map;
    Witnesses witnesses;
    sim::StreamModel& streams = sim.model().streams();
    const StreamHandle stream = *streams.CreateStream(0, {.non_blocking = true});
    const StreamHandle side = *streams.CreateStream(0, {.non_blocking = true});
    const EventHandle event = *streams.CreateEvent(0, {});
    auto allocator = *DeviceAllocator::Create(
        driver, 0, clock, address_map, *Config::Parse({.offcut_conf = "backend:cudaMallocAsync"}),
        {&witnesses});
    if (fault != nullptr) driver.Inject(*fault);
    const auto check = [&] {
      const absl::Status agreed = witnesses.Check(allocator->View());
      ASSERT_TRUE(agreed.ok()) << agreed;
    };
    const PrivatePoolId id = {.first = 1};
    const auto free = [&](const absl::StatusOr<DevicePtr>& block) {
      if (!block.ok()) return;
      EXPECT_TRUE(allocator->Free(*block).ok());
      check();
    };
    const auto captured = [&](StreamHandle of) {
      const absl::StatusOr<sim::CaptureInfo> capture = streams.GetCapture(0, of);
      return capture.ok() && capture->id != 0;
    };

    const absl::StatusOr<DevicePtr> outside = allocator->Allocate(stream, kMiB);
    const bool routed = allocator->BeginAllocateToPool(id, stream, captured).ok();
    ASSERT_TRUE(streams.BeginCapture(0, stream, sim::CaptureMode::kGlobal).ok());
    const absl::StatusOr<DevicePtr> inner = allocator->Allocate(stream, 2 * kMiB);
    const absl::StatusOr<DevicePtr> kept = allocator->Allocate(stream, 3 * kMiB);
    ASSERT_TRUE(streams.RecordEvent(0, event, stream).ok());
    ASSERT_TRUE(streams.StreamWaitEvent(0, side, event).ok());
    const absl::StatusOr<DevicePtr> beside = allocator->Allocate(side, 4 * kMiB);
    ASSERT_TRUE(streams.RecordEvent(0, event, side).ok());
    ASSERT_TRUE(streams.StreamWaitEvent(0, stream, event).ok());
    free(inner);
    free(beside);
    free(outside);
    const absl::StatusOr<sim::GraphHandle> graph = streams.EndCapture(0, stream);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(allocator->EndAllocateToPool(id).ok(), routed);
    const sim::GraphExecHandle exec = *streams.InstantiateGraph(*graph, /*auto_free=*/true);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(streams.LaunchGraph(0, exec, stream).ok());
    free(kept);
    ASSERT_TRUE(streams.LaunchGraph(0, exec, side).ok());
    EXPECT_EQ(allocator->ReleasePool(id).ok(), routed);
    check();
    ASSERT_TRUE(streams.DestroyGraphExec(exec).ok());
    ASSERT_TRUE(streams.DestroyGraph(*graph).ok());
    if (calls != nullptr) *calls = driver.CallCount();

    driver.ClearFaults();
    allocator->EmptyCache();
    check();
    EXPECT_EQ(allocator->counters().reserved_bytes[0].current, 0);
    ASSERT_TRUE(streams.SynchronizeDevice(0).ok());
    sim.model().pools().TrimGraphs();
    EXPECT_EQ(sim.model().memory().Census().physical_bytes, 0u) << "what the last launch left";
    EXPECT_TRUE(allocator->Allocate(stream, kMiB).ok());
  }
};

TEST_F(GraphMemoryFaultTest, EveryDriverCallMayFail) {
  uint64_t calls = 0;
  Live(nullptr, &calls);
  ASSERT_GT(calls, 30u);
  for (const uint64_t times : {uint64_t{1}, uint64_t{3}, kForever}) {
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      SCOPED_TRACE(testing::Message() << "call " << nth << " and " << times - 1 << " more");
      const FaultyDriver::Fault fault = {
          .nth = nth, .times = times, .cu_result = CudaResult::kUnknown};
      Live(&fault, nullptr);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EveryDriverCallTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace offcut
