#include "tests/fuzz/generator.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/policy/sizes.h"

namespace offcut::fuzz {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): the same
// numbers on every machine, where the distributions of <random> differ.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // 0 .. n - 1.
  uint64_t Below(uint64_t n) { return Next() % n; }
  uint64_t Between(uint64_t first, uint64_t last) { return first + Below(last - first + 1); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Below(choices.size())];
  }
  // Spread evenly over the powers of two up to `last` > 0.
  uint64_t Logarithmic(uint64_t last) {
    int bits = 0;
    while (bits < 63 && (uint64_t{2} << bits) <= last) ++bits;
    const uint64_t low = uint64_t{1} << Below(bits + 1);
    return std::min(last, Between(low, 2 * low - 1));
  }

 private:
  uint64_t state_;
};

enum class Order { kLastIn, kFirstIn, kAny };

class Generator {
 public:
  Generator(uint64_t seed, bool alone) : random_(seed), alone_(alone) {}

  std::string DrawConf();
  Setup DrawSetup();
  std::vector<Op> DrawOps(const Setup& setup, size_t count);
  size_t DrawLength() { return random_.Logarithmic(3000) + 20; }

 private:
  struct Held {
    uint32_t block;
    uint8_t device;
    Bytes bytes;
  };

  void DrawManner(const Setup& setup);
  void DrawPhase();
  void OpenToPeers();
  void AddOne();
  void AddMemoryOp();
  void AddWorkOp();
  void AddRareOp();
  void AddPoolOp();
  void AddCaptureOp();
  void AddAllocate();
  void AddFree();
  void AddFault();
  Bytes DrawSize();
  size_t DrawHeld();  // an index into held_, which is not empty
  uint8_t AnyDevice() { return static_cast<uint8_t>(random_.Below(setup_.devices)); }
  uint8_t AnyStream() { return static_cast<uint8_t>(random_.Below(setup_.streams)); }
  uint8_t AnyPool() { return static_cast<uint8_t>(random_.Between(1, 3)); }
  uint64_t AnyDuration() { return random_.OneIn(4) ? 0 : random_.Logarithmic(20'000'000); }

  Random random_;
  const bool alone_;
  Setup setup_;
  std::vector<Op> ops_;

  // The manner of the whole program.
  std::vector<Bytes> palette_;  // sizes that come again and again, as in training
  Bytes size_max_ = 0;
  uint64_t palette_of_ten_ = 0;
  uint64_t work_percent_ = 0;
  uint64_t rare_one_in_ = 0;
  uint64_t fault_one_in_ = 0;    // 0: never
  uint64_t capture_one_in_ = 0;  // 0: never
  uint64_t odd_one_in_ = 0;      // requests that nothing can serve
  uint64_t peer_one_in_ = 0;     // work of a device on blocks of any
  uint64_t pool_one_in_ = 0;     // operations on private pools; 0: never
  bool limits_change_ = false;

  // Of the phase, which changes as the program goes on.
  Order order_ = Order::kAny;
  Bytes target_bytes_ = 0;
  uint8_t phase_stream_ = 0;
  bool one_stream_ = false;

  // What the program holds if every request was served.
  std::vector<Held> held_;
  Bytes held_bytes_ = 0;
  size_t handed_over_ = 0;
  std::vector<std::pair<uint8_t, uint8_t>> captured_;  // device and stream
  uint32_t next_block_ = 1;
};

std::string Generator::DrawConf() {
  if (random_.OneIn(2))
    return random_.Pick({"", "", "remap:wait", "remap:off", "roundup_power2_divisions:4"});
  std::string conf = "expandable_segments:False";
  const uint64_t large_segment = random_.Pick<uint64_t>({20, 20, 11, 12, 32});
  if (large_segment != 20) absl::StrAppend(&conf, ",large_segment_size_mb:", large_segment);
  if (random_.OneIn(3)) {
    absl::StrAppend(&conf, ",max_split_size_mb:", large_segment + random_.Below(20));
  }
  if (large_segment > 20 || random_.OneIn(6)) {
    absl::StrAppend(&conf, ",max_non_split_rounding_mb:", large_segment + random_.Below(10));
  }
  if (random_.OneIn(3)) {
    absl::StrAppend(&conf, ",garbage_collection_threshold:0.", random_.Between(1, 9));
  }
  if (random_.OneIn(4)) {
    absl::StrAppend(&conf, ",roundup_power2_divisions:",
                    random_.Pick({"4", "8", "[1:2,4:8,>:4]", "[2:0,>:1]"}));
  }
  return conf;
}

Setup Generator::DrawSetup() {
  Setup setup;
  setup.conf = DrawConf();
  setup.devices = random_.OneIn(4) ? 2 : 1;
  setup.streams = static_cast<uint8_t>(random_.Between(1, 6));
  setup.per_thread = setup.streams > 1 && random_.OneIn(4);
  setup.memory_bytes = random_.Pick<Bytes>({8, 16, 32, 64, 64, 96, 128, 256}) * kMiB;
  if (random_.OneIn(16)) {
    setup.memory_bytes = random_.Between(1, 4) * kGiB;
    setup.check_every = 50;
  }
  setup.lag_ns = random_.Pick<uint64_t>({0, 0, 100'000, 5'000'000, 50'000'000});
  if (random_.OneIn(4)) setup.limit = random_.Between(1, setup.memory_bytes / kMiB) * kMiB;
  return setup;
}

void Generator::DrawManner(const Setup& setup) {
  setup_ = setup;
  size_max_ = setup.memory_bytes / random_.Pick<Bytes>({2, 4, 8, 32, 128});
  const size_t sizes = random_.Between(1, 12);
  for (size_t i = 0; i < sizes; ++i) palette_.push_back(random_.Logarithmic(size_max_));
  palette_of_ten_ = random_.Pick<uint64_t>({0, 5, 9});
  work_percent_ = random_.Pick<uint64_t>({0, 10, 25, 50});
  rare_one_in_ = random_.Pick<uint64_t>({10, 30, 100, 1000});
  fault_one_in_ = random_.Pick<uint64_t>({0, 0, 0, 15, 60, 300});
  capture_one_in_ = random_.Pick<uint64_t>({0, 0, 0, 20, 100});
  pool_one_in_ = random_.Pick<uint64_t>({0, 0, 8, 30});
  odd_one_in_ = random_.Pick<uint64_t>({30, 300});
  limits_change_ = random_.OneIn(3);
  peer_one_in_ = random_.Pick<uint64_t>({2, 8});
  if (!alone_) capture_one_in_ = 0;
}

void Generator::OpenToPeers() {
  for (uint8_t device = 0; device < setup_.devices; ++device) {
    for (uint8_t peer = 0; peer < setup_.devices; ++peer) {
      if (peer == device) continue;
      ops_.push_back({.kind = OpKind::kOpenTo, .device = device, .value = peer});
    }
  }
}

void Generator::DrawPhase() {
  order_ = random_.Pick({Order::kLastIn, Order::kFirstIn, Order::kAny});
  // Beyond the memory there is, so that it runs out.
  target_bytes_ = setup_.memory_bytes * setup_.devices / 100 * random_.Between(0, 110);
  one_stream_ = random_.OneIn(2);
  phase_stream_ = AnyStream();
}

std::vector<Op> Generator::DrawOps(const Setup& setup, size_t count) {
  DrawManner(setup);
  DrawPhase();
  if (random_.Below(4) != 0) OpenToPeers();
  while (ops_.size() < count) {
    if (random_.OneIn(60)) DrawPhase();
    AddOne();
  }
  return std::move(ops_);
}

void Generator::AddOne() {
  if (fault_one_in_ != 0 && random_.OneIn(fault_one_in_)) return AddFault();
  if (capture_one_in_ != 0 && random_.OneIn(capture_one_in_)) return AddCaptureOp();
  if (pool_one_in_ != 0 && random_.OneIn(pool_one_in_)) return AddPoolOp();
  if (random_.OneIn(rare_one_in_)) return AddRareOp();
  if (random_.Below(100) < work_percent_ && !held_.empty()) return AddWorkOp();
  AddMemoryOp();
}

void Generator::AddMemoryOp() {
  // The nearer to the target, the more often it is a free.
  const bool below = held_bytes_ < target_bytes_;
  if (held_.empty() || random_.Below(10) < (below ? 7u : 3u)) {
    // Small blocks alone never reach the target, and a check takes as long as there are blocks.
    if (held_.size() < 200) return AddAllocate();
  }
  AddFree();
}

Bytes Generator::DrawSize() {
  if (random_.OneIn(odd_one_in_)) {
    return random_.Pick<Bytes>({0, setup_.memory_bytes, setup_.memory_bytes + 1,
                                2 * setup_.memory_bytes, policy::kRequestMax - 511,
                                policy::kRequestMax, policy::kRequestMax + 1, ~Bytes{0}});
  }
  if (random_.Below(10) < palette_of_ten_) return palette_[random_.Below(palette_.size())];
  switch (random_.Below(4)) {
    case 0:
      return random_.Logarithmic(size_max_);
    case 1:
      return random_.Between(1, 4 * kKiB);
    case 2: {
      // Around the boundaries: slots, slabs, small and large, granules.
      const Bytes boundary = random_.Pick<Bytes>(
          {policy::SlotSize(random_.Below(policy::kSlotClasses)), policy::kSlotMax,
           policy::SlabSize(random_.Below(policy::kSlotClasses)), policy::kSmallRequestMax,
           random_.Between(1, 4) * 2 * kMiB, 10 * kMiB, 20 * kMiB});
      return boundary + random_.Pick<Bytes>({0, 1, 511, 512}) - random_.Pick<Bytes>({0, 1, 511});
    }
    default:
      return random_.Between(1, std::min<Bytes>(size_max_, 12 * kMiB));
  }
}

void Generator::AddAllocate() {
  const Op op = {.kind = OpKind::kAllocate,
                 .device = AnyDevice(),
                 .stream = one_stream_ ? phase_stream_ : AnyStream(),
                 .block = next_block_++,
                 .bytes = DrawSize()};
  ops_.push_back(op);
  if (op.bytes > setup_.memory_bytes) return;
  held_.push_back({op.block, op.device, op.bytes});
  held_bytes_ += op.bytes;
}

size_t Generator::DrawHeld() {
  switch (order_) {
    case Order::kLastIn:
      return held_.size() - 1;
    case Order::kFirstIn:
      return 0;
    case Order::kAny:
      break;
  }
  return random_.Below(held_.size());
}

void Generator::AddFree() {
  if (held_.empty()) return;
  const size_t index = DrawHeld();
  const Held held = held_[index];
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
  held_bytes_ -= held.bytes;
  if (random_.OneIn(alone_ ? 200 : 10)) {
    ops_.push_back({.kind = OpKind::kHandOver, .block = held.block});
    ++handed_over_;
    return;
  }
  ops_.push_back({.kind = OpKind::kFree, .block = held.block});
}

void Generator::AddWorkOp() {
  const Held& held = held_[random_.OneIn(2) ? held_.size() - 1 : random_.Below(held_.size())];
  Op op = {.device = held.device, .stream = AnyStream(), .block = held.block};
  if (random_.OneIn(peer_one_in_)) op.device = AnyDevice();  // a peer, if the block is open to it
  switch (random_.Below(8)) {
    case 0:
      op.kind = OpKind::kRecordStream;
      break;
    case 1:
      op = {.kind = OpKind::kJoin, .block = held.block};
      break;
    case 2:
      op = {.kind = OpKind::kAdvance, .ns = random_.Logarithmic(10'000'000)};
      break;
    default:
      op.kind = OpKind::kUse;
      op.ns = AnyDuration();
      break;
  }
  ops_.push_back(op);
}

void Generator::AddRareOp() {
  const uint8_t device = AnyDevice(), stream = AnyStream();
  const uint32_t block = held_.empty() || random_.OneIn(8)
                             ? static_cast<uint32_t>(random_.Below(next_block_ + 1))
                             : held_[random_.Below(held_.size())].block;
  switch (random_.Below(15)) {
    case 0:
      return ops_.push_back({.kind = OpKind::kEmptyCache, .device = device});
    case 1: {
      if (!limits_change_) return;
      const Bytes mebibytes = random_.Between(0, setup_.memory_bytes / kMiB);
      return ops_.push_back({.kind = OpKind::kSetLimit,
                             .device = device,
                             .bytes = random_.OneIn(3) ? kNoLimit : mebibytes * kMiB});
    }
    case 2: {
      if (!limits_change_) return;
      const Bytes mebibytes = random_.Between(0, setup_.memory_bytes / kMiB * 3 / 4);
      return ops_.push_back({.kind = OpKind::kSetOutside,
                             .device = device,
                             .bytes = random_.OneIn(3) ? 0 : mebibytes * kMiB});
    }
    case 3:
      if (setup_.devices == 1) return;
      return ops_.push_back(
          {.kind = OpKind::kOpenTo, .device = device, .value = random_.Below(setup_.devices)});
    case 4:
      return ops_.push_back({.kind = OpKind::kAccount, .device = device});
    case 5:
      return ops_.push_back({.kind = OpKind::kMarkStep, .device = device, .value = ops_.size()});
    case 6:
      return ops_.push_back(
          {.kind = OpKind::kResetCounters, .device = device, .value = random_.Below(2)});
    case 7:
      return ops_.push_back(
          {.kind = OpKind::kSetLag, .ns = random_.Pick<uint64_t>({0, 1, 1'000'000, 50'000'000})});
    case 8:
      return ops_.push_back({.kind = OpKind::kSynchronize, .device = device, .stream = stream});
    case 9:
      return ops_.push_back({.kind = OpKind::kFindBlock,
                             .block = block,
                             .bytes = random_.Logarithmic(setup_.memory_bytes)});
    case 10:
      return ops_.push_back({.kind = OpKind::kBadFree,
                             .device = device,
                             .block = block,
                             .bytes = random_.OneIn(2) ? 0 : random_.Logarithmic(kMiB)});
    case 11:
      if (handed_over_ == 0 && alone_) return;
      ops_.push_back({.kind = OpKind::kAdopt, .block = next_block_});
      held_.push_back({next_block_++, device, 0});
      return;
    case 12:
      return ops_.push_back(
          {.kind = random_.OneIn(2) ? OpKind::kDestroyStream : OpKind::kCreateStream,
           .device = device,
           .stream = stream});
    case 13:
      if (held_.empty()) return;
      return ops_.push_back(
          {.kind = OpKind::kFreeWhenShort, .block = held_[random_.Below(held_.size())].block});
    default:
      return ops_.push_back({.kind = OpKind::kAdvance, .ns = random_.Logarithmic(100'000'000)});
  }
}

void Generator::AddCaptureOp() {
  // Not for long: much cannot be done meanwhile.
  if (!captured_.empty() && !random_.OneIn(3)) {
    const size_t index = random_.Below(captured_.size());
    const auto [device, stream] = captured_[index];
    captured_.erase(captured_.begin() + static_cast<ptrdiff_t>(index));
    ops_.push_back({.kind = OpKind::kEndCapture, .device = device, .stream = stream});
    return;
  }
  if (setup_.streams < 2) return;
  const uint8_t device = AnyDevice();
  const auto stream = static_cast<uint8_t>(random_.Between(1, setup_.streams - 1u));
  if (random_.OneIn(2)) {
    ops_.push_back(
        {.kind = OpKind::kBeginRoute, .device = device, .stream = stream, .pool = AnyPool()});
  }
  ops_.push_back({.kind = OpKind::kBeginCapture,
                  .device = device,
                  .stream = stream,
                  .value = random_.Below(3)});
  captured_.emplace_back(device, stream);
}

void Generator::AddPoolOp() {
  Op op = {.device = AnyDevice(), .stream = AnyStream(), .pool = AnyPool()};
  const uint64_t any = random_.Below(20);
  if (any < 4) {
    op.kind = OpKind::kBeginRoute;
    op.value = random_.Below(2);
  } else if (any < 8) {
    op.kind = OpKind::kEndRoute;
  } else if (any < 10) {
    op.kind = OpKind::kRetainPool;
  } else if (any < 13) {
    op.kind = OpKind::kReleasePool;
  } else if (any < 14) {
    op.kind = random_.OneIn(2) ? OpKind::kSetNoSplit : OpKind::kSetUseOnOom;
    op.value = random_.Below(3);
  } else if (any < 15) {
    op.kind = OpKind::kEmptyCacheOfPool;
  } else if (any < 16) {
    op.kind = OpKind::kCheckPoolBlocks;
  } else if (any < 18) {
    op.kind = OpKind::kLaunchGraph;
    op.ns = AnyDuration();
  } else {
    op.kind = random_.OneIn(2) ? OpKind::kTakeCheckpoint : OpKind::kRestoreCheckpoint;
  }
  ops_.push_back(op);
}

void Generator::AddFault() {
  static constexpr DriverCall kCalls[] = {
#define OFFCUT_DRIVER_CALL(name, number, cuda_name) DriverCall::k##name,
#include "allocator/driver/driver_calls.def"
#undef OFFCUT_DRIVER_CALL
  };
  Op op = {.kind = OpKind::kFault,
           .value = random_.Logarithmic(20),
           .times = random_.OneIn(4) ? 3u : 1u,
           .result = random_.Pick({CudaResult::kOutOfMemory, CudaResult::kUnknown,
                                   CudaResult::kInvalidValue, CudaResult::kNotReady})};
  if (random_.OneIn(2)) {
    op.call = static_cast<uint8_t>(kCalls[random_.Below(std::size(kCalls))]);
  }
  ops_.push_back(op);
}

}  // namespace

Program Generate(uint64_t seed) {
  Generator generator(seed, /*alone=*/true);
  Program program;
  program.setup = generator.DrawSetup();
  program.ops = generator.DrawOps(program.setup, generator.DrawLength());
  return program;
}

std::vector<Program> GenerateForThreads(uint64_t seed, int threads, size_t operations) {
  std::vector<Program> programs(threads);
  const Setup setup = Generator(seed, /*alone=*/false).DrawSetup();
  for (int thread = 0; thread < threads; ++thread) {
    Generator generator(seed * 1'000'003 + static_cast<uint64_t>(thread), /*alone=*/false);
    programs[thread] = {.setup = setup, .ops = generator.DrawOps(setup, operations)};
  }
  return programs;
}

}  // namespace offcut::fuzz
