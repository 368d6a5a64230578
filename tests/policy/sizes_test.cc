#include "allocator/policy/sizes.h"

#include "gtest/gtest.h"

namespace offcut::policy {
namespace {

TEST(SizesTest, ASlotHoldsItsRequestAndIsTheSmallestThatDoes) {
  for (Bytes requested = 1; requested <= kSlotMax; ++requested) {
    const size_t slot_class = SlotClassFor(requested);
    ASSERT_GE(SlotSize(slot_class), requested);
    if (slot_class > 0) {
      ASSERT_LT(SlotSize(slot_class - 1), requested);
    }
  }
}

TEST(SizesTest, SlabsAreWholeSlotsAndFitIntoAGranule) {
  for (size_t slot_class = 0; slot_class < kSlotClasses; ++slot_class) {
    EXPECT_EQ(SlabSize(slot_class) % SlotSize(slot_class), 0u);
    EXPECT_GE(SlabSize(slot_class) / SlotSize(slot_class), 16u);
    EXPECT_LE(SlabSize(slot_class), kMiB);
  }
}

TEST(SizesTest, BlocksAreMultiplesOf512) {
  for (Bytes requested : {Bytes{1}, Bytes{512}, Bytes{513}, kSlotMax, kSlotMax + 1, kMiB, kMiB + 1,
                          3 * kGiB + 7, kRequestMax}) {
    EXPECT_EQ(BlockSize(requested) % kBlockAlignment, 0u);
    EXPECT_GE(BlockSize(requested), requested);
  }
  EXPECT_EQ(BlockSize(kMiB + 1), kMiB + 512);
}

TEST(SizesTest, ARequestAboveASlotLosesLessThan512Bytes) {
  EXPECT_EQ(BlockSize(kSlotMax + 1), kSlotMax + 512);
  EXPECT_EQ(BlockSize(7 * kMiB - 1), 7 * kMiB);
}

}  // namespace
}  // namespace offcut::policy
