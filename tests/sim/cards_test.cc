#include "allocator/sim/cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offcut::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Problem(absl::string_view text) {
  const auto parsed = ParseSimOptions(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(SimOptionsTest, ACardAloneIsEnough) {
  const auto options = ParseSimOptions("H200");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_STREQ(options->card->name, "NVIDIA H200");
  EXPECT_EQ(options->TotalBytes(), 150109880320u);
  EXPECT_EQ(options->devices, 1);
  EXPECT_EQ(options->lag_ns, 0u);
  EXPECT_EQ(options->outside_bytes, kDefaultOutsideBytes);
}

TEST(SimOptionsTest, TakesEveryKeyInAnyOrder) {
  const auto options = ParseSimOptions("h100,lag=5ms,devices=2,memory=40GiB,outside=500MiB");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_STREQ(options->card->key, "H100");
  EXPECT_EQ(options->TotalBytes(), 40 * kGiB);
  EXPECT_EQ(options->devices, 2);
  EXPECT_EQ(options->lag_ns, 5'000'000u);
  EXPECT_EQ(options->outside_bytes, 500 * kMiB);
}

TEST(SimOptionsTest, TextAndOptionsAreTheSame) {
  for (const char* text : {"H200,memory=80GiB,devices=2,lag=5ms,outside=500MiB",
                           "A100,memory=150109880321B,devices=64,lag=7ns,outside=0B"}) {
    const auto options = ParseSimOptions(text);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(FormatSimOptions(*options), text);
  }
}

TEST(SimOptionsTest, AnUnknownCardIsAnsweredWithTheCardsThereAre) {
  EXPECT_THAT(Problem("B300"), AllOf(HasSubstr("'B300'"), HasSubstr("H200, H100")));
  EXPECT_THAT(Problem(""), HasSubstr("unknown card ''"));
}

TEST(SimOptionsTest, AnUnknownKeyIsAnsweredWithTheKeysThereAre) {
  EXPECT_THAT(Problem("H200,memroy=80GiB"),
              AllOf(HasSubstr("at character 6"), HasSubstr("'memroy'"), HasSubstr("memory=80GiB")));
  EXPECT_THAT(Problem("H200,80GiB"), HasSubstr("key=value"));
  EXPECT_THAT(Problem("H200,"), HasSubstr("key=value"));
}

TEST(SimOptionsTest, AKeyGivenTwiceIsAnError) {
  EXPECT_THAT(Problem("H200,devices=2,devices=3"),
              AllOf(HasSubstr("'devices' is given twice"), HasSubstr("at character 16")));
}

TEST(SimOptionsTest, ValuesNeedTheirUnit) {
  EXPECT_THAT(Problem("H200,memory=80"), AllOf(HasSubstr("'80'"), HasSubstr("GiB")));
  EXPECT_THAT(Problem("H200,memory=80GB"), HasSubstr("B, KiB, MiB, GiB, TiB"));
  EXPECT_THAT(Problem("H200,memory=1.5GiB"), HasSubstr("whole number"));
  EXPECT_THAT(Problem("H200,lag=5"), HasSubstr("ns, us, ms, s"));
  EXPECT_THAT(Problem("H200,lag=-5ms"), HasSubstr("'-5ms'"));
  EXPECT_THAT(Problem("H200,devices=two"), HasSubstr("1 to 64"));
}

TEST(SimOptionsTest, ValuesOutOfRangeAreErrors) {
  EXPECT_THAT(Problem("H200,devices=0"), HasSubstr("1 to 64"));
  EXPECT_THAT(Problem("H200,devices=65"), HasSubstr("1 to 64"));
  EXPECT_THAT(Problem("H200,memory=1MiB"), HasSubstr("from 64MiB to 1TiB"));
  EXPECT_THAT(Problem("H200,memory=99999999999999999999GiB"), HasSubstr("no value for memory"));
  EXPECT_THAT(Problem("H200,memory=18446744073709551615TiB"), HasSubstr("no value for memory"));
  EXPECT_THAT(Problem("H200,lag=2000000s"), HasSubstr("out of range for lag"));
  EXPECT_THAT(Problem("H200,memory=1GiB,outside=2GiB"), HasSubstr("more than the memory"));
}

TEST(CardsTest, KeysAreUnique) {
  for (const Card& card : Cards()) {
    const auto options = ParseSimOptions(card.key);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->card, &card);
  }
}

}  // namespace
}  // namespace offcut::sim
