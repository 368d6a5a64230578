#include "allocator/events/counter_fold.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace offcut {
namespace {

Event OfBlock(EventKind kind, Bytes requested) {
  const Bytes size = RoundUp(requested, kBlockAlignment);
  return {.bytes = requested, .extra = static_cast<uint32_t>(size / kBlockAlignment), .kind = kind};
}

TEST(CounterFoldTest, AfterEveryEventItIsWhatTheDefinitionSays) {
  std::mt19937_64 random(1);
  const std::vector<Event> others = {
      {.kind = EventKind::kPeaksReset},
      {.kind = EventKind::kTotalsReset},
      {.bytes = 2 * kMiB, .extra = 1, .kind = EventKind::kGranuleCreated},
      {.bytes = 7, .kind = EventKind::kLimitSet},
      {.kind = EventKind::kInvalidFreeIgnored},
  };
  CounterFold fold;
  Counters definition;
  std::vector<Bytes> live, pending;
  const auto take_one = [&](std::vector<Bytes>& from) {
    std::swap(from[random() % from.size()], from.back());
    const Bytes requested = from.back();
    from.pop_back();
    return requested;
  };
  const auto apply = [&](const Event& event) {
    fold.Apply(event);
    definition.Apply(event);
  };
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t dice = random() % 100;
    if (dice < 45 || live.empty()) {
      live.push_back(1 + random() % (4 * kMiB));  // small and large ones
      apply(OfBlock(EventKind::kBlockAllocated, live.back()));
    } else if (dice < 85) {
      apply(OfBlock(EventKind::kBlockFreed, take_one(live)));
    } else if (dice < 90) {
      pending.push_back(take_one(live));
      apply(OfBlock(EventKind::kBlockFreePended, pending.back()));
    } else if (dice < 95 && !pending.empty()) {
      apply(OfBlock(EventKind::kPendingFreeFinished, take_one(pending)));
    } else {
      apply(others[random() % others.size()]);
    }
    // Long stretches are not looked at: reading must not be what keeps it right.
    if (step % 1000 > 900) {
      ASSERT_EQ(fold.Read(), definition) << "step " << step;
    }
  }
}

TEST(CounterFoldTest, APeakBetweenTwoLooksIsKept) {
  CounterFold fold;
  fold.Apply(OfBlock(EventKind::kBlockAllocated, 1000));
  fold.Apply(OfBlock(EventKind::kBlockAllocated, 2 * kMiB));
  fold.Apply(OfBlock(EventKind::kBlockFreed, 2 * kMiB));
  EXPECT_EQ(fold.Read().live_bytes[0].peak, static_cast<int64_t>(1000 + 2 * kMiB));
  fold.Apply({.kind = EventKind::kPeaksReset});
  EXPECT_EQ(fold.Read().live_bytes[0], (Gauge{1000, 1000, 1000 + 2 * kMiB, 2 * kMiB}));
}

}  // namespace
}  // namespace offcut
