#include "allocator/core/address_map.h"

#include "gtest/gtest.h"

namespace offcut {
namespace {

TEST(AddressMapTest, FindsTheDeviceOfAnAddress) {
  AddressMap map;
  ASSERT_TRUE(map.Insert(0x10000, 0x1000, 0).ok());
  ASSERT_TRUE(map.Insert(0x20000, 0x1000, 5).ok());
  EXPECT_EQ(map.Find(0x10000), 0);
  EXPECT_EQ(map.Find(0x20fff), 5);
  EXPECT_EQ(map.Find(0x21000), std::nullopt);
  EXPECT_EQ(map.Find(0), std::nullopt);
}

TEST(AddressMapTest, ForgetsWhatIsRemovedAndUsesThePlaceAgain) {
  AddressMap map;
  for (DevicePtr address = 0x1000; address < 0x1000 * 20'000; address += 0x1000) {
    ASSERT_TRUE(map.Insert(address, 0x1000, 1).ok());
    map.Remove(address);
    ASSERT_EQ(map.Find(address), std::nullopt);
  }
}

TEST(AddressMapTest, SaysSoWhenItIsFull) {
  AddressMap map;
  absl::Status status;
  DevicePtr address = 0x1000;
  for (; status.ok(); address += 0x1000) status = map.Insert(address, 0x1000, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(map.Find(0x1000), 0);
}

}  // namespace
}  // namespace offcut
