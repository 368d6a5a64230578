#include "allocator/events/event.h"

#include <array>
#include <cstring>
#include <set>

#include "allocator/events/emitter.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

TEST(EventTest, EveryKindHasANumberOfItsOwnAndASentence) {
  std::set<EventKind> kinds;
  for (const EventDescription& description : EventDescriptions()) {
    EXPECT_TRUE(kinds.insert(description.kind).second) << description.name;
    EXPECT_NE(static_cast<int>(description.kind), 0) << "0 is what an unwritten record holds";
    EXPECT_EQ(description.sentence.back(), '.') << description.name;
    EXPECT_EQ(DescribeEvent(description.kind), &description);
  }
}

TEST(EventTest, AKindFromElsewhereIsNotKnown) {
  EXPECT_EQ(DescribeEvent(static_cast<EventKind>(250)), nullptr);
  EXPECT_NE(ToString(Event{.kind = static_cast<EventKind>(250)}).find("kind 250"),
            std::string::npos);
  EXPECT_EQ(Describe(static_cast<ReclaimStep>(9999)), "");
  EXPECT_EQ(Describe(static_cast<FailureReason>(9999)), "");
}

TEST(EmitterTest, StampsCountsAndPassesOn) {
  struct Sink : EventSink {
    void OnEvent(const Event& event) override { last = event; }
    Event last;
  } sink;
  std::atomic<uint64_t> now_ns{42};
  const Clock clock(&now_ns);
  Emitter emitter(3, clock);
  emitter.AddSink(&sink);
  emitter.Emit({.address = 0x200, .bytes = 100, .extra = 1, .kind = EventKind::kBlockAllocated});
  EXPECT_EQ(sink.last.time_ns, 42u);
  EXPECT_EQ(sink.last.device, 3);
  EXPECT_EQ(emitter.counters().live_bytes[0].current, 100);
  now_ns = 40;
  emitter.Emit({.kind = EventKind::kStepMarked});
  EXPECT_EQ(sink.last.time_ns, 42u) << "a processor whose clock is behind";
  emitter.RemoveSinks();
  now_ns = 43;
  emitter.Emit({.kind = EventKind::kStepMarked});
  EXPECT_EQ(sink.last.time_ns, 42u);
}

TEST(EventTest, WordsAreThoseOfTheRecord) {
  const Event event = {.time_ns = 1,
                       .address = 0x7f00'0000'0200,
                       .bytes = 3,
                       .extra = 0xDDCCBBAA,
                       .pool = 0xFFEE,
                       .kind = EventKind::kBlockFreed,
                       .device = 0xFE};
  std::array<uint64_t, 4> words;
  std::memcpy(words.data(), &event, sizeof event);
  EXPECT_EQ(words[3], event.last_word());
  EXPECT_EQ(Event::OfWords(words[0], words[1], words[2], words[3]), event);
}

}  // namespace
}  // namespace offcut
