#include "allocator/core/address_map.h"

#include "gtest/gtest.h"

namespace offcut {
namespace {

constexpr Bytes kPage = 2 * kMiB;

TEST(AddressMapTest, FindsTheDeviceOfAnAddress) {
  AddressMap map;
  ASSERT_TRUE(map.Insert(16 * kPage, 2 * kPage, 0).ok());
  ASSERT_TRUE(map.Insert(18 * kPage, kPage, 63).ok());
  EXPECT_EQ(map.Find(16 * kPage), 0);
  EXPECT_EQ(map.Find(18 * kPage - 1), 0);
  EXPECT_EQ(map.Find(18 * kPage), 63);
  EXPECT_EQ(map.Find(19 * kPage - 1), 63);
  EXPECT_EQ(map.Find(16 * kPage - 1), std::nullopt);
  EXPECT_EQ(map.Find(19 * kPage), std::nullopt);
}

TEST(AddressMapTest, AnyNumberMayBeAskedFor) {
  const AddressMap map;
  for (DevicePtr address : {DevicePtr{0}, DevicePtr{1} << 46, DevicePtr{1} << 47, ~DevicePtr{0}}) {
    EXPECT_EQ(map.Find(address), std::nullopt) << address;
  }
}

TEST(AddressMapTest, ARemovedRangeIsNobodysUntilItIsAnothers) {
  AddressMap map;
  ASSERT_TRUE(map.Insert(16 * kPage, 3 * kPage, 1).ok());
  map.Remove(16 * kPage, 3 * kPage);
  EXPECT_EQ(map.Find(17 * kPage), std::nullopt);
  ASSERT_TRUE(map.Insert(17 * kPage, kPage, 2).ok());
  EXPECT_EQ(map.Find(17 * kPage), 2);
}

// Segments of a device may share a page, and leave one by one.
TEST(AddressMapTest, ARangeThatSharesAPageLeavesItsNeighbourFound) {
  AddressMap map;
  const DevicePtr border = 16 * kPage + kMiB;
  ASSERT_TRUE(map.Insert(15 * kPage, border - 15 * kPage, 3).ok());
  ASSERT_TRUE(map.Insert(border, 18 * kPage - border, 3).ok());
  map.Remove(15 * kPage, border - 15 * kPage);
  EXPECT_EQ(map.Find(15 * kPage), std::nullopt);
  EXPECT_EQ(map.Find(border), 3);
  map.Remove(border, 18 * kPage - border);
  EXPECT_EQ(map.Find(17 * kPage), std::nullopt);
}

TEST(AddressMapTest, RefusesWhatNoProcessHas) {
  AddressMap map;
  EXPECT_TRUE(map.Insert((DevicePtr{1} << 47) - kPage, kPage, 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(map.Insert((DevicePtr{1} << 47) - kPage, 2 * kPage, 0)));
  EXPECT_TRUE(absl::IsResourceExhausted(map.Insert(~DevicePtr{0} - 10, 100, 0)));
}

}  // namespace
}  // namespace offcut
