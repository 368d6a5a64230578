#include "allocator/events/accounting.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace offcut {
namespace {

constexpr Bytes kGranule = 2 * kMiB;

TEST(AccountingTest, EachByteCountsForTheFirstTermThatFits) {
  const std::vector<AccountedBlock> blocks = {
      {.address = 2 * kGranule, .size = kMiB, .requested = kMiB - 100},
      {.address = 3 * kGranule, .size = 512, .requested = 512, .pending = true}};
  const std::vector<AccountedGranule> granules = {
      {.address = 0, .size = kGranule},  // held, mapped nowhere
      {.address = 2 * kGranule, .size = kGranule},
      {.address = 3 * kGranule, .size = kGranule},
      {.address = 4 * kGranule, .size = kGranule}};
  const Accounting sum = ComputeAccounting(blocks, granules, {}, 5 * kGranule);
  EXPECT_EQ(sum.live_bytes, kMiB - 100);
  EXPECT_EQ(sum.rounding_bytes, 100u);
  EXPECT_EQ(sum.pending_bytes, 512u);
  EXPECT_EQ(sum.pinned_bytes, kMiB + (kGranule - 512));
  EXPECT_EQ(sum.idle_bytes, 2 * kGranule);
  EXPECT_EQ(sum.reserved_bytes, 4 * kGranule);
  EXPECT_EQ(sum.outside_bytes, static_cast<int64_t>(kGranule));
}

TEST(AccountingTest, ABlockMayReachOverManyGranules) {
  const std::vector<AccountedBlock> blocks = {
      {.address = kGranule + 512, .size = 2 * kGranule, .requested = 2 * kGranule}};
  const std::vector<AccountedGranule> granules = {{.address = kGranule, .size = kGranule},
                                                  {.address = 2 * kGranule, .size = kGranule},
                                                  {.address = 3 * kGranule, .size = kGranule},
                                                  {.address = 4 * kGranule, .size = kGranule}};
  const Accounting sum = ComputeAccounting(blocks, granules, {}, 0);
  EXPECT_EQ(sum.pinned_bytes, kGranule);
  EXPECT_EQ(sum.idle_bytes, kGranule);
}

TEST(AccountingTest, TheTermsAddUpOverRandomLayouts) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<AccountedGranule> granules;
    std::vector<AccountedBlock> blocks;
    DevicePtr address = kGranule;
    for (int run = 0; run < 10; ++run) {
      address += kGranule * (1 + random() % 3);
      const DevicePtr begin = address;
      for (Bytes i = 0; i < 1 + random() % 5; ++i, address += kGranule) {
        granules.push_back({.address = address, .size = kGranule});
      }
      for (DevicePtr at = begin; at < address;) {
        const Bytes size = std::min<Bytes>((1 + random() % 6000) * kBlockAlignment, address - at);
        if (random() % 2 == 0) {
          blocks.push_back({.address = at,
                            .size = size,
                            .requested = size - random() % kBlockAlignment,
                            .pending = random() % 4 == 0});
        }
        at += size;
      }
    }
    const Accounting sum = ComputeAccounting(blocks, granules, {}, 1000 * kGranule);
    EXPECT_EQ(
        sum.live_bytes + sum.rounding_bytes + sum.pending_bytes + sum.pinned_bytes + sum.idle_bytes,
        sum.reserved_bytes);
    EXPECT_EQ(static_cast<int64_t>(sum.reserved_bytes) + sum.outside_bytes,
              static_cast<int64_t>(sum.device_used_bytes));
  }
}

}  // namespace
}  // namespace offcut
