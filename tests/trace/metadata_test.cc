#include "allocator/trace/metadata.h"

#include <nlohmann/json.hpp>

#include "allocator/events/event.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

TraceMetadata Sample() {
  return {.format_version = 1,
          .offcut_version = "0.1.0",
          .host = "node\"7\"",
          .pid = 4242,
          .command_line = "python train.py --name \xC3\xA4",
          .epoch_unix_ns = UINT64_MAX,
          .device = 255,
          .device_name = "NVIDIA H200",
          .device_total_bytes = 150754820096,
          .options_json = R"([{"name":"remap","origin":"default","value":"alias"}])"};
}

TEST(MetadataTest, ReadsBack) {
  const auto back = MetadataFromJson(MetadataToJson(Sample()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->offcut_version, Sample().offcut_version);
  EXPECT_EQ(back->host, Sample().host);
  EXPECT_EQ(back->pid, Sample().pid);
  EXPECT_EQ(back->command_line, Sample().command_line);
  EXPECT_EQ(back->epoch_unix_ns, Sample().epoch_unix_ns);
  EXPECT_EQ(back->device, Sample().device);
  EXPECT_EQ(back->device_name, Sample().device_name);
  EXPECT_EQ(back->device_total_bytes, Sample().device_total_bytes);
  EXPECT_EQ(back->options_json, Sample().options_json);
}

TEST(MetadataTest, HoldsTheListOfEvents) {
  const auto json = nlohmann::json::parse(MetadataToJson(Sample()));
  ASSERT_EQ(json["events"].size(), EventDescriptions().size());
  for (size_t i = 0; i < EventDescriptions().size(); ++i) {
    EXPECT_EQ(json["events"][i]["name"], std::string(EventDescriptions()[i].name));
    EXPECT_EQ(json["events"][i]["kind"], static_cast<int>(EventDescriptions()[i].kind));
  }
}

TEST(MetadataTest, TextThatIsNotUtf8AndOptionsThatAreNoJsonAreKeptAsWellAsTheyCanBe) {
  TraceMetadata metadata = Sample();
  metadata.command_line = "python \xFF.py";
  metadata.options_json = "remap:alias";
  const auto back = MetadataFromJson(MetadataToJson(metadata));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->command_line, "python \xEF\xBF\xBD.py");
  EXPECT_EQ(back->options_json, "\"remap:alias\"");
}

TEST(MetadataTest, SaysWhichMemberIsWrong) {
  const auto with = [](const char* name, nlohmann::json value) {
    auto json = nlohmann::json::parse(MetadataToJson(Sample()));
    json[name] = std::move(value);
    return std::string(MetadataFromJson(json.dump()).status().message());
  };
  EXPECT_THAT(with("device", 256), HasSubstr("'device' is 256, not an integer from 0 to 255"));
  EXPECT_THAT(with("device", -1), HasSubstr("'device' is -1"));
  EXPECT_THAT(with("pid", UINT64_MAX), HasSubstr("'pid'"));
  EXPECT_THAT(with("host", 5), HasSubstr("'host' is 5, not a string"));
  EXPECT_THAT(with("epoch_unix_ns", 1.5), HasSubstr("'epoch_unix_ns' is 1.5"));
  EXPECT_THAT(std::string(MetadataFromJson("{}").status().message()), HasSubstr("missing"));
}

TEST(MetadataTest, DeepNestingIsRefusedWithoutUsingTheStack) {
  EXPECT_FALSE(MetadataFromJson(std::string(kMaxMetadataBytes, '[')).ok());
  TraceMetadata metadata = Sample();
  metadata.options_json = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_TRUE(MetadataFromJson(MetadataToJson(metadata)).ok());
}

}  // namespace
}  // namespace offcut
