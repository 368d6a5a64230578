// PyTorch's documented examples, and what follows from its rules at their edges.

#include "allocator/policy/native_sizes.h"

#include "gtest/gtest.h"

namespace offcut::policy::native {
namespace {

TEST(NativeSizesTest, DivisionsAreOfThePowerOfTwoBelow) {
  // The example in PyTorch's documentation of roundup_power2_divisions.
  EXPECT_EQ(RoundUpToDivision(1200, 4), 1280);
  EXPECT_EQ(RoundUpToDivision(1024, 4), 1024);
  EXPECT_EQ(RoundUpToDivision(1025, 4), 1280);
  EXPECT_EQ(RoundUpToDivision(1792, 4), 1792);
  EXPECT_EQ(RoundUpToDivision(1793, 4), 2048);
  EXPECT_EQ(RoundUpToDivision(3 * kMiB, 2), 3 * kMiB);
  EXPECT_EQ(RoundUpToDivision(3 * kMiB + 1, 2), 4 * kMiB);
}

TEST(NativeSizesTest, WithoutDivisionsABlockIsAMultipleOf512) {
  for (const uint64_t divisions : {0, 1}) {
    EXPECT_EQ(BlockSize(1, divisions), 512);
    EXPECT_EQ(BlockSize(512, divisions), 512);
    EXPECT_EQ(BlockSize(513, divisions), 1024);
    EXPECT_EQ(BlockSize(3 * kMiB + 1, divisions), 3 * kMiB + 512);
  }
}

TEST(NativeSizesTest, BlocksAreMultiplesOf512AndHoldTheirRequest) {
  for (const uint64_t divisions : {0, 1, 2, 8, 1024}) {
    for (const Bytes requested :
         {Bytes{1}, Bytes{511}, 32 * kKiB + 1, kMiB, kMiB + 1, 3 * kGiB + 7, Bytes{1} << 60}) {
      EXPECT_EQ(BlockSize(requested, divisions) % kBlockMin, 0u) << requested;
      EXPECT_GE(BlockSize(requested, divisions), requested);
    }
  }
}

TEST(NativeSizesTest, DivisionsHoldBeyond512TimesTheirNumber) {
  EXPECT_EQ(BlockSize(1200, 4), 1536) << "a quarter of 1024 is less than a block";
  EXPECT_EQ(BlockSize(2048, 4), 2048);
  EXPECT_EQ(BlockSize(2049, 4), 2560);
  EXPECT_EQ(BlockSize(5 * kMiB + 1, 4), 6 * kMiB);
  EXPECT_EQ(BlockSize(5 * kMiB + 1, 8), 5 * kMiB + kMiB / 2);
  EXPECT_EQ(BlockSize(700, uint64_t{1} << 63), 1024) << "512 x divisions does not wrap";
}

TEST(NativeSizesTest, DivisionsAreChosenByPowersOfTwoFrom1MiBOn) {
  EXPECT_EQ(DivisionSlot(1), 0);
  EXPECT_EQ(DivisionSlot(kMiB - 1), 0);
  EXPECT_EQ(DivisionSlot(2 * kMiB - 1), 0);
  EXPECT_EQ(DivisionSlot(2 * kMiB), 1);
  EXPECT_EQ(DivisionSlot(300 * kMiB), 8);
  EXPECT_EQ(DivisionSlot(32 * kGiB), 15);
  EXPECT_EQ(DivisionSlot(500 * kGiB), 15);
}

TEST(NativeSizesTest, EachSizeHasItsDivisions) {
  Divisions divisions{};
  divisions[0] = 2;
  divisions[3] = 4;
  EXPECT_EQ(BlockSize(kMiB + 1, divisions), kMiB + kMiB / 2);
  EXPECT_EQ(BlockSize(3 * kMiB + 1, divisions), 3 * kMiB + 512);
  EXPECT_EQ(BlockSize(9 * kMiB, divisions), 10 * kMiB);
}

TEST(NativeSizesTest, SegmentsAreOfThreeKinds) {
  EXPECT_EQ(SegmentSize(512, 20 * kMiB), 2 * kMiB);
  EXPECT_EQ(SegmentSize(kMiB, 20 * kMiB), 2 * kMiB);
  EXPECT_EQ(SegmentSize(kMiB + 512, 20 * kMiB), 20 * kMiB);
  EXPECT_EQ(SegmentSize(kMiB + 512, 48 * kMiB), 48 * kMiB);
  EXPECT_EQ(SegmentSize(10 * kMiB - 512, 20 * kMiB), 20 * kMiB);
  EXPECT_EQ(SegmentSize(10 * kMiB, 20 * kMiB), 10 * kMiB);
  EXPECT_EQ(SegmentSize(10 * kMiB + 512, 48 * kMiB), 12 * kMiB);
}

constexpr SplitLimits kUnlimited;
constexpr SplitLimits kLimited = {.max_split = 100 * kMiB, .max_non_split_rounding = 30 * kMiB};

TEST(NativeSizesTest, SmallBlocksSplitToTheLast512Bytes) {
  EXPECT_TRUE(ShouldSplit(2 * kMiB, 2 * kMiB - 512, /*small=*/true, kUnlimited));
  EXPECT_FALSE(ShouldSplit(2 * kMiB, 2 * kMiB, /*small=*/true, kUnlimited));
}

TEST(NativeSizesTest, LargeBlocksSplitIfMoreThanOneMiBRemains) {
  EXPECT_FALSE(ShouldSplit(20 * kMiB, 19 * kMiB, /*small=*/false, kUnlimited));
  EXPECT_TRUE(ShouldSplit(20 * kMiB, 19 * kMiB - 512, /*small=*/false, kUnlimited));
}

TEST(NativeSizesTest, RequestsOfTheSplitLimitAreNotSplitOff) {
  EXPECT_TRUE(ShouldSplit(110 * kMiB, 100 * kMiB - 512, /*small=*/false, kLimited));
  EXPECT_FALSE(ShouldSplit(110 * kMiB, 100 * kMiB, /*small=*/false, kLimited));
}

TEST(NativeSizesTest, AnOversizeBlockServesOnlyRequestsNearItsSize) {
  EXPECT_TRUE(MayServe(kGiB, 512, kUnlimited));
  EXPECT_TRUE(MayServe(100 * kMiB - 512, 2 * kMiB, kLimited));
  EXPECT_FALSE(MayServe(100 * kMiB, 2 * kMiB, kLimited));
  EXPECT_FALSE(MayServe(100 * kMiB, 100 * kMiB - 512, kLimited));
  EXPECT_TRUE(MayServe(100 * kMiB, 100 * kMiB, kLimited));
  EXPECT_TRUE(MayServe(130 * kMiB - 512, 100 * kMiB, kLimited));
  EXPECT_FALSE(MayServe(130 * kMiB, 100 * kMiB, kLimited));
}

}  // namespace
}  // namespace offcut::policy::native
