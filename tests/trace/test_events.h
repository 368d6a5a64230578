// Events for the tests of the recording.

#ifndef OFFCUT_TESTS_TRACE_TEST_EVENTS_H_
#define OFFCUT_TESTS_TRACE_TEST_EVENTS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "allocator/events/event.h"
#include "allocator/trace/reader.h"
#include "gtest/gtest.h"

namespace offcut {

// The event that a test emits as its `index`-th: any two differ, and each is known from its index.
inline Event EventNumber(uint64_t index, uint8_t device = 0) {
  Event event;
  event.time_ns = index * 1000;
  event.address = 0x7F00'0000'0000 + index % 97 * kBlockAlignment;
  event.bytes = index;
  event.extra = static_cast<uint32_t>(index % 7);
  event.pool = static_cast<uint16_t>(index % 3);
  event.kind = index % 2 == 0 ? EventKind::kBlockAllocated : EventKind::kBlockFreed;
  event.device = device;
  return event;
}

inline std::vector<Event> EventNumbers(uint64_t first, uint64_t end) {
  std::vector<Event> events;
  for (uint64_t i = first; i < end; ++i) events.push_back(EventNumber(i));
  return events;
}

// Any events at all: extremes of every field, kinds that do not exist, frees of blocks that do and
// do not, all of `device`.
inline std::vector<Event> RandomEvents(uint64_t seed, size_t count, uint8_t device = 0) {
  std::mt19937_64 random(seed);
  const auto number = [&random]() -> uint64_t {
    switch (random() % 6) {
      case 0:
        return 0;
      case 1:
        return UINT64_MAX;
      case 2:
        return uint64_t{1} << random() % 64;
      case 3:
        return random() % 4096;
      case 4:
        return random() % (uint64_t{1} << 40) / kBlockAlignment * kBlockAlignment;
      default:
        return random();
    }
  };
  std::vector<Event> events;
  for (size_t i = 0; i < count; ++i) {
    Event event;
    if (!events.empty() && random() % 2 == 0) event = events[random() % events.size()];
    // Some fields anew, so that many events nearly fit an earlier one.
    if (random() % 2 == 0) event.time_ns = number();
    if (random() % 3 == 0) event.address = number();
    if (random() % 4 == 0) event.bytes = number();
    if (random() % 4 == 0) event.extra = static_cast<uint32_t>(number());
    if (random() % 8 == 0) event.pool = static_cast<uint16_t>(number());
    event.kind = static_cast<EventKind>(random() % 4 == 0 ? random() % 256 : 3 + random() % 5);
    event.device = device;
    events.push_back(event);
  }
  return events;
}

// All events of the file, and what ForEach said. Fails the test if it cannot be opened.
struct ReadBack {
  std::vector<Event> events;
  TraceSummary summary;
};

inline ReadBack ReadAll(TraceReader& reader) {
  ReadBack result;
  auto summary = reader.ForEach([&result](absl::Span<const Event> events) {
    result.events.insert(result.events.end(), events.begin(), events.end());
  });
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (summary.ok()) result.summary = *std::move(summary);
  EXPECT_EQ(result.events.size(), result.summary.events);
  return result;
}

inline ReadBack ReadAll(const std::string& file) {
  auto reader = TraceReader::Open(file);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? ReadAll(**reader) : ReadBack();
}

}  // namespace offcut

#endif  // OFFCUT_TESTS_TRACE_TEST_EVENTS_H_
