#include "visualizer/cli/replay.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ReplayResult Figures() {
  return {.peak_live_bytes = 3 * kGiB,
          .peak_reserved_bytes = 4 * kGiB,
          .address_bytes_peak = 5 * kGiB,
          .largest_batch = 6,
          .whole = {.events = 7,
                    .driver_calls = 8,
                    .driver_ns = 9'500'000,
                    .remap_ns = 1'500'000,
                    .moves = 10,
                    .remapped_bytes = 20 * kMiB,
                    .move_batches = 2,
                    .waits = 11,
                    .wait_ns = 12'250'000},
          .span_ns = 150'000'000,
          .seconds = 0.5};
}

TEST(ReplayOutputTest, JsonHoldsTheseKeysInThisOrder) {
  const ordered_json json = ReplayJson(Figures());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(
      keys, ElementsAre("peak_live_bytes", "peak_reserved_bytes", "live_over_reserved", "completed",
                        "failed_at_event", "driver_calls", "driver_ms", "remap_ms",
                        "remapped_bytes", "moves", "move_batches", "largest_batch", "waits",
                        "wait_ms", "address_bytes_peak", "events", "seconds"));
  EXPECT_EQ(json["live_over_reserved"], 0.75);
  EXPECT_EQ(json["completed"], true);
  EXPECT_TRUE(json["failed_at_event"].is_null());
  EXPECT_EQ(json["driver_ms"], 9.5);
  EXPECT_EQ(json["remap_ms"], 1.5);
  EXPECT_EQ(json["wait_ms"], 12.25);
  EXPECT_EQ(json["moves"], 10);
  EXPECT_EQ(json["largest_batch"], 6);
  EXPECT_EQ(json["waits"], 11);
}

TEST(ReplayOutputTest, AFailureIsInBoth) {
  ReplayResult result = Figures();
  result.failed_at_event = 6;
  result.failure = "why it failed";
  EXPECT_EQ(ReplayJson(result)["completed"], false);
  EXPECT_EQ(ReplayJson(result)["failed_at_event"], 6);
  EXPECT_THAT(ReplayText("a", Program(), ReplayOptions(), result),
              AllOf(HasSubstr("FAILED"), HasSubstr("at event 6: why it failed")));
}

TEST(ReplayOutputTest, TextTellsFiguresWithUnits) {
  const std::string text = ReplayText("run\x1b.csv", Program{.events = 70},
                                      {.cap = 8 * kGiB, .lag_ns = 50'000'000}, Figures());
  EXPECT_THAT(text, AllOf(HasSubstr("run?.csv"), HasSubstr("7 of 70 allocations and frees"),
                          HasSubstr("8.00 GiB reserved"), HasSubstr("50.00 ms behind the host"),
                          HasSubstr("live/reserved 0.7500"), HasSubstr("10 granules (20.0 MiB)"),
                          HasSubstr("1.00% of the run"), HasSubstr("NVIDIA H200")));
  EXPECT_THAT(text, Not(HasSubstr("FAILED")));
  EXPECT_THAT(ReplayText("a", Program(), ReplayOptions(), ReplayResult()),
              HasSubstr("keeps up with the host"));
}

TEST(ReplayOutputTest, SizesAreReadWithTheirUnits) {
  const auto parse = [](absl::string_view text) {
    Bytes bytes = 0;
    return ParseBytes(text, &bytes) ? bytes : kNoLimit;
  };
  EXPECT_EQ(parse("1024"), 1024);
  EXPECT_EQ(parse("7B"), 7);
  EXPECT_EQ(parse("4KiB"), 4 * kKiB);
  EXPECT_EQ(parse("3 MiB"), 3 * kMiB);
  EXPECT_EQ(parse("20gib"), 20 * kGiB);
  EXPECT_EQ(parse("1.5GiB"), 3 * kGiB / 2);
  EXPECT_EQ(parse("2TiB"), 2048 * kGiB);
  for (const char* wrong : {"", "GiB", "-1GiB", "+1", "1.5", "1.5B", "1GB", "x", "1e400GiB",
                            "nanGiB", "infGiB", "99999999999999GiB", "99999999999999999999"}) {
    EXPECT_EQ(parse(wrong), kNoLimit) << wrong;
  }
}

}  // namespace
}  // namespace offcut
