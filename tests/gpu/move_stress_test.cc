// The whole allocator on hardware with hardly more memory than what is live, so that granules move
// all the time while kernels are far behind the host: blocks are filled with patterns of their own
// when they are allocated and checked before they are freed, on several streams and threads.
//
// OFFCUT_STRESS_SECONDS: how long, 20 unless given. OFFCUT_STRESS_LIE=1: with a driver that says of
// every event that it is done; the test then fails, which another test asserts.

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/clock.h"
#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/forwarding_driver.h"
#include "gtest/gtest.h"
#include "tests/core/witnesses.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/pattern_kernels.h"

namespace offcut {
namespace {

using Seconds = std::chrono::duration<double>;

// Says of events that they are done, whether they are or not.
class LyingDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::StatusOr<bool> QueryEvent(DeviceIndex device, EventHandle event) override { return true; }
};

constexpr char kLie[] = "OFFCUT_STRESS_LIE";

double StressSeconds() {
  const char* seconds = getenv("OFFCUT_STRESS_SECONDS");
  return seconds != nullptr ? atof(seconds) : 20;
}

Config ConfigOf(const std::string& text) {
  const auto config = Config::Parse({.offcut_conf = text});
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(Config());
}

class StressControlTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = Gpu::Open(0);
    if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
    gpu_ = *std::move(gpu);
    ASSERT_TRUE(cuda_.Initialize().ok());
    kernels_ = std::make_unique<PatternKernels>(*gpu_, 2 * kMiB);
    tally_ = std::make_unique<Tally>(*gpu_);
  }
  void TearDown() override {
    if (gpu_ == nullptr) return;
    gpu_->Synchronize();
    allocator_.reset();
    tally_.reset();
    kernels_.reset();
  }

  void MakeAllocator(const std::string& options, Bytes limit) {
    Driver& driver = getenv(kLie) != nullptr ? static_cast<Driver&>(liar_) : cuda_;
    auto made = DeviceAllocator::Create(driver, 0, Clock::Real(), address_map_, ConfigOf(options),
                                        {&witnesses_}, limit);
    ASSERT_TRUE(made.ok()) << made.status();
    allocator_ = *std::move(made);
  }

  std::unique_ptr<Gpu> gpu_;
  CudaDriver cuda_;
  LyingDriver liar_{&cuda_};
  std::unique_ptr<PatternKernels> kernels_;
  std::unique_ptr<Tally> tally_;
  AddressMap address_map_;
  Witnesses witnesses_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

// The parameter is of OFFCUT_CONF: the arena layout as it moves, or the driver's own pools, whose
// reuse between streams is at stake.
class MoveStressTest : public StressControlTest, public testing::WithParamInterface<const char*> {};

// One thread of the program: it allocates on streams of its own, and uses its blocks on the streams
// of others too.
class Worker {
 public:
  struct Counts {
    uint64_t allocations = 0;
    uint64_t out_of_memory = 0;
    uint64_t other_stream_uses = 0;
    uint64_t looks = 0;         // at how far the GPU is
    uint64_t looks_behind = 0;  // when it had work left
  };

  Worker(int number, const Gpu& gpu, CudaDriver& driver, PatternKernels& kernels,
         DeviceAllocator& allocator, const Tally& tally, std::vector<CUstream> streams, Bytes live)
      : number_(number),
        gpu_(gpu),
        driver_(driver),
        kernels_(kernels),
        allocator_(allocator),
        tally_(tally),
        streams_(std::move(streams)),
        live_limit_(live),
        random_(number) {
    for (Stream& own : own_) {
      for (EventHandle& event : own.throttle) event = *driver.CreateEvent(0);
    }
    handover_ = *driver.CreateEvent(0);
    for (const WritePath path : WritePathsOf(gpu)) {
      if (path < WritePath::kMemset) writes_.push_back(path);
    }
    for (const ReadPath path : ReadPathsOf(gpu)) {
      if (path < ReadPath::kCopyToHost) reads_.push_back(path);
    }
  }
  ~Worker() {
    for (Stream& own : own_) {
      for (const EventHandle event : own.throttle) driver_.DestroyEvent(0, event).IgnoreError();
    }
    driver_.DestroyEvent(0, handover_).IgnoreError();
  }

  void Run(std::chrono::steady_clock::time_point until) {
    gpu_.MakeCurrent();
    for (uint64_t step = 0; std::chrono::steady_clock::now() < until; ++step) {
      if (testing::Test::HasFailure()) return;
      // Where memory is needed changes, so that it has to pass from stream to stream.
      if (step % 5000 == 0) favourite_ = Below(own_.size());
      if (step % 20'000 == 19'999) allocator_.EmptyCache();
      const uint32_t dice = Below(100);
      if (blocks_.empty() || dice < 60) {
        AllocateBlock();
      } else if (dice < 75) {
        Rewrite(blocks_[Below(blocks_.size())]);
      } else if (dice < 90) {
        ReadOnAnother(blocks_[Below(blocks_.size())]);
      } else {
        RewriteOnAnother(blocks_[Below(blocks_.size())]);
      }
    }
    while (!blocks_.empty()) FreeBlock(blocks_.size() - 1);
  }

  const Counts& counts() const { return counts_; }

 private:
  struct Block {
    DevicePtr address;
    Bytes bytes;
    uint32_t seed;
    size_t stream;  // of own_
  };
  // At most this many blocks are worked on at a time before the host waits.
  static constexpr uint64_t kThrottle = 64;
  struct Stream {
    uint64_t launches = 0;
    std::array<EventHandle, 2> throttle = {};
  };

  uint32_t Below(size_t end) { return static_cast<uint32_t>(random_() % end); }
  uint32_t NewSeed() { return (++seeds_ * 8 + static_cast<uint32_t>(number_)) & 0x7FFFFFFF; }
  CUstream StreamOf(const Block& block) const {
    return streams_[number_ * own_.size() + block.stream];
  }
  CUstream AnotherStream(const Block& block) {
    while (true) {
      const CUstream other = streams_[Below(streams_.size())];
      if (other != StreamOf(block)) return other;
    }
  }
  PatternKernels::Options Work() {
    return {.blocks = 16, .linger_ns = uint64_t{Below(4)} * 100'000};
  }
  // Multiples of 16 KiB: slots of slabs, small and large requests.
  Bytes AnySize() {
    const uint32_t dice = Below(10);
    const Bytes most = dice < 5 ? kMiB : dice < 9 ? 16 * kMiB : 64 * kMiB;
    return (1 + Below(most / (16 * kKiB))) * 16 * kKiB;
  }

  void AllocateBlock() {
    Block block = {.bytes = AnySize()};
    while (live_ + block.bytes > live_limit_) FreeBlock(Below(blocks_.size()));
    block.stream = Below(3) != 0 ? favourite_ : Below(own_.size());
    auto address = allocator_.Allocate(StreamOf(block), block.bytes);
    while (absl::IsResourceExhausted(address.status()) && !blocks_.empty()) {
      ++counts_.out_of_memory;
      FreeBlock(Below(blocks_.size()));
      address = allocator_.Allocate(StreamOf(block), block.bytes);
    }
    if (absl::IsResourceExhausted(address.status())) return;
    ASSERT_TRUE(address.ok()) << address.status();
    ++counts_.allocations;
    block.address = *address;
    block.seed = NewSeed();
    // Whatever is there, so by no path that adds.
    const WritePath path = Below(2) == 0 ? WritePath::kStore : WritePath::kExchange;
    kernels_.Write(StreamOf(block), path, block.address, block.bytes, 0, block.seed, Work());
    live_ += block.bytes;
    blocks_.push_back(block);
    Launched(block);
  }

  void FreeBlock(size_t index) {
    const Block block = blocks_[index];
    blocks_[index] = blocks_.back();
    blocks_.pop_back();
    Check(StreamOf(block), block);
    Launched(block);
    const absl::Status freed = allocator_.Free(block.address);
    EXPECT_TRUE(freed.ok()) << freed;
    live_ -= block.bytes;
  }

  void Rewrite(Block& block) {
    Check(StreamOf(block), block);
    WriteAnew(StreamOf(block), block);
    Launched(block);
  }

  // Nothing orders the read with what comes later but record_stream.
  void ReadOnAnother(Block& block) {
    const CUstream other = AnotherStream(block);
    Follow(other, StreamOf(block));
    RecordUse(block, other);
    Check(other, block);
    // What the block's own stream does with it next has to wait: freed, it need not.
    if (Below(2) == 0) {
      FreeBlock(static_cast<size_t>(&block - blocks_.data()));
    } else {
      Follow(StreamOf(block), other);
    }
  }

  void RewriteOnAnother(Block& block) {
    const CUstream other = AnotherStream(block);
    Follow(other, StreamOf(block));
    RecordUse(block, other);
    WriteAnew(other, block);
    Check(other, block);
    Follow(StreamOf(block), other);
  }

  void Check(CUstream stream, const Block& block) {
    kernels_.Check(stream, reads_[Below(reads_.size())], block.address, block.bytes, block.seed,
                   tally_, Work());
  }
  void WriteAnew(CUstream stream, Block& block) {
    const uint32_t seed = NewSeed();
    kernels_.Write(stream, writes_[Below(writes_.size())], block.address, block.bytes, block.seed,
                   seed, Work());
    block.seed = seed;
  }
  void RecordUse(const Block& block, CUstream other) {
    ++counts_.other_stream_uses;
    const absl::Status recorded = allocator_.RecordStream(block.address, 0, other);
    EXPECT_TRUE(recorded.ok()) << recorded;
  }
  void Follow(CUstream later, CUstream earlier) {
    EXPECT_TRUE(driver_.RecordEvent(0, handover_, earlier).ok());
    gpu_.Must(gpu_.f().cuStreamWaitEvent(later, handover_, 0), "cuStreamWaitEvent");
  }

  // Keeps the GPU behind, but not endlessly.
  void Launched(const Block& block) {
    Stream& own = own_[block.stream];
    if (++own.launches % kThrottle != 0) return;
    const uint64_t round = own.launches / kThrottle;
    EXPECT_TRUE(driver_.RecordEvent(0, own.throttle[round % 2], StreamOf(block)).ok());
    const auto done = driver_.QueryEvent(0, own.throttle[round % 2]);
    ++counts_.looks;
    counts_.looks_behind += done.ok() && !*done;
    EXPECT_TRUE(driver_.SynchronizeEvent(0, own.throttle[(round + 1) % 2]).ok());
  }

  const int number_;
  const Gpu& gpu_;
  CudaDriver& driver_;
  PatternKernels& kernels_;
  DeviceAllocator& allocator_;
  const Tally& tally_;
  const std::vector<CUstream> streams_;  // of all workers
  const Bytes live_limit_;
  std::mt19937 random_;
  std::array<Stream, 2> own_;
  EventHandle handover_ = nullptr;
  std::vector<WritePath> writes_;
  std::vector<ReadPath> reads_;
  std::vector<Block> blocks_;
  Bytes live_ = 0;
  uint32_t seeds_ = 0;
  size_t favourite_ = 0;
  Counts counts_;
};

TEST_P(MoveStressTest, NoBlockIsEverTouchedByAnothersWork) {
  constexpr int kWorkers = 2, kStreams = 4;
  constexpr Bytes kLive = 2 * kGiB;
  // The driver's pools move nothing, and need room for what they cannot use.
  const bool moves = absl::string_view(GetParam()).substr(0, 5) == "remap";
  MakeAllocator(GetParam(), /*limit=*/kLive + kLive / (moves ? 20 : 1));
  if (HasFatalFailure()) return;
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(gpu_->CreateStream());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<Worker>(i, *gpu_, cuda_, *kernels_, *allocator_, *tally_,
                                               streams, kLive / kWorkers));
  }
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(StressSeconds()));
  std::vector<std::thread> threads;
  for (auto& worker : workers) threads.emplace_back([&worker, until] { worker->Run(until); });
  for (std::thread& thread : threads) thread.join();
  gpu_->Synchronize();

  const Tally::Counts wrong = tally_->Read();
  EXPECT_EQ(wrong.wrong, 0u) << "words; the first at " << wrong.index << ": expected "
                             << wrong.expected << ", found " << wrong.found;
  const absl::Status agreed = witnesses_.Check(allocator_->View());
  EXPECT_TRUE(agreed.ok()) << agreed;
  const Counters counters = allocator_->counters();
  EXPECT_EQ(counters.moves > 0, moves);
  EXPECT_EQ(counters.invalid_frees, 0u);
  Worker::Counts sum;
  for (const auto& worker : workers) {
    sum.allocations += worker->counts().allocations;
    sum.out_of_memory += worker->counts().out_of_memory;
    sum.other_stream_uses += worker->counts().other_stream_uses;
    sum.looks += worker->counts().looks;
    sum.looks_behind += worker->counts().looks_behind;
  }
  // Else nothing was at stake.
  EXPECT_GT(sum.looks_behind, sum.looks / 2);
  const auto record = [this](const std::string& name, uint64_t value) {
    RecordProperty(name, absl::StrCat(value));
    std::cout << name << " " << value << "\n";
  };
  record("allocations", sum.allocations);
  record("allocations_that_took_a_free_first", sum.out_of_memory);
  record("other_stream_uses", sum.other_stream_uses);
  record("looks_at_the_gpu", sum.looks);
  record("looks_when_it_was_behind", sum.looks_behind);
  record("moves", counters.moves);
  record("moved_mib", counters.moved_bytes / kMiB);
  record("move_batches", counters.move_batches);
  record("largest_move_batch", counters.largest_move_batch);
  record("most_old_mapping_mib", counters.old_mapping_bytes[0].peak / kMiB);
  record("peak_live_mib", counters.live_bytes[0].peak / kMiB);
  record("peak_reserved_mib", counters.reserved_bytes[0].peak / kMiB);
  record("device_waits", counters.device_waits);
  record("granules_created", counters.granules_created);
  record("driver_calls", counters.driver_calls);
  record("driver_ms", counters.driver_ns / 1'000'000);

  EXPECT_EQ(counters.live_bytes[0].current, 0);
  allocator_->EmptyCache();
  EXPECT_EQ(allocator_->counters().reserved_bytes[0].current, 0);
  workers.clear();
  for (const CUstream stream : streams) gpu_->DestroyStream(stream);
}

INSTANTIATE_TEST_SUITE_P(Modes, MoveStressTest,
                         testing::Values("remap:alias", "remap:wait", "backend:cudaMallocAsync"),
                         [](const auto& info) {
                           const std::string option = info.param;
                           return option.substr(option.find(':') + 1);
                         });

// --- The test can fail ---

// Freed while another stream, of which the allocator was not told, still writes it.
TEST_F(StressControlTest, TheChecksSeeAUseThatWasNotRecorded) {
  constexpr Bytes kBytes = 4 * kMiB;
  MakeAllocator("", kNoLimit);
  if (HasFatalFailure()) return;
  Gate gate(*gpu_);
  const CUstream own = gpu_->CreateStream(), other = gpu_->CreateStream();
  for (const bool recorded : {false, true}) {
    const Tally here(*gpu_);
    const auto first = allocator_->Allocate(own, kBytes);
    ASSERT_TRUE(first.ok()) << first.status();
    if (recorded) {
      ASSERT_TRUE(allocator_->RecordStream(*first, 0, other).ok());
    }
    kernels_->Write(other, WritePath::kStore, *first, kBytes, 0, 1, {.gate = gate.Next()});
    ASSERT_TRUE(gate.WaitStarted());
    ASSERT_TRUE(allocator_->Free(*first).ok());
    const auto second = allocator_->Allocate(own, kBytes);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(*second == *first, !recorded);
    kernels_->Write(own, WritePath::kStore, *second, kBytes, 0, 2, {});
    gpu_->Must(gpu_->f().cuStreamSynchronize(own), "cuStreamSynchronize");
    gate.Open();
    gpu_->Must(gpu_->f().cuStreamSynchronize(other), "cuStreamSynchronize");
    kernels_->Check(own, ReadPath::kLoad, *second, kBytes, 2, here, {});
    gpu_->Synchronize();
    EXPECT_EQ(here.Read().wrong != 0, !recorded);
    ASSERT_TRUE(allocator_->Free(*second).ok());
  }
  allocator_->EmptyCache();
  gpu_->DestroyStream(own);
  gpu_->DestroyStream(other);
}

// In a process of its own, which does not survive what it does.
TEST_F(StressControlTest, TheStressFailsIfEventsAreSaidToBeDoneTooSoon) {
  std::string program(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  ASSERT_GT(length, 0);
  program.resize(static_cast<size_t>(length));
  const std::string command = absl::StrCat(
      "env -u GTEST_OUTPUT ", kLie, "=1 OFFCUT_STRESS_SECONDS=10 '", program,
      "' --gtest_filter='Modes/MoveStressTest.NoBlockIsEverTouchedByAnothersWork/alias' 2>&1");
  EXPECT_NE(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace offcut
