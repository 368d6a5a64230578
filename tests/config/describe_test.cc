#include "allocator/config/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace offcut {
namespace {

using ::testing::HasSubstr;

TEST(DescribeTest, JsonTellsEveryOptionWithItsOrigin) {
  const Config config = *Config::Parse(
      {.offcut_conf = "memory_limit_mb:100", .pytorch_alloc_conf = "max_split_size_mb:50"});
  const nlohmann::json options = nlohmann::json::parse(DescribeJson(config));
  ASSERT_EQ(options.size(), kOptionCount);
  std::set<std::string> seen;
  for (const nlohmann::json& option : options) {
    EXPECT_TRUE(seen.insert(option["key"]).second);
    for (const char* key : {"value", "default", "unit", "note"}) {
      EXPECT_TRUE(option[key].is_string()) << option;
    }
    for (const char* key : {"range", "meaning", "status"}) {
      EXPECT_NE(option[key], "") << option;
    }
    if (option["key"] == "memory_limit_mb") {
      EXPECT_EQ(option["value"], "100");
      EXPECT_EQ(option["default"], "unlimited");
      EXPECT_EQ(option["origin"], "OFFCUT_CONF");
    } else if (option["key"] == "max_split_size_mb") {
      EXPECT_EQ(option["origin"], "PYTORCH_ALLOC_CONF");
      EXPECT_EQ(option["status"], "segments layout");
    } else {
      EXPECT_EQ(option["origin"], "default");
    }
  }
}

TEST(DescribeTest, EveryDefaultReadsBackUnlessItMeansOff) {
  const std::set<std::string> off_by_default = {
      "expandable_segments_reserve", "expandable_segments_reserve_by_class",
      "garbage_collection_threshold", "pinned_reserve_segment_size_mb", "roundup_power2_divisions"};
  for (const OptionDescription& row : OptionDescriptions()) {
    const bool accepted =
        Config::Parse({.offcut_conf = std::string(row.key) + ":" + row.default_text}).ok();
    EXPECT_EQ(accepted, off_by_default.count(std::string(row.key)) == 0) << row.key;
  }
}

TEST(DescribeTest, AnOptionWithoutEffectSaysWhy) {
  for (const OptionDescription& row : OptionDescriptions()) {
    EXPECT_TRUE(row.status == OptionStatus::kWorks || !row.note.empty()) << row.key;
  }
}

TEST(DescribeTest, TextAndMarkdownTellEveryOption) {
  const std::string text = DescribeText(Config());
  const std::string markdown = DescribeMarkdown();
  for (const OptionDescription& row : OptionDescriptions()) {
    EXPECT_THAT(text, HasSubstr(std::string(row.sentence)));
    EXPECT_THAT(markdown, HasSubstr("\n| `" + std::string(row.key) + "` | `"));
  }
}

}  // namespace
}  // namespace offcut
