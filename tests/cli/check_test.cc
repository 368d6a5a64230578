#include "visualizer/cli/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "allocator/driver/driver.h"
#include "tests/cli/event_script.h"
#include "tests/cli/vector_trace_reader.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckResult Check(std::vector<Event> events) {
  VectorTraceReader reader(std::move(events));
  return *CheckTrace(reader);
}

EventScript WholeRun() {
  EventScript script;
  script.Grow(0).Grow(1).Allocate(0, 1000).Allocate(4096, 3 * kMiB).Step(1);
  script.Free(0).Allocate(0, 512).Pend(4096).Free(0).FinishPending(4096);
  script.Shrink(1).Allocate(0, 100);
  return script;
}

TEST(CheckTest, AWholeRunHasNoFault) {
  const CheckResult result = Check(WholeRun().events());
  EXPECT_EQ(result.faults, 0u) << (result.first_faults.empty() ? "" : result.first_faults[0].what);
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_EQ(result.events, WholeRun().events().size());
}

TEST(CheckTest, AnEmptyTraceHasNoFault) { EXPECT_EQ(Check({}).faults, 0u); }

struct Lie {
  const char* name;
  const char* expected;
  std::function<void(EventScript&)> tell;
};

class CheckLieTest : public testing::TestWithParam<Lie> {};

TEST_P(CheckLieTest, IsFoundAtItsEvent) {
  EventScript script;
  script.Grow(0).Allocate(0, 1000);
  const uint64_t lie_at = script.events().size();
  GetParam().tell(script);
  const CheckResult result = Check(script.events());
  ASSERT_GT(result.faults, 0u);
  EXPECT_EQ(result.first_faults[0].event_index, lie_at);
  EXPECT_THAT(result.first_faults[0].what, HasSubstr(GetParam().expected));
  EXPECT_EQ(result.first_faults[0].event, ToString(script.events()[lie_at]));
}

INSTANTIATE_TEST_SUITE_P(
    , CheckLieTest,
    testing::Values(
        Lie{"FreeOfNothing", "contradicts",
            [](EventScript& s) {
              s.Add({.address = kBase + 4096,
                     .bytes = 1,
                     .extra = 1,
                     .kind = EventKind::kBlockFreed});
            }},
        Lie{"FreeOfAnotherSize", "contradicts",
            [](EventScript& s) {
              s.Add({.address = kBase, .bytes = 999, .extra = 2, .kind = EventKind::kBlockFreed});
            }},
        Lie{"FinishOfWhatIsLive", "contradicts", [](EventScript& s) { s.FinishPending(0); }},
        Lie{"Overlap", "overlaps", [](EventScript& s) { s.Allocate(512, 100); }},
        Lie{"OutsideGranules", "outside mapped", [](EventScript& s) { s.Allocate(kGranule, 1); }},
        Lie{"AcrossTheEnd", "outside mapped",
            [](EventScript& s) { s.Allocate(kGranule - 512, 1000); }},
        Lie{"UnmapUnderABlock", "under a live", [](EventScript& s) { s.Shrink(0); }},
        Lie{"MapTwice", "mapped there already",
            [](EventScript& s) {
              s.Add({.address = kBase,
                     .bytes = kGranule,
                     .extra = 0,
                     .kind = EventKind::kGranuleMapped});
            }},
        Lie{"MapOutsideRanges", "outside reserved ranges",
            [](EventScript& s) {
              s.Add({.address = kBase + 2 * kGiB,
                     .bytes = kGranule,
                     .extra = 0,
                     .kind = EventKind::kGranuleMapped});
            }},
        Lie{"FreeMappedRange", "still mapped",
            [](EventScript& s) {
              s.Add({.address = kBase, .bytes = kGiB, .kind = EventKind::kAddressRangeFreed});
            }},
        Lie{"ReserveTwice", "reserved already",
            [](EventScript& s) {
              s.Add({.address = kBase, .bytes = kGiB, .kind = EventKind::kAddressRangeReserved});
            }},
        Lie{"ReleaseUnknownGranule", "contradicts",
            [](EventScript& s) {
              s.Add({.bytes = kGranule, .extra = 5, .kind = EventKind::kGranuleReleased});
            }},
        Lie{"UnknownPool", "pool 9 was not created",
            [](EventScript& s) {
              s.Add({.address = kBase + 8192,
                     .bytes = 1,
                     .extra = 1,
                     .pool = 9,
                     .kind = EventKind::kBlockAllocated});
            }},
        Lie{"OtherDevice", "another device",
            [](EventScript& s) { s.Add({.kind = EventKind::kCacheEmptied, .device = 3}); }},
        Lie{"ImpossibleSize", "no allocator can",
            [](EventScript& s) {
              s.Add({.address = kBase, .bytes = 1000, .extra = 1, .kind = EventKind::kBlockFreed});
            }}),
    [](const auto& info) { return info.param.name; });

// A private pool, pool 1, with granule 7 behind the others; and a default pool with granule 0.
EventScript WithPrivatePool() {
  EventScript script;
  script.Grow(0).Allocate(0, 1000);
  script.Add({.bytes = 5, .kind = EventKind::kPrivatePoolCreated});
  script.Add({.bytes = 5, .pool = 1, .kind = EventKind::kPoolCreated});
  script.Add({.bytes = kGranule, .extra = 7, .pool = 1, .kind = EventKind::kGranuleCreated});
  script.Add({.address = kBase + 7 * kGranule,
              .bytes = kGranule,
              .extra = 7,
              .pool = 1,
              .kind = EventKind::kGranuleMapped});
  return script;
}

Event BlockEvent(EventKind kind, DevicePtr address, uint16_t pool) {
  return {.address = address, .bytes = 512, .extra = 1, .pool = pool, .kind = kind};
}

Event UnmapOfThePrivatePool() {
  return {.address = kBase + 7 * kGranule,
          .bytes = kGranule,
          .extra = 7,
          .pool = 1,
          .kind = EventKind::kGranuleUnmapped};
}

std::string FirstFault(const EventScript& script) {
  const CheckResult result = Check(script.events());
  return result.faults == 0 ? "" : result.first_faults[0].what;
}

TEST(CheckTest, MemoryOfAPrivatePoolServesThatAlone) {
  EventScript script = WithPrivatePool();
  const DevicePtr own = kBase + 7 * kGranule;
  EXPECT_EQ(FirstFault(script.Add(BlockEvent(EventKind::kBlockAllocated, own, 1))), "");
  EXPECT_THAT(
      FirstFault(EventScript(script).Add(BlockEvent(EventKind::kBlockAllocated, own + 512, 0))),
      HasSubstr("memory of a private pool that is not its own"));
  EXPECT_THAT(FirstFault(script.Add(BlockEvent(EventKind::kBlockAllocated, kBase + 4096, 1))),
              HasSubstr("lies in memory of the default pools"));
}

TEST(CheckTest, MemoryOfAPrivatePoolIsNotMoved) {
  EventScript script = WithPrivatePool();
  script.Add({.address = kBase + 9 * kGranule,
              .bytes = kGranule,
              .extra = 7,
              .pool = 1,
              .kind = EventKind::kGranuleMoved});
  EXPECT_THAT(FirstFault(script), HasSubstr("memory of a private pool is moved"));
}

TEST(CheckTest, MemoryOfAPrivatePoolStaysWhileItIsInUse) {
  EXPECT_THAT(FirstFault(WithPrivatePool().Add(UnmapOfThePrivatePool())),
              HasSubstr("private pool in use is unmapped"));
}

TEST(CheckTest, MemoryOfAReleasedPrivatePoolGoesAfterAWaitForTheDevice) {
  EventScript script = WithPrivatePool();
  const DevicePtr block = kBase + 7 * kGranule;
  script.Add(BlockEvent(EventKind::kBlockAllocated, block, 1));
  script.Add({.bytes = 5, .kind = EventKind::kPrivatePoolReleased});
  // Events are 10 ns apart: this wait began before the free, and the second after.
  EventScript early = script;
  early.Add(BlockEvent(EventKind::kBlockFreed, block, 1));
  EventScript late = early;
  early.Add({.bytes = 15, .kind = EventKind::kDeviceWaited}).Add(UnmapOfThePrivatePool());
  late.Add({.bytes = 5, .kind = EventKind::kDeviceWaited}).Add(UnmapOfThePrivatePool());
  EXPECT_THAT(FirstFault(early), HasSubstr("the device was not waited for"));
  EXPECT_EQ(FirstFault(late), "");
}

TEST(CheckTest, CudaMemFreeWaitsByItself) {
  EventScript script = WithPrivatePool();
  script.Add({.bytes = 5, .kind = EventKind::kPrivatePoolReleased});
  script.Add({.address = kBase + 7 * kGranule,
              .bytes = 1,
              .extra = static_cast<uint32_t>(DriverCall::kFreeMemory),
              .kind = EventKind::kDriverCalled});
  EXPECT_EQ(FirstFault(script.Add(UnmapOfThePrivatePool())), "");
}

TEST(CheckTest, TimesThatRunBackwardsAreAFault) {
  std::vector<Event> events = WholeRun().events();
  events[6].time_ns = 1;
  const CheckResult result = Check(events);
  EXPECT_EQ(result.faults, 1u);
  EXPECT_THAT(result.first_faults[0].what, HasSubstr("before the event before"));
  EXPECT_EQ(result.first_faults[0].event_index, 6u);
}

TEST(CheckTest, AGrowthThatTheSampleOfDeviceMemoryDoesNotShowStillAddsUp) {
  EventScript script;
  script.Add({.bytes = kGranule, .extra = 0, .kind = EventKind::kGranuleCreated});
  EXPECT_EQ(Check(script.events()).faults, 0u);
}

TEST(CheckTest, ALostEventIsFoundByTheFirstThatContradictsIt) {
  const std::vector<Event> whole = WholeRun().events();
  std::string missed;
  for (size_t lost = 0; lost < whole.size(); ++lost) {
    std::vector<Event> events = whole;
    events.erase(events.begin() + static_cast<ptrdiff_t>(lost));
    const CheckResult result = Check(events);
    if (result.faults > 0) {
      EXPECT_GE(result.first_faults[0].event_index, lost);
    } else {
      absl::StrAppend(&missed, DescribeEvent(whole[lost].kind)->name, " ");
    }
  }
  // Nothing later depends on samples, on steps, on the last of their kind; and a layout need not
  // reserve ranges.
  EXPECT_EQ(missed,
            "AddressRangeReserved DeviceUsedSampled DeviceUsedSampled StepMarked GranuleReleased "
            "DeviceUsedSampled BlockAllocated ");
}

TEST(CheckTest, DroppedEventsTurnContradictionsIntoAWarning) {
  EventScript script;
  script.Add({.bytes = 3, .kind = EventKind::kEventsDropped}).Allocate(0, 100);
  const CheckResult result = Check(script.events());
  EXPECT_EQ(result.faults, 0u);
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("3 events were dropped")));
}

TEST(CheckTest, DroppedEventsExcuseNoDamage) {
  EventScript script;
  script.Add({.bytes = 3, .kind = EventKind::kEventsDropped}).Allocate(0, 100);
  script.Add({.address = 5, .kind = EventKind::kBlockFreed});
  EXPECT_EQ(Check(script.events()).faults, 1u);
}

TEST(CheckTest, AFileThatCouldNotBeReadToItsEndIsAFault) {
  VectorTraceReader reader(WholeRun().events());
  reader.summary_.problem = "chunk 3 is torn";
  const CheckResult result = *CheckTrace(reader);
  ASSERT_EQ(result.faults, 1u);
  EXPECT_EQ(result.first_faults[0].what, "chunk 3 is torn");
  EXPECT_EQ(result.first_faults[0].event, "");
}

TEST(CheckTest, ARunThatIsNotClosedIsAWarning) {
  VectorTraceReader reader(WholeRun().events());
  reader.summary_.closed = false;
  EXPECT_THAT(CheckTrace(reader)->warnings, ElementsAre(HasSubstr("not closed")));
}

TEST(CheckTest, KindsOfANewerVersionAreAWarning) {
  EventScript script = WholeRun();
  script.Add({.kind = static_cast<EventKind>(200)});
  const CheckResult result = Check(script.events());
  EXPECT_EQ(result.faults, 0u);
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("1 events are of kinds")));
}

TEST(CheckTest, KeepsTheFirstFaultsAndCountsAll) {
  EventScript script;
  for (int i = 0; i < 1000; ++i) {
    script.Add({.kind = EventKind::kCacheEmptied, .device = 1});
  }
  const CheckResult result = Check(script.events());
  EXPECT_EQ(result.faults, 1000u);
  EXPECT_EQ(result.first_faults.size(), CheckResult::kFaultsKept);
}

TEST(CheckTest, SurvivesAnyEvents) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<Event> whole = WholeRun().events();
  for (int round = 0; round < 300; ++round) {
    std::vector<Event> events;
    for (int i = 0; i < 100; ++i) {
      Event event = whole[random() % whole.size()];
      const uint64_t noise = random() >> (random() % 64);
      switch (random() % 8) {
        case 0:
          event.address += noise;
          break;
        case 1:
          event.bytes = noise;
          break;
        case 2:
          event.extra = static_cast<uint32_t>(noise);
          break;
        case 3:
          event.kind = static_cast<EventKind>(noise);
          break;
        case 4:
          event.time_ns = noise;
          break;
        default:
          break;
      }
      events.push_back(event);
    }
    ASSERT_GT(Check(events).faults, 0u);
  }
}

}  // namespace
}  // namespace offcut
