// What a request of many granules leaves to others while its driver calls are made, and what
// remains of it when one fails.

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "allocator/core/audit.h"
#include "allocator/core/granule_pool.h"
#include "gtest/gtest.h"
#include "tests/core/world.h"

namespace offcut {
namespace {

constexpr uint64_t kLagNs = 1'000'000'000;
constexpr Bytes kGranule = 2 * kMiB;
// Under a limit all granules have 2 MiB.
constexpr Bytes kLimit = 512 * kMiB;
constexpr Bytes kMany = 2 * GranulePool::kMostUnderLock * kGranule;

// At each of some calls that one thread makes, another thread gets a turn.
class TurnGivingDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  // From now on, for calls of the calling thread.
  void GiveTurns(std::vector<DriverCall> calls, std::function<void()> turn, int most = 1'000'000) {
    calls_ = std::move(calls);
    turns_ = 0;
    most_ = most;
    turn_ = std::move(turn);
    giver_ = std::this_thread::get_id();
  }
  void Stop() {
    calls_.clear();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int turns() const { return turns_; }
  int turns_missed() const { return turns_missed_; }

 private:
  absl::Status Before(DriverCall call) override {
    if (std::this_thread::get_id() != giver_) return absl::OkStatus();
    if (turns_ == most_) return absl::OkStatus();
    if (std::find(calls_.begin(), calls_.end(), call) == calls_.end()) return absl::OkStatus();
    auto taken = std::make_shared<absl::Notification>();
    threads_.emplace_back([this, taken] {
      turn_();
      taken->Notify();
    });
    ++turns_;
    // Long, so that only a lock that is held makes it miss: then it comes after the request.
    if (!taken->WaitForNotificationWithTimeout(absl::Seconds(turns_missed_ == 0 ? 20 : 0))) {
      ++turns_missed_;
    }
    return absl::OkStatus();
  }

  std::vector<DriverCall> calls_;
  std::function<void()> turn_;
  std::thread::id giver_;
  std::vector<std::thread> threads_;
  int turns_ = 0;
  int most_ = 0;
  int turns_missed_ = 0;
};

class LargeRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Config config = *Config::Parse({});
    auto created =
        DeviceAllocator::Create(driver_, 0, clock_, address_map_, config, {&witnesses_}, kLimit);
    ASSERT_TRUE(created.ok()) << created.status();
    allocator_ = *std::move(created);
    // The turns find a slot.
    ASSERT_TRUE(allocator_->Allocate(nullptr, 700).ok());
  }

  DevicePtr Allocate(Bytes bytes) {
    const absl::StatusOr<DevicePtr> address = allocator_->Allocate(nullptr, bytes);
    EXPECT_TRUE(address.ok()) << address.status();
    Check();
    return address.value_or(0);
  }
  void Check() {
    const StateView view = allocator_->View();
    const absl::Status agreed = witnesses_.Check(view);
    EXPECT_TRUE(agreed.ok()) << agreed;
    const absl::Status books = CheckDriverBooks(sim_.model(), {view});
    EXPECT_TRUE(books.ok()) << books;
  }
  // A thread that allocates and frees, and looks whether the state holds together meanwhile.
  std::function<void()> Pair() {
    return [this] {
      const absl::StatusOr<DevicePtr> block = allocator_->Allocate(nullptr, 700);
      EXPECT_TRUE(block.ok()) << block.status();
      const absl::Status audit = Audit(allocator_->View());
      EXPECT_TRUE(audit.ok()) << audit;
      EXPECT_TRUE(allocator_->Free(*block).ok());
    };
  }
  void ExpectAllTurnsTaken(int least) {
    driver_.Stop();
    EXPECT_GE(driver_.turns(), least);
    EXPECT_EQ(driver_.turns_missed(), 0);
    Check();
  }

  SimDriver sim_{{.memory_bytes = kGiB, .lag_ns = kLagNs, .outside_bytes = 0}};
  TurnGivingDriver driver_{&sim_};
  Clock clock_ = sim_.clock();
  AddressMap address_map_;
  Witnesses witnesses_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

TEST_F(LargeRequestTest, GrowingLeavesTheLockToOthers) {
  driver_.GiveTurns({DriverCall::kCreateMemory, DriverCall::kMap, DriverCall::kSetAccess}, Pair());
  Allocate(kMany);
  ExpectAllTurnsTaken(2 * kMany / kGranule + 1);
}

TEST_F(LargeRequestTest, MovingAndUnmappingLeaveTheLockToOthers) {
  constexpr Bytes kHalf = (GranulePool::kMostUnderLock + 1) * kGranule;
  const DevicePtr first = Allocate(kHalf);
  Allocate(kGranule);
  const DevicePtr second = Allocate(kHalf);
  Allocate(kLimit - allocator_->counters().reserved_bytes[0].current);
  ASSERT_TRUE(allocator_->Free(first).ok());
  ASSERT_TRUE(allocator_->Free(second).ok());
  driver_.GiveTurns({DriverCall::kMap, DriverCall::kSetAccess}, Pair());
  const DevicePtr both = Allocate(2 * kHalf);
  EXPECT_EQ(allocator_->counters().moves, 2 * kHalf / kGranule);
  ExpectAllTurnsTaken(2 * kHalf / kGranule + 1);
  // The old mappings go with the next request that no free block serves, once the device has passed
  // the move.
  ASSERT_TRUE(allocator_->Free(both).ok());
  sim_.AdvanceNs(2 * kLagNs);
  driver_.GiveTurns({DriverCall::kUnmap}, Pair(), 2 * kHalf / kGranule);
  Allocate(kMiB);
  Allocate(kMiB);
  ExpectAllTurnsTaken(2 * kHalf / kGranule);
  EXPECT_LE(allocator_->counters().old_mapping_bytes[0].current, kGranule) << "of that request";
}

// Two threads that grow at once do not pass the limit together.
TEST_F(LargeRequestTest, WhatOthersAreGrowingByCountsForTheLimit) {
  const Bytes most = kLimit / 3 * 2;
  int refused = 0;
  driver_.GiveTurns({DriverCall::kCreateMemory}, [&] {
    const absl::StatusOr<DevicePtr> block = allocator_->Allocate(nullptr, most);
    if (!block.ok()) ++refused;
  });
  ASSERT_TRUE(allocator_->Allocate(nullptr, most).ok());
  driver_.Stop();
  EXPECT_GT(refused, 0);
  EXPECT_EQ(refused, driver_.turns());
  EXPECT_LE(static_cast<Bytes>(allocator_->counters().reserved_bytes[0].peak), kLimit);
  Check();
}

// The n-th call of a large request fails, for every n: it is undone, and the next request is
// served.
TEST(LargeRequestFaultTest, ARequestOfManyGranulesIsUndoneWhereverItFails) {
  for (const bool moving : {false, true}) {
    bool failed = true;
    for (uint64_t nth = 1; failed; ++nth) {
      World world({.memory_bytes = kGiB, .lag_ns = kLagNs, .limit = 2 * kMany});
      DevicePtr block = 0;
      if (moving) {
        block = world.Allocate(kMany);
        world.Allocate(kMany - 4 * kGranule);
        world.Free(block);
      }
      const uint64_t faults = world.driver.FaultCount();
      world.driver.Inject({.nth = nth, .times = 2});
      const absl::StatusOr<DevicePtr> large =
          world.allocator->Allocate(nullptr, kMany + (moving ? kGranule : 0));
      failed = world.driver.FaultCount() > faults;
      world.driver.ClearFaults();
      world.Check();
      if (large.ok()) {
        world.Free(*large);
      } else {
        EXPECT_TRUE(failed);
      }
      world.Free(world.Allocate(kMany));
    }
  }
}

}  // namespace
}  // namespace offcut
