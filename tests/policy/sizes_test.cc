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

}  // namespace
}  // namespace offcut::policy
