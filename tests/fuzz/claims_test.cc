// The claim checker must be able to fail: each way of giving one byte two owners.

#include "tests/fuzz/claims.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut::fuzz {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kGranule = sim::kGranularity;
constexpr StreamId kMain = 7, kSide = 8;

class ClaimsTest : public testing::Test {
 protected:
  // One granule, mapped at both addresses.
  ClaimsTest() {
    base_ = *memory_.ReserveAddress(0, 4 * kGranule, 0, 0);
    handle_ = *memory_.CreateMemory(0, kGranule);
    MapAt(base_);
    MapAt(base_ + kGranule);
  }

  void MapAt(DevicePtr address) {
    EXPECT_TRUE(memory_.Map(address, kGranule, 0, handle_).ok());
    EXPECT_TRUE(memory_.SetAccess(address, kGranule, 0, sim::Access::kReadWrite).ok());
  }

  static void ExpectWrong(const absl::Status& status, const char* what) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }

  sim::SimClock clock_{sim::ClockKind::kVirtual};
  sim::MemoryModel memory_{{}, nullptr, &clock_, 0x2000'0000'0000};
  Claims claims_{memory_, clock_};
  DevicePtr base_ = 0;
  PhysicalHandle handle_ = 0;
};

TEST_F(ClaimsTest, BlocksSideBySideAreFine) {
  EXPECT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  EXPECT_TRUE(claims_.Claim(2, base_ + 512, 1024, kSide).ok());
  EXPECT_TRUE(claims_.Free(1).ok());
  EXPECT_TRUE(claims_.Claim(3, base_, 512, kSide).ok());
}

TEST_F(ClaimsTest, FindsABlockThatOverlapsAnother) {
  ASSERT_TRUE(claims_.Claim(1, base_ + 512, 1024, kMain).ok());
  ExpectWrong(claims_.Claim(2, base_ + 1024, 1024, kMain).status(),
              "memory of block 1, which is not freed");
  ExpectWrong(claims_.Claim(3, base_, 1024, kMain).status(),
              "memory of block 1, which is not freed");
  ExpectWrong(claims_.Claim(4, base_, kGranule, kMain).status(),
              "memory of block 1, which is not freed");
}

TEST_F(ClaimsTest, FindsABlockThatOverlapsAnotherThroughASecondMapping) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  ExpectWrong(claims_.Claim(2, base_ + kGranule, 512, kMain).status(), "memory of block 1");
  ExpectWrong(claims_.Claim(3, base_ + 512, kGranule + 512, kMain).status(), "memory of block");
}

TEST_F(ClaimsTest, FindsABlockThatIsItsOwnNeighbour) {
  ExpectWrong(claims_.Claim(1, base_, 2 * kGranule, kMain).status(), "memory of block 1");
}

TEST_F(ClaimsTest, MemoryPassesToAnotherStreamOnceItsUsesAreDone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  clock_.Advance(100);
  EXPECT_TRUE(claims_.Claim(2, base_, 4096, kSide).ok());
}

TEST_F(ClaimsTest, FindsMemoryThatPassesToAnotherStreamTooEarly) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  clock_.Advance(99);
  ExpectWrong(claims_.Claim(2, base_ + kGranule + 512, 512, kSide).status(), "uses for 1 ns more");
}

TEST_F(ClaimsTest, StreamOrderCarriesUsesOn) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  // The same stream may have it at once, ...
  ASSERT_TRUE(claims_.Claim(2, base_, 512, kMain).ok());
  ASSERT_TRUE(claims_.Free(2).ok());
  // ... but no other, though block 2 itself was never used.
  ExpectWrong(claims_.Claim(3, base_, 512, kSide).status(), "uses for 100 ns more");
}

TEST_F(ClaimsTest, FindsAUseOnAnotherStreamThatIsNotDone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kSide, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  ExpectWrong(claims_.Claim(2, base_, 4096, kMain).status(), "work on stream id 8 uses");
}

TEST_F(ClaimsTest, AJoinedUseIsOneOfTheOwnStream) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kSide, 100).ok());
  ASSERT_TRUE(claims_.Join(1, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  EXPECT_TRUE(claims_.Claim(2, base_, 4096, kMain).ok());
}

TEST_F(ClaimsTest, FindsALiveBlockWhoseMemoryIsExchanged) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(memory_.Unmap(base_, kGranule).ok());
  ExpectWrong(claims_.Free(1), "no memory stands behind");
  handle_ = *memory_.CreateMemory(0, kGranule);
  MapAt(base_);
  ExpectWrong(claims_.Use(1, kMain, 1), "other memory than at its allocation");
}

TEST_F(ClaimsTest, FindsABlockWithoutMemory) {
  ExpectWrong(claims_.Claim(1, base_ + 2 * kGranule - 512, 1024, kMain).status(),
              "no memory stands behind");
}

TEST_F(ClaimsTest, PruningForgetsOnlyWhatIsDone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  ASSERT_TRUE(claims_.Claim(2, base_ + 512, 512, kMain).ok());
  ASSERT_TRUE(claims_.Use(2, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(2).ok());
  claims_.Prune();
  ExpectWrong(claims_.Claim(3, base_, 512, kMain).status(), "which is not freed");
  ExpectWrong(claims_.Claim(4, base_ + 512, 512, kSide).status(), "uses for 100 ns more");
}

TEST_F(ClaimsTest, FindsMemoryOfOnePoolThatServesAnother) {
  ASSERT_EQ(claims_.Claim(1, base_, 512, kMain, /*pool=*/7).value_or(0), 7u);
  EXPECT_TRUE(claims_.Free(1).ok());
  ExpectWrong(claims_.Claim(2, base_ + 512, 512, kMain).status(), "got memory of pool 7");
  ExpectWrong(claims_.Claim(2, base_, 512, kMain, 8).status(), "got memory of pool 7");
  claims_.ReleasePool(7);
  ExpectWrong(claims_.Claim(2, base_, 512, kMain).status(), "got memory of pool 7");
}

TEST_F(ClaimsTest, FindsMemoryOfTheDefaultPoolsThatServesAPrivateOne) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  ExpectWrong(claims_.Claim(2, base_ + 512, 512, kMain, 7).status(), "got memory of pool 0");
}

TEST_F(ClaimsTest, APoolMayLendToTheDefaultPools) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain, /*pool=*/7).ok());
  claims_.SetLends(7, true);
  EXPECT_EQ(claims_.Claim(2, base_ + 512, 512, kMain).value_or(0), 7u) << "whose memory it stays";
  ExpectWrong(claims_.Claim(3, base_ + 1024, 512, kMain, 8).status(), "got memory of pool 7");
  claims_.SetLends(7, false);
  ExpectWrong(claims_.Claim(4, base_ + 1024, 512, kMain).status(), "got memory of pool 7");
}

TEST_F(ClaimsTest, FindsMemoryOfAPoolInUseThatIsGone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain, /*pool=*/7).ok());
  EXPECT_TRUE(claims_.Free(1).ok());
  ASSERT_EQ(claims_.MemoryOf(7).size(), 1u);
  EXPECT_EQ(claims_.MemoryOf(7).front().address, base_);
  EXPECT_EQ(claims_.MemoryOf(7).front().bytes, kGranule);
  EXPECT_TRUE(claims_.CheckPools().ok());
  ASSERT_TRUE(memory_.Unmap(base_, kGranule).ok());
  ExpectWrong(claims_.CheckPools(), "memory of private pool 7");
  claims_.ReleasePool(7);
  EXPECT_TRUE(claims_.CheckPools().ok());
  claims_.Prune();
  EXPECT_TRUE(claims_.MemoryOf(7).empty());
}

}  // namespace
}  // namespace offcut::fuzz
