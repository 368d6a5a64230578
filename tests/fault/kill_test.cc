// The recording against the death of its process.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <random>
#include <thread>

#include "allocator/base/clock.h"
#include "allocator/trace/recorder.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

// How far the child has come, in memory that survives it.
class Progress {
 public:
  Progress() {
    void* const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) abort();
    emitted_ = new (page) std::atomic<uint64_t>(0);
  }
  ~Progress() { munmap(emitted_, 4096); }
  void Set(uint64_t emitted) { emitted_->store(emitted, std::memory_order_release); }
  uint64_t Get() const { return emitted_->load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t>* emitted_;
};

// Records until it is killed. Chunks are made all the time, by the flushes, beside the producer.
[[noreturn]] void RecordForEver(const std::string& directory, Progress& progress) {
  auto recorder = Recorder::Start(directory, "{}", Clock::Real(),
                                  {.ring_events = 1 << 12, .chunk_events = 300});
  if (!recorder.ok()) _exit(1);
  auto sink = (*recorder)->SinkFor(0, "simulated", 0);
  if (!sink.ok()) _exit(2);
  std::thread flusher([&recorder] {
    for (;;) (*recorder)->Flush();
  });
  for (uint64_t i = 0;; ++i) {
    (*sink)->OnEvent(EventNumber(i));
    progress.Set(i + 1);
    // No more than a ring full between two flushes, so that nothing is dropped.
    if (i % 2048 == 2047) (*recorder)->Flush();
  }
}

TEST(KillTest, EveryEventWhosePushReturnedReadsBackInOrderAndOnce) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  uint64_t in_rings = 0;
  for (int round = 0; round < 60; ++round) {
    TemporaryDirectory directory;
    Progress progress;
    const pid_t child = fork();
    if (child == 0) RecordForEver(directory.path(), progress);
    // Any instruction will do: the instant depends on the scheduler alone.
    const uint64_t enough = random() % 20000;
    while (progress.Get() < enough) std::this_thread::yield();
    for (uint64_t spin = random() % 100000; spin > 0; --spin) asm volatile("");
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << status;

    const auto files = FindTraceFiles(directory.path());
    if (!files.ok() && progress.Get() == 0) continue;  // killed before there was a file
    ASSERT_TRUE(files.ok()) << files.status();
    if (progress.Get() == 0 && ReadFile(files->at(0)).empty()) continue;
    const ReadBack read = ReadAll(files->at(0));
    ASSERT_EQ(read.summary.problem, "");
    ASSERT_EQ(read.summary.dropped_events, 0);
    ASSERT_FALSE(read.summary.closed);
    ASSERT_GE(read.events.size(), progress.Get());
    ASSERT_LE(read.events.size(), progress.Get() + 1) << "one may be stored and not yet reported";
    ASSERT_EQ(read.events, EventNumbers(0, read.events.size()));
    in_rings += read.summary.ring_events;
  }
  EXPECT_GT(in_rings, 0) << "no kill came while events were in the ring: the test proves nothing";
}

}  // namespace
}  // namespace offcut
