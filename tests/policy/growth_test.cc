#include "allocator/policy/growth.h"

#include "gtest/gtest.h"

namespace offcut::policy {
namespace {

constexpr Bytes kGranule = 2 * kMiB;
constexpr DevicePtr kGap = 64 * kMiB;

TEST(GrowthTest, MapsWholeGranulesFromTheGapsBeginning) {
  EXPECT_EQ(GrowIntoGap({.gap = kGap, .gap_bytes = 32 * kMiB}, 3 * kMiB, kGranule),
            (Growth{kGap, 4 * kMiB}));
}

TEST(GrowthTest, CountsTheFreeBlockBeforeTheGap) {
  EXPECT_EQ(
      GrowIntoGap({.gap = kGap, .gap_bytes = 32 * kMiB, .free_before = kMiB}, 3 * kMiB, kGranule),
      (Growth{kGap, 2 * kMiB}));
}

TEST(GrowthTest, GrowsFromTheEndWhereTheFreeBlockBehindMakesItCheaper) {
  EXPECT_EQ(GrowIntoGap({.gap = kGap, .gap_bytes = 32 * kMiB, .free_behind = 9 * kMiB}, 10 * kMiB,
                        kGranule),
            (Growth{kGap + 30 * kMiB, 2 * kMiB}));
}

TEST(GrowthTest, PrefersTheBeginningAmongEqualCosts) {
  EXPECT_EQ(
      GrowIntoGap({.gap = kGap, .gap_bytes = 32 * kMiB, .free_before = kMiB, .free_behind = kMiB},
                  3 * kMiB, kGranule),
      (Growth{kGap, 2 * kMiB}));
}

TEST(GrowthTest, TakesTheWholeGapIfOnlyBothNeighboursMakeRoom) {
  EXPECT_EQ(
      GrowIntoGap(
          {.gap = kGap, .gap_bytes = 4 * kMiB, .free_before = 3 * kMiB, .free_behind = 3 * kMiB},
          10 * kMiB, kGranule),
      (Growth{kGap, 4 * kMiB}));
}

TEST(GrowthTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(
      GrowIntoGap({.gap = kGap, .gap_bytes = 4 * kMiB, .free_before = kMiB}, 6 * kMiB, kGranule),
      std::nullopt);
}

// Against trying every possible range.
TEST(GrowthTest, NoCheaperRangeExists) {
  for (Bytes gap = 1; gap <= 6; ++gap) {
    for (Bytes before = 0; before <= 7; ++before) {
      for (Bytes behind = 0; behind <= 7; ++behind) {
        for (Bytes size = 1; size <= 24; ++size) {
          const GapNeighborhood around = {.gap = kGap,
                                          .gap_bytes = gap * kGranule,
                                          .free_before = before * kMiB,
                                          .free_behind = behind * kMiB};
          const auto growth = GrowIntoGap(around, size * kMiB, kGranule);
          std::optional<Bytes> cheapest;
          for (Bytes first = 0; first < gap; ++first) {
            for (Bytes count = 1; first + count <= gap; ++count) {
              Bytes room = count * kGranule;
              if (first == 0) room += around.free_before;
              if (first + count == gap) room += around.free_behind;
              if (room >= size * kMiB && (!cheapest || count < *cheapest)) cheapest = count;
            }
          }
          // Where a free neighbour alone serves the request, nobody asks for growth.
          if (size <= before || size <= behind) continue;
          ASSERT_EQ(growth.has_value(), cheapest.has_value());
          if (growth.has_value()) {
            ASSERT_EQ(growth->bytes, *cheapest * kGranule);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace offcut::policy
