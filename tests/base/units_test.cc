#include "allocator/base/units.h"

#include "allocator/base/check.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

TEST(UnitsTest, RoundsToMultiples) {
  EXPECT_EQ(RoundUp(0, 512), 0u);
  EXPECT_EQ(RoundUp(1, 512), 512u);
  EXPECT_EQ(RoundUp(512, 512), 512u);
  EXPECT_EQ(RoundDown(1023, 512), 512u);
}

TEST(CheckDeathTest, SaysWhatBrokeAndWhere) {
  OFFCUT_CHECK(1 + 1 == 2, "holds");
  EXPECT_DEATH(OFFCUT_CHECK(1 + 1 == 3, "arithmetic"), "units_test.cc:[0-9]+: 1 \\+ 1 == 3: arith");
}

}  // namespace
}  // namespace offcut
