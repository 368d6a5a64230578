#include "allocator/core/memory_report.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/events/report_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

TEST(MemoryReportTest, SplitsFreeMemoryIntoOwnAndOthers) {
  World world({.memory_bytes = 64 * kMiB});
  const StreamHandle side = world.NewStream();
  const DevicePtr own = world.Allocate(8 * kMiB);
  world.Allocate(3 * kMiB, side);
  world.Free(own);
  MemoryReport report;
  report.AddState(world.allocator->View(), /*own_pool=*/0, 20 * kMiB);
  EXPECT_EQ(report.accounting.idle_bytes, 8 * kMiB);
  EXPECT_EQ(report.own_idle_bytes, 8 * kMiB);
  EXPECT_EQ(report.accounting.pinned_bytes, kMiB);
  EXPECT_EQ(report.own_pinned_bytes, 0u);
  EXPECT_EQ(report.own_largest_free, 8 * kMiB);
  EXPECT_EQ(report.other_largest_free, kMiB);
  EXPECT_THAT(report.ToText(), HasSubstr("this stream's pool: 0 B, other streams': 1.00 MiB"));
}

TEST(MemoryReportTest, ShowsTheSumAndTheCause) {
  World world({.memory_bytes = 64 * kMiB});
  world.Allocate(30 * kMiB);
  const std::string text(world.TryAllocate(40 * kMiB).message());
  EXPECT_THAT(text, HasSubstr("cause: "));
  EXPECT_THAT(text, HasSubstr("reserved        30.00 MiB"));
  EXPECT_THAT(text, HasSubstr("device: 30.00 MiB used of 64.00 MiB"));
}

TEST(MemoryReportTest, SplitsWhatIsFreeInPrivatePoolsToo) {
  World world({.memory_bytes = 64 * kMiB});
  ASSERT_TRUE(world.allocator
                  ->BeginAllocateToPool({.second = 1}, nullptr, [](StreamHandle) { return true; })
                  .ok());
  world.Free(world.Allocate(20 * kMiB));
  world.Free(world.Allocate(10 * kMiB, world.NewStream()));
  const std::string text(world.TryAllocate(40 * kMiB).message());
  EXPECT_THAT(text, HasSubstr("free, in private pools (this stream's pool: 20.00 MiB, "
                              "other streams': 10.00 MiB)"));
  EXPECT_THAT(text, HasSubstr("this stream's pool: 0 B, other streams': 0 B"));
}

std::string WholeText(const absl::Status& failed) {
  const auto whole = failed.GetPayload(kWholeReportPayload);
  return whole.has_value() ? std::string(*whole) : "";
}

TEST(MemoryReportTest, TheWholeTextTellsOfPoolsOfWhatPinsThemAndOfWhatWouldHaveHelped) {
  World world({.limit = 40 * kMiB});
  const DevicePtr front = world.Allocate(10 * kMiB);
  const DevicePtr pins = world.Allocate(kMiB + 512);
  const DevicePtr back = world.Allocate(20 * kMiB);
  world.Free(front);
  world.Free(back);
  const absl::Status failed = world.TryAllocate(60 * kMiB);
  const std::string text = WholeText(failed);
  EXPECT_THAT(text, HasSubstr(std::string(failed.message())));
  EXPECT_THAT(text, HasSubstr("#0    default                live     1.00 MiB"));
  EXPECT_THAT(text, HasSubstr(absl::StrFormat("%#x of", pins)));
  EXPECT_THAT(text, HasSubstr("a limit of"));
}

TEST(MemoryReportTest, StandsAmongTheEvents) {
  World world({.memory_bytes = 64 * kMiB});
  const absl::Status failed = world.TryAllocate(100 * kMiB);
  ReportTextReader reader;
  std::vector<std::string> texts;
  for (const Event& event : world.log.events) {
    if (auto text = reader.See(event)) texts.push_back(*std::move(text));
  }
  EXPECT_THAT(texts, ::testing::ElementsAre(WholeText(failed)));
}

TEST(MemoryReportTest, OfVeryManyFailuresOnlySomeStandAmongTheEvents) {
  World world({.memory_bytes = 64 * kMiB});
  const auto fail_often = [&] {
    world.log.events.clear();
    for (int i = 0; i < 500; ++i) {
      EXPECT_TRUE(
          absl::IsResourceExhausted(world.allocator->Allocate(nullptr, 100 * kMiB).status()));
    }
    ReportTextReader reader;
    int texts = 0;
    for (const Event& event : world.log.events) texts += reader.See(event).has_value() ? 1 : 0;
    return texts;
  };
  EXPECT_EQ(fail_often(), 64);
  EXPECT_EQ(fail_often(), 0);
  world.sim.AdvanceNs(10'000'000'000);
  EXPECT_GE(fail_often(), 10);
  EXPECT_EQ(world.allocator->counters().out_of_memory, 1500u);
}

TEST(MemoryReportTest, NamesTheDeviceWhereTheDeviceRefusedAndTheLimitWhereThatDid) {
  World device({.memory_bytes = 64 * kMiB});
  EXPECT_THAT(std::string(device.TryAllocate(100 * kMiB).message()),
              HasSubstr("failed: the device has no memory left."));
  World limit({.memory_bytes = 64 * kMiB, .limit = 32 * kMiB});
  EXPECT_THAT(std::string(limit.TryAllocate(100 * kMiB).message()),
              HasSubstr("failed: the limit on reserved memory is reached."));
}

TEST(MemoryReportTest, NamesBothWhereTheDeviceRefusedAndTheLimitIsReachedToo) {
  // Other users of the device leave less than the limit would allow; what is asked for is beyond
  // both once what is held cannot be given back.
  for (const char* conf : {"", "expandable_segments:False"}) {
    World world({.memory_bytes = 64 * kMiB,
                 .limit = 60 * kMiB,
                 .config = *Config::Parse({.offcut_conf = conf})});
    world.Allocate(20 * kMiB);
    world.driver.Inject({.call = DriverCall::kCreateMemory, .times = 1000});
    world.driver.Inject({.call = DriverCall::kAllocateMemory, .times = 1000});
    const std::string text(world.TryAllocate(30 * kMiB).message());
    EXPECT_THAT(text, HasSubstr("failed: the device has no memory left."));
    EXPECT_EQ(world.log.events.empty(), false);
  }
}

// A capture on a stream that the allocator has never seen: CUDA refuses the wait for the device.
TEST(MemoryReportTest, ARefusedWaitIsNoCauseOfItsOwn) {
  for (const char* conf : {"", "expandable_segments:False"}) {
    World world({.memory_bytes = 64 * kMiB, .config = *Config::Parse({.offcut_conf = conf})});
    world.Free(world.Allocate(40 * kMiB, world.NewStream()));
    world.driver.Inject({.call = DriverCall::kSynchronizeDevice,
                         .times = 100,
                         .cu_result = CudaResult::kStreamCaptureUnsupported});
    world.driver.Inject({.call = DriverCall::kRecordEvent, .times = 100});
    const absl::Status failed = world.TryAllocate(60 * kMiB);
    EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("failed: the device has no memory left"));
    EXPECT_THAT(std::string(failed.message()), HasSubstr("CUDA refused to wait for the device"));
    world.driver.ClearFaults();
    world.Allocate(60 * kMiB);
  }
}

TEST(MemoryReportTest, ManyThreadsMayFailAtOnceAndThenSucceed) {
  World world({.memory_bytes = 64 * kMiB});
  const DevicePtr held = world.Allocate(40 * kMiB);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&world, i] {
      for (int j = 0; j < 20; ++j) {
        const Bytes requested = (40 + static_cast<Bytes>(i)) * kMiB;
        const absl::Status failed = world.allocator->Allocate(nullptr, requested).status();
        EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
        EXPECT_THAT(std::string(failed.message()),
                    HasSubstr(absl::StrCat("a request of ", 40 + i, ".00 MiB")));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  world.Check();
  EXPECT_EQ(world.allocator->counters().out_of_memory, 160u);
  world.Free(held);
  world.Allocate(60 * kMiB);
}

}  // namespace
}  // namespace offcut
