#include "visualizer/cli/range_set.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace offcut {
namespace {

// The same answers as a bit per address gives.
TEST(RangeSetTest, AgreesWithABitPerAddress) {
  constexpr size_t kAddresses = 40;
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    RangeSet ranges;
    std::bitset<kAddresses> bits;
    for (int i = 0; i < 40; ++i) {
      const DevicePtr begin = random() % (kAddresses - 1);
      const DevicePtr end = begin + 1 + random() % (kAddresses - begin - 1);
      std::bitset<kAddresses> asked;
      for (DevicePtr at = begin; at < end; ++at) asked.set(at);
      const bool present = (bits & asked) == asked;
      const bool absent = (bits & asked).none();
      ASSERT_EQ(ranges.Covers(begin, end), present);
      ASSERT_EQ(ranges.Intersects(begin, end), !absent);
      if (random() % 2 == 0) {
        ASSERT_EQ(ranges.Add(begin, end), absent);
        bits |= asked;
      } else {
        ASSERT_EQ(ranges.Remove(begin, end), present);
        bits &= ~asked;
      }
    }
  }
}

}  // namespace
}  // namespace offcut
