#include "allocator/events/report_text.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Event> EventsOf(absl::string_view text) {
  std::vector<Event> events;
  EmitReportText(text, [&](const Event& event) { events.push_back(event); });
  return events;
}

std::vector<std::string> TextsOf(const std::vector<Event>& events) {
  std::vector<std::string> texts;
  ReportTextReader reader;
  for (const Event& event : events) {
    if (std::optional<std::string> text = reader.See(event)) texts.push_back(*std::move(text));
  }
  return texts;
}

TEST(ReportTextTest, ComesBackAsItWas) {
  for (const size_t length : {1u, 15u, 16u, 17u, 1000u, 4096u}) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + i % 26);
    EXPECT_THAT(TextsOf(EventsOf(text)), ElementsAre(text));
    EXPECT_EQ(EventsOf(text).size(), (length + 15) / 16);
  }
  EXPECT_THAT(TextsOf(EventsOf("Gr\xC3\xB6\xC3\x9F"
                               "e\n")),
              ElementsAre("Gr\xC3\xB6\xC3\x9F"
                          "e\n"));
  EXPECT_THAT(EventsOf(""), IsEmpty());
}

TEST(ReportTextTest, IsCutOffWhereItIsTooLong) {
  const std::string text(kMaxReportTextBytes + 1, 'x');
  EXPECT_THAT(TextsOf(EventsOf(text)), ElementsAre(text.substr(1)));
}

TEST(ReportTextTest, SeveralComeOneAfterTheOther) {
  std::vector<Event> events = EventsOf("the first, of two parts");
  events.push_back({.kind = EventKind::kRequestFailed});
  for (const Event& event : EventsOf("the second")) events.push_back(event);
  EXPECT_THAT(TextsOf(events), ElementsAre("the first, of two parts", "the second"));
}

TEST(ReportTextTest, WhatIsNotWholeIsPassedOver) {
  const std::vector<Event> whole = EventsOf(std::string(100, 'x'));
  for (size_t lost = 0; lost < whole.size(); ++lost) {
    std::vector<Event> events = whole;
    events[lost].kind = EventKind::kEventsDropped;
    EXPECT_THAT(TextsOf(events), IsEmpty()) << lost;
    events.erase(events.begin() + static_cast<ptrdiff_t>(lost));
    EXPECT_THAT(TextsOf(events), IsEmpty()) << lost;
    for (const Event& event : EventsOf("next")) events.push_back(event);
    EXPECT_THAT(TextsOf(events), ElementsAre("next")) << lost;
  }
}

TEST(ReportTextTest, HoldsNoMoreThanItsBoundWhateverComes) {
  ReportTextReader reader;
  for (uint32_t part = 0; part < 0xFFFF; ++part) {
    const Event event = {
        .address = ~0ull, .extra = part | 0xFFFFu << 16, .kind = EventKind::kReportTextAdded};
    EXPECT_FALSE(reader.See(event).has_value());
  }
  EXPECT_FALSE(reader.See({.extra = 0, .kind = EventKind::kReportTextAdded}).has_value());
}

}  // namespace
}  // namespace offcut
