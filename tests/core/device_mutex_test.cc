#include "allocator/core/device_mutex.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace offcut {
namespace {

TEST(DeviceMutex, OneThreadAtATime) {
  DeviceMutex mutex;
  int64_t count = 0;  // not atomic: lost updates would show
  constexpr int kThreads = 8;
  constexpr int kRounds = 20'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        DeviceMutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(DeviceMutex, WhoeverWaitsOutALongHoldSeesWhatWasDoneInIt) {
  DeviceMutex mutex;
  int value = 0;
  mutex.Lock();
  std::thread waiter([&] {
    DeviceMutexLock lock(&mutex);
    EXPECT_EQ(value, 1);
    value = 2;
  });
  absl::SleepFor(absl::Milliseconds(5));  // long enough for the waiter to nap
  value = 1;
  mutex.Unlock();
  waiter.join();
  EXPECT_EQ(value, 2);
}

}  // namespace
}  // namespace offcut
