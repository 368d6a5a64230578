#include "allocator/core/free_index.h"

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace offcut {
namespace {

class FreeIndexTest : public ::testing::Test {
 protected:
  Block* Insert(DevicePtr address, Bytes size) {
    Block* block = store_.New();
    block->address = address;
    block->size = size;
    index_.Insert(block);
    return block;
  }

  BlockStore store_;
  FreeIndex index_;
};

TEST_F(FreeIndexTest, IsEmptyAtFirst) {
  EXPECT_EQ(index_.FindBestFit(1), nullptr);
  EXPECT_EQ(index_.FindLargest(), nullptr);
  EXPECT_EQ(index_.size(), 0u);
}

TEST_F(FreeIndexTest, FindsTheSmallestThatFits) {
  Insert(0x1000, 4096);
  Block* fitting = Insert(0x9000, 1536);
  Insert(0x20000, 1024);
  EXPECT_EQ(index_.FindBestFit(1025), fitting);
  EXPECT_EQ(index_.FindBestFit(1536), fitting);
}

TEST_F(FreeIndexTest, PrefersTheLowestAddressAmongEqualSizes) {
  Insert(0x9000, 1024);
  Block* lowest = Insert(0x1000, 1024);
  Insert(0x5000, 1024);
  EXPECT_EQ(index_.FindBestFit(1024), lowest);
}

TEST_F(FreeIndexTest, FindsNothingBeyondTheLargest) {
  Block* largest = Insert(0x1000, 3 * kGiB);
  Insert(0x9000, 512);
  EXPECT_EQ(index_.FindLargest(), largest);
  EXPECT_EQ(index_.FindBestFit(3 * kGiB + 512), nullptr);
}

TEST_F(FreeIndexTest, AgreesWithASortedSetOverRandomPrograms) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FreeIndex index;
    std::set<std::pair<Bytes, DevicePtr>> model;
    std::vector<Block*> inside;
    const auto random_size = [&] {
      // Few distinct sizes make deep bins, many make many.
      const Bytes units = seed % 2 == 0 ? 1 + random() % 40 : Bytes{1} << (random() % 30);
      return (units + (random() % 3)) * kBlockAlignment;
    };
    for (int step = 0; step < 4000; ++step) {
      if (inside.empty() || random() % 5 < 3) {
        Block* block = store_.New();
        block->address = (step + 1) * Bytes{0x100000};
        block->size = random_size();
        index.Insert(block);
        model.emplace(block->size, block->address);
        inside.push_back(block);
      } else {
        std::swap(inside[random() % inside.size()], inside.back());
        index.Remove(inside.back());
        model.erase({inside.back()->size, inside.back()->address});
        inside.pop_back();
      }
      const Bytes wanted = random_size();
      const auto expected = model.lower_bound({wanted, 0});
      const Block* found = index.FindBestFit(wanted);
      ASSERT_EQ(found != nullptr, expected != model.end());
      if (found != nullptr) {
        ASSERT_EQ(std::pair(found->size, found->address), *expected);
      }
      ASSERT_EQ(index.size(), model.size());
    }
    std::vector<std::pair<Bytes, DevicePtr>> in_order;
    index.ForEach([&](const Block& block) { in_order.emplace_back(block.size, block.address); });
    EXPECT_TRUE(std::equal(in_order.begin(), in_order.end(), model.begin(), model.end()));
    EXPECT_EQ(index.FindLargest()->size, model.rbegin()->first);
  }
}

}  // namespace
}  // namespace offcut
