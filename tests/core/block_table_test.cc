#include "allocator/core/block_table.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace offcut {
namespace {

Block BlockAt(DevicePtr address) {
  Block block;
  block.address = address;
  return block;
}

std::map<DevicePtr, Block*> Listed(const BlockTable& table) {
  std::map<DevicePtr, Block*> listed;
  table.ForEach([&](DevicePtr address, Block* block) { listed.emplace(address, block); });
  return listed;
}

TEST(BlockTableTest, FindsWhatIsInItAndNothingElse) {
  BlockTable table;
  Block one = BlockAt(512), other = BlockAt(0x7F0000000200);
  table.Insert(&one);
  table.Insert(&other);
  EXPECT_EQ(table.Find(512), &one);
  EXPECT_EQ(table.Find(0x7F0000000200), &other);
  EXPECT_EQ(table.Find(1024), nullptr);
  table.Remove(&one);
  EXPECT_EQ(table.Find(512), nullptr);
  EXPECT_EQ(table.Find(0x7F0000000200), &other);
  EXPECT_EQ(table.size(), 1u);
}

TEST(BlockTableTest, AnyNumberMayBeAskedFor) {
  BlockTable table;
  Block block = BlockAt(1024);
  table.Insert(&block);
  // Within the block, between blocks, no address at all.
  for (DevicePtr address : {DevicePtr{1025}, DevicePtr{1536}, DevicePtr{0}, ~DevicePtr{0}}) {
    EXPECT_EQ(table.Find(address), nullptr) << address;
  }
}

// Random insertions and removals among addresses that share places, against std::map.
TEST(BlockTableTest, DoesAsAMapDoesHoweverBlocksComeAndGo) {
  for (const DevicePtr stride : {Bytes{512}, 2 * kMiB, Bytes{512} << 21, kGiB}) {
    std::mt19937_64 random(1);
    BlockTable table;
    std::vector<Block> blocks;
    for (DevicePtr i = 1; i <= 3000; ++i) blocks.push_back(BlockAt(i * stride));
    std::map<DevicePtr, Block*> expected;
    for (int step = 0; step < 30'000; ++step) {
      // In waves, so that it grows, empties and fills again.
      const bool fills = step / 5000 % 2 == 0;
      Block& block = blocks[random() % blocks.size()];
      const bool inside = expected.contains(block.address);
      ASSERT_EQ(table.Find(block.address), inside ? &block : nullptr) << stride << ", " << step;
      if (inside && (!fills || random() % 4 == 0)) {
        table.Remove(&block);
        expected.erase(block.address);
      } else if (!inside && (fills || random() % 4 == 0)) {
        table.Insert(&block);
        expected.emplace(block.address, &block);
      }
      ASSERT_EQ(table.size(), expected.size());
      if (step % 1000 == 0) {
        ASSERT_EQ(Listed(table), expected) << stride << ", " << step;
      }
    }
    for (Block& block : blocks) {
      EXPECT_EQ(table.Find(block.address), expected.contains(block.address) ? &block : nullptr);
    }
  }
}

}  // namespace
}  // namespace offcut
