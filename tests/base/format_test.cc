#include "allocator/base/format.h"

#include "gtest/gtest.h"

namespace offcut {
namespace {

TEST(FormatBytesTest, ChoosesTheUnitBySize) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(20 * kMiB), "20.00 MiB");
  EXPECT_EQ(FormatBytes(2 * kGiB - kGiB / 20), "1.95 GiB");
  EXPECT_EQ(FormatBytes(2048 * kGiB), "2048.00 GiB");
}

}  // namespace
}  // namespace offcut
