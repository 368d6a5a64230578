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
  ExpectWrong(claims_.Claim(2, base_ + 1024, 1024, kMain), "memory of block 1, which is not freed");
  ExpectWrong(claims_.Claim(3, base_, 1024, kMain), "memory of block 1, which is not freed");
  ExpectWrong(claims_.Claim(4, base_, kGranule, kMain), "memory of block 1, which is not freed");
}

TEST_F(ClaimsTest, FindsABlockThatOverlapsAnotherThroughASecondMapping) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  ExpectWrong(claims_.Claim(2, base_ + kGranule, 512, kMain), "memory of block 1");
  ExpectWrong(claims_.Claim(3, base_ + 512, kGranule + 512, kMain), "memory of block");
}

TEST_F(ClaimsTest, FindsABlockThatIsItsOwnNeighbour) {
  ExpectWrong(claims_.Claim(1, base_, 2 * kGranule, kMain), "memory of block 1");
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
  ExpectWrong(claims_.Claim(2, base_ + kGranule + 512, 512, kSide), "uses for 1 ns more");
}

TEST_F(ClaimsTest, StreamOrderCarriesUsesOn) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  // The same stream may have it at once, ...
  ASSERT_TRUE(claims_.Claim(2, base_, 512, kMain).ok());
  ASSERT_TRUE(claims_.Free(2).ok());
  // ... but no other, though block 2 itself was never used.
  ExpectWrong(claims_.Claim(3, base_, 512, kSide), "uses for 100 ns more");
}

TEST_F(ClaimsTest, FindsAUseOnAnotherStreamThatIsNotDone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 4096, kMain).ok());
  ASSERT_TRUE(claims_.Use(1, kSide, 100).ok());
  ASSERT_TRUE(claims_.Free(1).ok());
  ExpectWrong(claims_.Claim(2, base_, 4096, kMain), "work on stream id 8 uses");
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
  ExpectWrong(claims_.Claim(1, base_ + 2 * kGranule - 512, 1024, kMain), "no memory stands behind");
}

TEST_F(ClaimsTest, PruningForgetsOnlyWhatIsDone) {
  ASSERT_TRUE(claims_.Claim(1, base_, 512, kMain).ok());
  ASSERT_TRUE(claims_.Claim(2, base_ + 512, 512, kMain).ok());
  ASSERT_TRUE(claims_.Use(2, kMain, 100).ok());
  ASSERT_TRUE(claims_.Free(2).ok());
  claims_.Prune();
  ExpectWrong(claims_.Claim(3, base_, 512, kMain), "which is not freed");
  ExpectWrong(claims_.Claim(4, base_ + 512, 512, kSide), "uses for 100 ns more");
}

}  // namespace
}  // namespace offcut::fuzz
