#include "allocator/policy/growth.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace offcut::policy {
namespace {

constexpr Bytes kGranule = 2 * kMiB;
constexpr DevicePtr kOrigin = 64 * kMiB;

// A run from `kOrigin` + `offset` of pieces given by their sizes in MiB: free ones positive, gaps
// negative.
std::vector<RunPiece> RunOf(std::initializer_list<int> pieces, Bytes offset = 0) {
  std::vector<RunPiece> run;
  DevicePtr address = kOrigin + offset;
  for (const int piece : pieces) {
    const Bytes bytes = static_cast<Bytes>(piece < 0 ? -piece : piece) * kMiB;
    run.push_back({.address = address, .bytes = bytes, .gap = piece < 0});
    address += bytes;
  }
  return run;
}

std::optional<Window> Cheapest(const std::vector<RunPiece>& run, Bytes size) {
  return CheapestWindow(run, size, kOrigin, kGranule);
}

TEST(GrowthTest, MapsWholeGranulesFromTheGapsBeginning) {
  EXPECT_EQ(Cheapest(RunOf({-32}), 3 * kMiB), (Window{kOrigin, 3 * kMiB, 4 * kMiB}));
}

TEST(GrowthTest, CountsTheFreeBlockBeforeTheGap) {
  EXPECT_EQ(Cheapest(RunOf({1, -32}, kMiB), 3 * kMiB),
            (Window{kOrigin + kMiB, 3 * kMiB, 2 * kMiB}));
}

TEST(GrowthTest, GrowsFromTheEndWhereTheFreeBlockBehindMakesItCheaper) {
  EXPECT_EQ(Cheapest(RunOf({-32, 9}), 10 * kMiB),
            (Window{kOrigin + 31 * kMiB, 10 * kMiB, 2 * kMiB}));
}

TEST(GrowthTest, JoinsFreeBlocksAcrossSeveralGaps) {
  EXPECT_EQ(Cheapest(RunOf({8, -2, 8, -2, 8, -64}), 27 * kMiB),
            (Window{kOrigin, 27 * kMiB, 4 * kMiB}));
}

TEST(GrowthTest, PrefersTheLowestAddressAmongEquals) {
  EXPECT_EQ(Cheapest(RunOf({-8, 4, -8}), 4 * kMiB + kMiB)->address, kOrigin + 7 * kMiB);
  EXPECT_EQ(Cheapest(RunOf({-8}), 2 * kMiB)->address, kOrigin);
}

TEST(GrowthTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Cheapest(RunOf({1, -4}, kMiB), 6 * kMiB), std::nullopt);
  EXPECT_EQ(Cheapest({}, kMiB), std::nullopt);
}

// Against every position in steps of 1 MiB, over random runs.
TEST(GrowthTest, NoCheaperWindowExists) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<RunPiece> run;
    DevicePtr address = kOrigin + random() % 2 * kMiB;
    for (int pieces = 1 + static_cast<int>(random() % 7); pieces > 0; --pieces) {
      const bool aligned = (address - kOrigin) % kGranule == 0;
      const bool gap = aligned && random() % 2 == 0 && (run.empty() || !run.back().gap);
      if (!gap && !run.empty() && !run.back().gap) continue;
      Bytes bytes = (1 + random() % 6) * kMiB;
      if (gap) {
        bytes = RoundUp(bytes, kGranule);
      } else if ((address + bytes - kOrigin) % kGranule != 0 && random() % 4 != 0) {
        bytes += kMiB;
      }
      run.push_back({.address = address, .bytes = bytes, .gap = gap});
      address += bytes;
    }
    const Bytes size = (1 + random() % 20) * kMiB;
    std::optional<Bytes> cheapest;
    for (DevicePtr at = run.front().address; at + size <= address; at += kMiB) {
      Bytes missing = 0;
      for (const RunPiece& piece : run) {
        for (DevicePtr granule = piece.address; piece.gap && granule < piece.address + piece.bytes;
             granule += kGranule) {
          if (granule < at + size && granule + kGranule > at) missing += kGranule;
        }
      }
      if (!cheapest.has_value() || missing < *cheapest) cheapest = missing;
    }
    const std::optional<Window> window = Cheapest(run, size);
    ASSERT_EQ(window.has_value(), cheapest.has_value());
    if (window.has_value()) {
      ASSERT_EQ(window->missing_bytes, *cheapest);
    }
  }
}

TEST(GrowthTest, TheTargetsLieAboveTheLargestLive) {
  EXPECT_EQ(SoftTarget(0, /*several_streams=*/false), 16 * kMiB);
  EXPECT_EQ(WaitTarget(0), 64 * kMiB);
  EXPECT_EQ(SoftTarget(200 * kGiB, /*several_streams=*/false), 203 * kGiB);
  EXPECT_EQ(SoftTarget(200 * kGiB, /*several_streams=*/true), 209 * kGiB);
  EXPECT_EQ(WaitTarget(200 * kGiB), 209 * kGiB);
}

TEST(GrowthTest, MovingTakesOnePerCentOfTheTimeAndAHeadStart) {
  EXPECT_EQ(MoveBudget(10 * kGiB, 0, kGranule), 4 * kGiB / kGranule);
  constexpr uint64_t kSecond = 1'000'000'000;
  EXPECT_EQ(MoveBudget(0, kSecond, kGranule), 250u) << "10 ms at 40 us";
}

TEST(GrowthTest, GranulesAreAsLargeAsTheRequestAndTheStreamsAllow) {
  const auto several = [](Bytes requested) {
    return GranuleSize(requested, /*several_streams=*/true, /*limited=*/false, kGranule);
  };
  EXPECT_EQ(several(1), kGranule);
  EXPECT_EQ(several(8 * kMiB - 1), 4 * kMiB);
  EXPECT_EQ(several(8 * kMiB), 8 * kMiB);
  EXPECT_EQ(several(10 * kGiB), kGranuleMax);
  const auto one = [](Bytes requested) {
    return GranuleSize(requested, /*several_streams=*/false, /*limited=*/false, kGranule);
  };
  EXPECT_EQ(one(64 * kMiB), kGranule);
  EXPECT_EQ(one(256 * kMiB), 4 * kMiB);
  EXPECT_EQ(one(10 * kGiB), 8 * kMiB);
  EXPECT_EQ(GranuleSize(10 * kGiB, true, /*limited=*/true, kGranule), kGranule);
  EXPECT_EQ(GranuleSize(10 * kGiB, true, false, 64 * kMiB), 64 * kMiB) << "a coarser device";
}

}  // namespace
}  // namespace offcut::policy
