#include "allocator/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/status/status.h"

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<Config> ParseOffcut(const std::string& text) {
  return Config::Parse({.offcut_conf = text});
}

std::string ErrorOf(const std::string& offcut_conf) {
  const absl::StatusOr<Config> config = ParseOffcut(offcut_conf);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

std::array<uint64_t, 16> SlotsOf(const std::string& divisions) {
  const absl::StatusOr<Config> config = ParseOffcut("roundup_power2_divisions:" + divisions);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->roundup_power2_divisions().slots : std::array<uint64_t, 16>{};
}

TEST(ConfigTest, AnEmptyEnvironmentGivesTheDefaultsAndTheArena) {
  const Config config = *Config::Parse({});
  EXPECT_EQ(config.layout(), LayoutKind::kArena);
  EXPECT_TRUE(config.memory_limit_mb().unlimited());
  EXPECT_TRUE(config.max_split_size_mb().unlimited());
  EXPECT_EQ(config.per_process_memory_fraction(), 1.0);
  EXPECT_EQ(config.large_segment_size_mb().bytes(), 20 * kMiB);
  EXPECT_THAT(config.warnings(), IsEmpty());
  for (const OptionDescription& row : OptionDescriptions()) {
    EXPECT_EQ(config.origin(row.option), Origin::kDefault) << row.key;
    EXPECT_EQ(config.text(row.option), row.default_text) << row.key;
  }
}

TEST(ConfigTest, ReadsTheExampleOfPytorchsDocumentationAsPytorchDoes) {
  const Config config =
      *Config::Parse({.pytorch_cuda_alloc_conf =
                          "max_split_size_mb:256,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],"
                          "backend:cudaMallocAsync"});
  EXPECT_THAT(config.warnings(), IsEmpty());
  EXPECT_EQ(config.max_split_size_mb().count, 256u);
  EXPECT_THAT(config.roundup_power2_divisions().slots,
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8));
  EXPECT_EQ(config.backend(), Backend::kCudaMallocAsync);
  EXPECT_EQ(config.text(Option::roundup_power2_divisions), "[256:1,512:2,1024:4,>:8]");
}

// The expected slots are what PyTorch 2.11.0's own parser gave for these texts.
TEST(ConfigTest, FillsTheSlotsOfDivisionsAsPytorchDoes) {
  EXPECT_THAT(SlotsOf("[64:8,256:4,1024:4,>:1]"),
              ElementsAre(8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1));
  EXPECT_THAT(SlotsOf("[256:1,>:2,512:4]"),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(SlotsOf("[512:2,256:1]"),
              ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 1, 2, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(SlotsOf("[>:2]"), ElementsAre(0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(SlotsOf("[256:0,>:4]"), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(SlotsOf("[1:4]"), ElementsAre(4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(SlotsOf("[256:1,]"), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(SlotsOf("[]"), ElementsAreArray(std::array<uint64_t, 16>{}));
  std::array<uint64_t, 16> fours;
  fours.fill(4);
  EXPECT_THAT(SlotsOf("4"), ElementsAreArray(fours));
  EXPECT_THAT(SlotsOf("[65536:4]"), ElementsAreArray(fours));
  EXPECT_THAT(SlotsOf("[131072:4]"), ElementsAreArray(fours));
}

TEST(ConfigTest, RefusesDivisionsThatPytorchRefuses) {
  for (const char* text : {"0", "3", "[0:4]", "[3:4]", "[256:3]", "[256:1 512:2]", "[256]", "[:1]",
                           "[256:]", "[,]", "[[256:1]]", "[256:1", "256:1", "[256:1,512:2:3]"}) {
    EXPECT_THAT(ErrorOf(std::string("roundup_power2_divisions:") + text),
                HasSubstr("roundup_power2_divisions"))
        << text;
  }
}

TEST(ConfigTest, DropsWhitespaceAlsoWithinWords) {
  const Config config = *ParseOffcut(" memory _limit\t_mb\n: 2 0 ,");
  EXPECT_EQ(config.memory_limit_mb().count, 20u);
  EXPECT_EQ(config.text(Option::memory_limit_mb), "20");
}

TEST(ConfigTest, TheLastOfEqualKeysWins) {
  EXPECT_EQ(ParseOffcut("memory_limit_mb:20,memory_limit_mb:30")->memory_limit_mb().count, 30u);
}

TEST(ConfigTest, OffcutConfWinsPerOptionOverPytorchsVariable) {
  const Config config = *Config::Parse(
      {.offcut_conf = "per_process_memory_fraction:0.5",
       .pytorch_cuda_alloc_conf = "per_process_memory_fraction:0.9,max_split_size_mb:100"});
  EXPECT_EQ(config.per_process_memory_fraction(), 0.5);
  EXPECT_EQ(config.origin(Option::per_process_memory_fraction), Origin::kOffcutConf);
  EXPECT_EQ(config.max_split_size_mb().count, 100u);
  EXPECT_EQ(config.origin(Option::max_split_size_mb), Origin::kPytorchCudaAllocConf);
}

TEST(ConfigTest, PytorchAllocConfIsReadOnlyIfTheCudaNameIsUnset) {
  const ConfigTexts generic = {.pytorch_alloc_conf = "max_split_size_mb:100"};
  EXPECT_EQ(Config::Parse(generic)->origin(Option::max_split_size_mb), Origin::kPytorchAllocConf);
  ConfigTexts both = generic;
  both.pytorch_cuda_alloc_conf = "";
  EXPECT_TRUE(Config::Parse(both)->max_split_size_mb().unlimited());
}

TEST(ConfigTest, AcceptsTheSpellingsForHip) {
  const Config config = *Config::Parse({.pytorch_alloc_conf = "release_lock_on_hipmalloc:True"});
  EXPECT_TRUE(config.release_lock_on_cudamalloc());
}

TEST(ConfigTest, AnUnknownKeyNamesTheNearestAndPointsAtIt) {
  EXPECT_EQ(ErrorOf("backend:native, max_split_size:256"),
            "OFFCUT_CONF, column 17: unknown option 'max_split_size'; did you mean "
            "'max_split_size_mb'?\n"
            "  backend:native, max_split_size:256\n"
            "                  ^");
  EXPECT_THAT(ErrorOf("zzzzzzzzzzzz:1"), HasSubstr("`offcut options` lists all options"));
}

TEST(ConfigTest, AValueThatIsNotAllowedSaysWhatIs) {
  EXPECT_EQ(ErrorOf("expandable_segments:true"),
            "OFFCUT_CONF, column 21: expandable_segments must be True or False, not 'true'\n"
            "  expandable_segments:true\n"
            "                      ^");
  EXPECT_THAT(ErrorOf("roundup_power2_divisions:[256:3]"), HasSubstr("column 31:"));
  for (const char* text : {"memory_limit_mb:0",
                           "memory_limit_mb:-1",
                           "memory_limit_mb:+1",
                           "memory_limit_mb:20MB",
                           "memory_limit_mb:1e3",
                           "memory_limit_mb:99999999999999999999",
                           "memory_limit_mb:[20]",
                           "per_process_memory_fraction:1.01",
                           "per_process_memory_fraction:-0.1",
                           "per_process_memory_fraction:nan",
                           "per_process_memory_fraction:inf",
                           "garbage_collection_threshold:0",
                           "garbage_collection_threshold:1",
                           "large_segment_size_mb:10",
                           "large_segment_size_mb:unlimited",
                           "max_split_size_mb:19",
                           "max_non_split_rounding_mb:19",
                           "pinned_num_register_threads:3",
                           "pinned_num_register_threads:256",
                           "pinned_reserve_segment_size_mb:0",
                           "backend:hipMallocAsync",
                           "backend:Native"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(" must be ")) << text;
  }
}

TEST(ConfigTest, AcceptsTheEndsOfEachRange) {
  for (const char* text :
       {"memory_limit_mb:1", "memory_limit_mb:unlimited", "per_process_memory_fraction:0",
        "per_process_memory_fraction:1", "large_segment_size_mb:11", "max_split_size_mb:20",
        "max_non_split_rounding_mb:20", "garbage_collection_threshold:5e-1",
        "pinned_num_register_threads:128", "pinned_reserve_segment_size_mb:1", ""}) {
    EXPECT_EQ(ErrorOf(text), "no error") << text;
  }
}

TEST(ConfigTest, MisplacedPunctuationIsAnErrorAtItsPlace) {
  EXPECT_THAT(ErrorOf(",memory_limit_mb:20"), HasSubstr("column 1: the name of an option"));
  EXPECT_THAT(ErrorOf("memory_limit_mb:20,,"), HasSubstr("column 20: the name of an option"));
  EXPECT_THAT(ErrorOf("memory_limit_mb=20"), HasSubstr("unknown option 'memory_limit_mb=20'; did"));
  EXPECT_THAT(ErrorOf("memory_limit_mb"), HasSubstr("column 16: ':' and a value must follow"));
  EXPECT_THAT(ErrorOf("memory_limit_mb:"), HasSubstr("column 17: memory_limit_mb has no value"));
  EXPECT_THAT(ErrorOf("memory_limit_mb:20:30"), HasSubstr("column 19: ',' must follow"));
  EXPECT_THAT(ErrorOf("roundup_power2_divisions:[1:2"), HasSubstr("no closing ']'"));
}

TEST(ConfigTest, SplitSizesAreBoundedByTheLargeSegmentWhereverItWasGiven) {
  EXPECT_THAT(ErrorOf("max_split_size_mb:25,large_segment_size_mb:30"),
              AllOf(HasSubstr("OFFCUT_CONF, column 19"), HasSubstr("which is 30 (OFFCUT_CONF)")));
  EXPECT_EQ(ErrorOf("max_split_size_mb:30,large_segment_size_mb:30"), "no error");
  EXPECT_EQ(ParseOffcut("large_segment_size_mb:11")->max_non_split_rounding_mb().count, 11u);

  const Config config =
      *Config::Parse({.pytorch_cuda_alloc_conf = "large_segment_size_mb:30,max_split_size_mb:25"});
  EXPECT_THAT(config.warnings(), ElementsAre(HasSubstr("PYTORCH_CUDA_ALLOC_CONF, column 44")));
  EXPECT_TRUE(config.max_split_size_mb().unlimited());
  EXPECT_EQ(config.origin(Option::max_split_size_mb), Origin::kDefault);
}

TEST(ConfigTest, FaultsInPytorchsVariablesAreWarningsAndTheRestIsRead) {
  const Config config = *Config::Parse(
      {.pytorch_cuda_alloc_conf = "some_new_key:[1:2,3:4],max_split_size_mb:abc,"
                                  "per_process_memory_fraction:0.5,:,large_segment_size_mb:40"});
  EXPECT_THAT(config.warnings(),
              ElementsAre(HasSubstr("'some_new_key'"), HasSubstr("'abc'"), HasSubstr("not ':'")));
  EXPECT_TRUE(config.max_split_size_mb().unlimited());
  EXPECT_EQ(config.per_process_memory_fraction(), 0.5);
  EXPECT_EQ(config.large_segment_size_mb().count, 40u);
}

TEST(ConfigTest, AnOptionThatNothingObeysIsWarnedAboutOnlyInOffcutConf) {
  EXPECT_THAT(ParseOffcut("max_split_size_mb:100")->warnings(),
              ElementsAre(AllOf(HasSubstr("max_split_size_mb has no effect"),
                                HasSubstr("expandable_segments:False"))));
  EXPECT_THAT(ParseOffcut("max_split_size_mb:100,expandable_segments:False")->warnings(),
              IsEmpty());
  EXPECT_THAT(Config::Parse({.pytorch_alloc_conf = "max_split_size_mb:100"})->warnings(),
              IsEmpty());
  EXPECT_THAT(ParseOffcut("memory_limit_mb:100")->warnings(), IsEmpty());
}

TEST(ConfigTest, WhatHasNoMeaningHereIsReadAndToldOnce) {
  const absl::StatusOr<Config> config = ParseOffcut(
      "expandable_segments_reserve:40G,"
      "expandable_segments_reserve_by_class:[serving:0.25,tiny:8G],"
      "throw_on_cudamalloc_oom:True,pinned_max_cached_size_mb:1");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->expandable_segments_reserve_by_class().text, "[serving:0.25,tiny:8G]");
  EXPECT_THAT(config->warnings(),
              ElementsAre(HasSubstr("throw_on_cudamalloc_oom has no effect"),
                          HasSubstr("expandable_segments_reserve has no effect"),
                          HasSubstr("expandable_segments_reserve_by_class has no effect"),
                          HasSubstr("pinned_max_cached_size_mb has no effect")));
  EXPECT_THAT(ErrorOf("throw_on_cudamalloc_oom:1"), HasSubstr("must be True or False"));
  EXPECT_THAT(ErrorOf("expandable_segments_reserve:"), HasSubstr("has no value"));
}

TEST(ConfigTest, BackendAndExpandableSegmentsSelectTheLayout) {
  EXPECT_EQ(Config::Parse({.pytorch_cuda_alloc_conf = "expandable_segments:False"})->layout(),
            LayoutKind::kSegments);
  EXPECT_EQ(ParseOffcut("expandable_segments:True,backend:native")->layout(), LayoutKind::kArena);
  EXPECT_EQ(Config::Parse({.offcut_conf = "expandable_segments:True",
                           .pytorch_cuda_alloc_conf = "expandable_segments:False"})
                ->layout(),
            LayoutKind::kArena);
  const Config async = *Config::Parse({.offcut_conf = "expandable_segments:False",
                                       .pytorch_cuda_alloc_conf = "backend:cudaMallocAsync"});
  EXPECT_EQ(async.layout(), LayoutKind::kAsync);
  EXPECT_EQ(async.native_layout(), LayoutKind::kSegments) << "where a device has no such pools";
}

TEST(ConfigTest, OptionsOfTheAsyncLayoutAreWarnedAboutElsewhere) {
  EXPECT_THAT(ParseOffcut("async_reuse_opportunistic:False")->warnings(),
              ElementsAre(AllOf(HasSubstr("async_reuse_opportunistic has no effect"),
                                HasSubstr("backend:cudaMallocAsync"))));
  EXPECT_THAT(ParseOffcut("async_release_threshold_mb:0,backend:cudaMallocAsync")->warnings(),
              IsEmpty());
  EXPECT_THAT(ParseOffcut("max_split_size_mb:100,backend:cudaMallocAsync")->warnings(),
              ElementsAre(HasSubstr("max_split_size_mb has no effect")));
}

TEST(ConfigTest, LimitsThatDoNotFitAreNoLimit) {
  EXPECT_TRUE(ParseOffcut("memory_limit_mb:18446744073709551615")->memory_limit_mb().unlimited());
  EXPECT_EQ(ParseOffcut("memory_limit_mb:17592186044415")->memory_limit_mb().bytes(),
            17592186044415u * kMiB);
}

TEST(ConfigTest, ALongTextIsShownAroundTheFault) {
  const std::string text = "memory_limit_mb:1," + std::string(100000, 'x') + ":1";
  const std::string error = ErrorOf(text);
  EXPECT_LT(error.size(), 600u);
  EXPECT_THAT(error, HasSubstr("column 19"));
}

TEST(ConfigTest, ReadsTheEnvironment) {
  ::setenv("OFFCUT_CONF", "memory_limit_mb:77", 1);
  const absl::StatusOr<Config> config = Config::FromEnvironment();
  ::unsetenv("OFFCUT_CONF");
  EXPECT_EQ(config->memory_limit_mb().count, 77u);
  EXPECT_EQ(config->origin(Option::memory_limit_mb), Origin::kOffcutConf);
}

// Texts made of pieces of the grammar and of any bytes: no crash, and a caret that stands below the
// text.
TEST(ConfigTest, SurvivesAnyBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> pieces = {":", ",",  "[",    "]",     ">",   "True", "1",
                                     "0", "64", "-1",   " ",     "1e9", "nan",  "native",
                                     "x", "\n", "\xff", "False", "20",  ":[",   "unlimited"};
  for (const OptionDescription& row : OptionDescriptions()) {
    pieces.emplace_back(row.key);
    pieces.push_back(std::string(row.key) + ":");
  }
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int n = random() % 12; n > 0; --n) {
      text += random() % 8 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                : pieces[random() % pieces.size()];
    }
    const absl::StatusOr<Config> strict = ParseOffcut(text);
    const absl::StatusOr<Config> lenient = Config::Parse({.pytorch_alloc_conf = text});
    ASSERT_TRUE(lenient.ok()) << lenient.status();
    if (strict.ok()) {
      ++accepted;
      for (const OptionDescription& row : OptionDescriptions()) {
        ASSERT_EQ(strict->text(row.option), lenient->text(row.option)) << text;
      }
      continue;
    }
    ASSERT_THAT(std::string(strict.status().message()), HasSubstr("OFFCUT_CONF, column ")) << text;
    ASSERT_FALSE(lenient->warnings().empty()) << text;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace offcut
