#include "visualizer/cli/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/event_script.h"
#include "tests/cli/vector_trace_reader.h"
#include "visualizer/cli/text.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Analysis TwoDevices() {
  Analysis analysis;
  for (const int device : {0, 1}) {
    EventScript script;
    for (int id = 0; id <= device; ++id) script.Grow(static_cast<uint32_t>(id));
    script.Allocate(0, 1000).Step(1).Free(0);
    VectorTraceReader reader(script.events());
    reader.path_ = "/runs/20260101-host-1/device.trace";
    reader.metadata_ = {.format_version = 1,
                        .command_line = "python train.py\x1b[2J",
                        .device = device,
                        .device_name = "NVIDIA H200",
                        .options_json = "[]"};
    analysis.devices.push_back(*AnalyzeDevice(reader));
  }
  return analysis;
}

std::vector<std::string> KeysOf(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(InspectTest, TheTopLevelHasExactlyTheKeysThatScriptsRelyOn) {
  const Json json = InspectJson(TwoDevices());
  EXPECT_THAT(KeysOf(json), ElementsAre("process", "device", "events", "allocations", "frees",
                                        "dropped_events", "peak_live_bytes", "peak_reserved_bytes",
                                        "accounting", "devices", "unreadable"));
  EXPECT_THAT(
      KeysOf(json["accounting"]),
      ElementsAre("live_bytes", "rounding_bytes", "pending_bytes", "private_pools_free_bytes",
                  "pinned_bytes", "idle_bytes", "driver_pool_free_bytes", "outside_bytes",
                  "device_used_bytes", "foreign_bytes"));
}

TEST(InspectTest, TheTopLevelIsTheDeviceWithTheLargestPeak) {
  const Json json = InspectJson(TwoDevices());
  EXPECT_EQ(json["device"], 1);
  EXPECT_EQ(json["process"], "20260101-host-1");
  EXPECT_EQ(json["peak_reserved_bytes"], 2 * kGranule);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][0]["peak_reserved_bytes"], kGranule);
  for (const auto& [key, value] : json.items()) {
    if (key == "devices" || key == "unreadable") continue;
    EXPECT_EQ(json["devices"][1][key], value) << key;
  }
}

TEST(InspectTest, TheTermsOfTheSumAddUpToWhatTheDeviceUses) {
  const Json sum = InspectJson(TwoDevices())["accounting"];
  int64_t total = 0;
  for (const auto& [key, value] : sum.items()) {
    if (key != "device_used_bytes") total += value.get<int64_t>();
  }
  EXPECT_EQ(total, sum["device_used_bytes"].get<int64_t>());
  EXPECT_GT(total, 0);
}

TEST(InspectTest, ForeignBytesAreHarmlessInTextAndJson) {
  Analysis analysis = TwoDevices();
  analysis.devices[0].metadata.host = "h\xff\x1b[31m\n";
  analysis.devices[0].metadata.options_json = "{ torn";
  const std::string text = InspectText(analysis);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("python train.py?[2J"));
  const Json json = InspectJson(analysis);
  const std::string dumped = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  EXPECT_TRUE(Json::parse(dumped)["devices"][0]["options"].is_null());
}

TEST(InspectTest, TextShowsEveryTermAndTheSum) {
  const std::string text = InspectText(TwoDevices());
  for (const char* term : {"live ", "rounding", "pending", "private_pools_free", "pinned", "idle",
                           "driver_pool_free", "outside", "reserved", "device used"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n    ") + term));
  }
  EXPECT_THAT(text, HasSubstr("live/reserved"));
}

TEST(InspectTest, SaysWhatMakesTheFiguresIncomplete) {
  DeviceAnalysis device = TwoDevices().devices[0];
  EXPECT_THAT(Caveats(device), IsEmpty());
  device.dropped_events = 1234;
  device.summary.problem = "chunk 2 is torn";
  device.summary.closed = false;
  EXPECT_THAT(Caveats(device), ElementsAre(HasSubstr("1,234 events were dropped"),
                                           HasSubstr("chunk 2 is torn"), HasSubstr("not closed")));
}

TEST(TextTest, ShowsSizesWithThreeToFourDigits) {
  EXPECT_EQ(ShowBytes(0), "0 B");
  EXPECT_EQ(ShowBytes(1023), "1023 B");
  EXPECT_EQ(ShowBytes(1024), "1.00 KiB");
  EXPECT_EQ(ShowBytes(20 * kMiB), "20.0 MiB");
  EXPECT_EQ(ShowBytes(141 * kGiB), "141 GiB");
  EXPECT_EQ(ShowBytes(~Bytes{0}), "16.0 EiB");
}

TEST(TextTest, GroupsDigitsByThousands) {
  EXPECT_EQ(ShowCount(0), "0");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowCount(1000), "1,000");
  EXPECT_EQ(ShowCount(1234567890), "1,234,567,890");
}

TEST(TextTest, ShowsDurationsInTheirOwnUnit) {
  EXPECT_EQ(ShowDuration(1500), "1.5 us");
  EXPECT_EQ(ShowDuration(3'400'000), "3.40 ms");
  EXPECT_EQ(ShowDuration(1'250'000'000), "1.250 s");
  EXPECT_EQ(ShowDuration(150'000'000'000), "2 min 30 s");
  EXPECT_EQ(ShowDuration(7'380'000'000'000), "2 h 03 min");
}

}  // namespace
}  // namespace offcut
