// What the allocator relies on when it moves a granule in stream order (remap:alias): a granule may
// be mapped a second time, at a new address, and used there by later work of the same stream,
// while earlier work still runs through the old mapping; the old one goes when that work is done,
// and its address serves another granule at once. On hardware, by every path to memory.
//
// Writers are held by a gate, so that "still runs" is certain; what was seen is also recorded as
// properties of the tests (GTEST_OUTPUT=json:FILE).

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "gtest/gtest.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/pattern_kernels.h"

namespace offcut {
namespace {

using Options = PatternKernels::Options;
using std::chrono::milliseconds;

constexpr Bytes kL1Bytes = 128 * kKiB;  // what surely fits into an L1 cache

// Granules of one device, and places of one address range where they are mapped. Through the
// Driver, as the allocator does it.
class Granules {
 public:
  // `accessors`: the devices that every mapping is open to.
  Granules(Driver& driver, int places, int granules, std::vector<DeviceIndex> accessors = {0})
      : driver_(driver), accessors_(std::move(accessors)), mapped_(places) {
    const auto properties = driver.GetProperties(0);
    EXPECT_TRUE(properties.ok()) << properties.status();
    bytes_ = properties->granularity;
    const auto range = driver.ReserveAddress(0, places * bytes_, 0, 0);
    EXPECT_TRUE(range.ok()) << range.status();
    range_ = *range;
    const auto flags = GrantedMemoryFlags(driver, 0);
    EXPECT_TRUE(flags.ok()) << flags.status();
    for (int i = 0; i < granules; ++i) {
      const auto handle = driver.CreateMemory(0, bytes_, *flags);
      EXPECT_TRUE(handle.ok()) << handle.status();
      handles_.push_back(*handle);
    }
  }
  ~Granules() {
    EXPECT_TRUE(driver_.SynchronizeDevice(0).ok());
    for (size_t place = 0; place < mapped_.size(); ++place) {
      if (mapped_[place]) Unmap(static_cast<int>(place));
    }
    for (const PhysicalHandle handle : handles_) {
      EXPECT_TRUE(driver_.ReleaseMemory(handle).ok());
    }
    EXPECT_TRUE(driver_.FreeAddress(range_, mapped_.size() * bytes_).ok());
  }
  Granules(const Granules&) = delete;
  Granules& operator=(const Granules&) = delete;

  void Map(int place, int granule) {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = driver_.Map(at(place), bytes_, handles_[granule]);
    for (const DeviceIndex accessor : accessors_) {
      if (status.ok()) status = driver_.SetAccess(at(place), bytes_, accessor);
    }
    EXPECT_TRUE(status.ok()) << status;
    longest_map_ = std::max(longest_map_, std::chrono::steady_clock::now() - start);
    mapped_[place] = true;
  }
  void Unmap(int place) {
    const absl::Status status = driver_.Unmap(at(place), bytes_);
    EXPECT_TRUE(status.ok()) << status;
    mapped_[place] = false;
  }

  DevicePtr at(int place) const { return range_ + place * bytes_; }
  Bytes bytes() const { return bytes_; }
  // Of mapping a granule and opening it.
  int longest_map_us() const {
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::microseconds>(longest_map_).count());
  }

 private:
  Driver& driver_;
  const std::vector<DeviceIndex> accessors_;
  Bytes bytes_ = 0;
  DevicePtr range_ = 0;
  std::vector<PhysicalHandle> handles_;
  std::vector<bool> mapped_;
  std::chrono::steady_clock::duration longest_map_{};
};

// A stream and an event of it.
class Lane {
 public:
  Lane(const Gpu& gpu, Driver& driver)
      : stream(gpu.CreateStream()), gpu_(gpu), driver_(driver), event_(NewEvent()) {}
  ~Lane() {
    gpu_.Must(gpu_.f().cuStreamSynchronize(stream), "cuStreamSynchronize");
    gpu_.DestroyStream(stream);
    EXPECT_TRUE(driver_.DestroyEvent(gpu_.device(), event_).ok());
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void Record() { EXPECT_TRUE(driver_.RecordEvent(gpu_.device(), event_, stream).ok()); }
  bool IsDone() const {
    const auto done = driver_.QueryEvent(gpu_.device(), event_);
    EXPECT_TRUE(done.ok()) << done.status();
    return done.ok() && *done;
  }
  void WaitForEvent() const { EXPECT_TRUE(driver_.SynchronizeEvent(gpu_.device(), event_).ok()); }
  void Wait() const { gpu_.Must(gpu_.f().cuStreamSynchronize(stream), "cuStreamSynchronize"); }
  EventHandle event() const { return event_; }

  const CUstream stream;

 private:
  EventHandle NewEvent() {
    const auto event = driver_.CreateEvent(gpu_.device());
    EXPECT_TRUE(event.ok()) << event.status();
    return event.ok() ? *event : nullptr;
  }

  const Gpu& gpu_;
  Driver& driver_;
  const EventHandle event_;
};

class SecondMappingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto gpu = Gpu::Open(0);
    if (!gpu.ok()) {
      why_not_ = std::string(gpu.status().message());
      return;
    }
    gpu_ = gpu->release();
    driver_ = new CudaDriver;
    ASSERT_TRUE(driver_->Initialize().ok());
    kernels_ = new PatternKernels(*gpu_, 2 * kMiB);
  }

  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << why_not_;
    gpu_->MakeCurrent();
    tally_ = std::make_unique<Tally>(*gpu_);
  }
  void TearDown() override {
    if (gpu_ == nullptr) return;
    gpu_->Synchronize();
    tally_.reset();
  }

  // The device is synchronised. Also of copies to the host.
  void ExpectAllRight(const std::string& what = "") {
    EXPECT_EQ(kernels_->CheckCopies(), 0u) << "words in copies to the host. " << what;
    const Tally::Counts counts = tally_->Read();
    EXPECT_EQ(counts.wrong, 0u) << "words; the first at " << counts.index << ": expected "
                                << counts.expected << ", found " << counts.found << ". " << what;
  }
  void NeedsDependentLaunch() {
    if (gpu_->compute_capability() < 90) {
      GTEST_SKIP() << "programmatic dependent launch needs compute capability 9.0";
    }
  }

  // Kernels, not what the host orders of the copy engines.
  static std::vector<WritePath> KernelWrites() {
    std::vector<WritePath> paths = WritePathsOf(*gpu_);
    std::erase_if(paths, [](WritePath path) { return path >= WritePath::kMemset; });
    return paths;
  }
  static std::vector<ReadPath> KernelReads() {
    std::vector<ReadPath> paths = ReadPathsOf(*gpu_);
    std::erase_if(paths, [](ReadPath path) { return path >= ReadPath::kCopyToHost; });
    return paths;
  }

  static Gpu* gpu_;
  static CudaDriver* driver_;
  static PatternKernels* kernels_;
  static std::string why_not_;
  std::unique_ptr<Tally> tally_;
};

Gpu* SecondMappingTest::gpu_ = nullptr;
CudaDriver* SecondMappingTest::driver_ = nullptr;
PatternKernels* SecondMappingTest::kernels_ = nullptr;
std::string SecondMappingTest::why_not_;

// --- In stream order ---

TEST_F(SecondMappingTest, ServesLaterKernelsWhileEarlierOnesWriteThroughTheOldAddress) {
  constexpr int kStreams = 4, kRounds = 2000;
  struct Stream {
    Lane lane{*gpu_, *driver_};
    Gate gate{*gpu_};
    Granules granules{*driver_, /*places=*/2, /*granules=*/1};
    uint32_t seed = 0;
  };
  std::array<std::unique_ptr<Stream>, kStreams> streams;
  uint32_t next_seed = 1;
  for (auto& s : streams) {
    s = std::make_unique<Stream>();
    s->granules.Map(0, 0);
    s->seed = next_seed++;
    kernels_->Write(s->lane.stream, WritePath::kStore, s->granules.at(0), s->granules.bytes(), 0,
                    s->seed, {});
  }
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  int mapped_while_running = 0, unmapped_while_running = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const int from = round % 2, to = 1 - from;
    for (auto& s : streams) {
      kernels_->Write(s->lane.stream, writes[round % writes.size()], s->granules.at(from),
                      s->granules.bytes(), s->seed, next_seed, {.gate = s->gate.Next()});
      s->seed = next_seed++;
      s->lane.Record();
    }
    for (auto& s : streams) {
      ASSERT_TRUE(s->gate.WaitStarted());
      s->granules.Map(to, 0);
      mapped_while_running += !s->lane.IsDone();
      const DevicePtr address = s->granules.at(to);
      const Bytes bytes = s->granules.bytes();
      kernels_->Check(s->lane.stream, reads[round % reads.size()], address, bytes, s->seed, *tally_,
                      {});
      kernels_->Write(s->lane.stream, writes[(round + 1) % writes.size()], address, bytes, s->seed,
                      next_seed, {});
      s->seed = next_seed++;
      kernels_->Check(s->lane.stream, reads[(round + 3) % reads.size()], address, bytes, s->seed,
                      *tally_, {.linger_ns = 200'000});
    }
    for (auto& s : streams) s->gate.Open();
    for (auto& s : streams) {
      s->lane.WaitForEvent();
      s->lane.Record();
      s->granules.Unmap(from);
      unmapped_while_running += !s->lane.IsDone();
    }
  }
  gpu_->Synchronize();
  for (auto& s : streams) EXPECT_FALSE(s->gate.TimedOut());
  EXPECT_EQ(mapped_while_running, kStreams * kRounds);
  EXPECT_GT(unmapped_while_running, 0);
  ExpectAllRight();
  RecordProperty("moves", kStreams * kRounds);
  RecordProperty("mapped_while_running", mapped_while_running);
  RecordProperty("unmapped_while_running", unmapped_while_running);
}

TEST_F(SecondMappingTest, EveryPathReadsWhatEveryPathWroteThroughTheOldAddress) {
  constexpr int kRounds = 10;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_);
  Granules granules(*driver_, 2, 1);
  const Bytes bytes = granules.bytes();
  int place = 0, pairs = 0, mapped_while_running = 0;
  uint32_t seed = 1;
  granules.Map(place, 0);
  kernels_->Write(lane.stream, WritePath::kStore, granules.at(place), bytes, 0, seed, {});
  for (const WritePath write : WritePathsOf(*gpu_)) {
    for (const ReadPath read : ReadPathsOf(*gpu_)) {
      ++pairs;
      const std::string what = absl::StrCat(Name(write), ", then ", Name(read));
      for (int round = 0; round < kRounds && !HasFailure(); ++round) {
        uint32_t next = (seed + 1) & 0x7FFFFFFF;
        if (write == WritePath::kMemset) next = UniformSeed(next);
        kernels_->Write(lane.stream, write, granules.at(place), bytes, seed, next,
                        {.gate = gate.Next()});
        seed = next;
        lane.Record();
        ASSERT_TRUE(gate.WaitStarted()) << what;
        granules.Map(1 - place, 0);
        mapped_while_running += !lane.IsDone();
        kernels_->Check(lane.stream, read, granules.at(1 - place), bytes, seed, *tally_, {});
        gate.Open();
        lane.WaitForEvent();
        granules.Unmap(place);
        place = 1 - place;
        lane.Wait();
        ExpectAllRight(what);
      }
    }
  }
  EXPECT_FALSE(gate.TimedOut());
  EXPECT_EQ(mapped_while_running, pairs * kRounds);
  RecordProperty("pairs", pairs);
  RecordProperty("mapped_while_running", mapped_while_running);
}

// More than a move needs: both addresses are read and written in turn, and each read finds the L1
// caches full of what was there before.
TEST_F(SecondMappingTest, BothAddressesServeKernelsInTurn) {
  constexpr int kRounds = 10;
  Lane lane(*gpu_, *driver_);
  Granules granules(*driver_, 2, 1);
  granules.Map(0, 0);
  granules.Map(1, 0);
  const Options everywhere = {.blocks = gpu_->processors(), .everywhere = true};
  uint32_t seed = 1;
  kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), kL1Bytes, 0, seed, {});
  int pairs = 0;
  for (const WritePath write : WritePathsOf(*gpu_)) {
    for (const ReadPath read : ReadPathsOf(*gpu_)) {
      ++pairs;
      for (int round = 0; round < kRounds && !HasFailure(); ++round) {
        for (const int written : {0, 1}) {
          const DevicePtr other = granules.at(1 - written);
          uint32_t next = (seed + 1) & 0x7FFFFFFF;
          if (write == WritePath::kMemset) next = UniformSeed(next);
          kernels_->Check(lane.stream, ReadPath::kLoadKeep, other, kL1Bytes, seed, *tally_,
                          everywhere);
          kernels_->Write(lane.stream, write, granules.at(written), kL1Bytes, seed, next, {});
          kernels_->Check(lane.stream, read, other, kL1Bytes, next, *tally_, everywhere);
          seed = next;
          lane.Wait();
          ExpectAllRight(absl::StrCat(Name(write), ", then ", Name(read)));
        }
      }
    }
  }
  RecordProperty("pairs", pairs);
}

TEST_F(SecondMappingTest, SixtyFourMappingsOfOneGranuleAgree) {
  constexpr int kPlaces = 64;
  Lane lane(*gpu_, *driver_);
  Granules granules(*driver_, kPlaces, 1);
  for (int place = 0; place < kPlaces; ++place) granules.Map(place, 0);
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  uint32_t seed = 0;
  for (int written = 0; written < kPlaces; ++written) {
    kernels_->Write(lane.stream, writes[written % writes.size()], granules.at(written), kL1Bytes,
                    seed, seed + 1, {});
    ++seed;
    for (int place = 0; place < kPlaces; ++place) {
      kernels_->Check(lane.stream, reads[(written + place) % reads.size()], granules.at(place),
                      kL1Bytes, seed, *tally_, {.blocks = gpu_->processors(), .everywhere = true});
    }
  }
  lane.Wait();
  ExpectAllRight();
}

// What the allocator does under a limit: many streams, granules that move all the time, addresses
// that serve one granule after the other, and a GPU that is behind.
TEST_F(SecondMappingTest, ManyMovesOnManyStreams) {
  constexpr int kStreams = 4, kPlaces = 64, kGranules = 32, kMoves = 24'000;
  struct Old {
    int place;
    EventHandle event;
  };
  struct Stream {
    Lane lane{*gpu_, *driver_};
    std::vector<int> place_of;  // by granule
    std::vector<uint32_t> seed_of;
    std::vector<int> unmapped;  // places
    std::deque<Old> old;
  };
  // The streams' places alternate, so that each maps and unmaps beside what the others use.
  Granules granules(*driver_, kStreams * kPlaces, kStreams * kGranules);
  std::vector<EventHandle> spare_events;
  const Bytes bytes = granules.bytes();
  std::array<std::unique_ptr<Stream>, kStreams> streams;
  for (int i = 0; i < kStreams; ++i) {
    Stream& s = *(streams[i] = std::make_unique<Stream>());
    for (int k = 0; k < kPlaces; ++k) {
      const int place = k * kStreams + i;
      if (k >= kGranules) {
        s.unmapped.push_back(place);
        continue;
      }
      granules.Map(place, i * kGranules + k);
      s.place_of.push_back(place);
      s.seed_of.push_back(i * 1'000'000 + k);
      kernels_->Write(s.lane.stream, WritePath::kStore, granules.at(place), bytes, 0, s.seed_of[k],
                      {});
    }
  }
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return static_cast<int>(random() % end); };
  const auto unmap_oldest = [&](Stream& s) {
    granules.Unmap(s.old.front().place);
    s.unmapped.push_back(s.old.front().place);
    spare_events.push_back(s.old.front().event);
    s.old.pop_front();
  };
  int mapped_while_running = 0, waits = 0;
  for (int move = 0; move < kMoves && !HasFailure(); ++move) {
    const int i = move % kStreams;
    Stream& s = *streams[i];
    const int granule = below(kGranules);
    const DevicePtr from = granules.at(s.place_of[granule]);
    uint32_t& seed = s.seed_of[granule];
    const uint32_t next = seed + kGranules;
    const Options some = {.blocks = 8};
    kernels_->Check(s.lane.stream, reads[below(reads.size())], from, bytes, seed, *tally_, some);
    kernels_->Write(s.lane.stream, writes[below(writes.size())], from, bytes, seed, next,
                    {.blocks = 8, .linger_ns = static_cast<uint64_t>(below(800'000))});
    seed = next;

    while (!s.old.empty()) {
      const auto done = driver_->QueryEvent(0, s.old.front().event);
      ASSERT_TRUE(done.ok()) << done.status();
      if (!*done && !s.unmapped.empty()) break;
      if (!*done) {
        ASSERT_TRUE(driver_->SynchronizeEvent(0, s.old.front().event).ok());
        ++waits;
      }
      unmap_oldest(s);
    }
    if (spare_events.empty()) {
      const auto event = driver_->CreateEvent(0);
      ASSERT_TRUE(event.ok()) << event.status();
      spare_events.push_back(*event);
    }
    const EventHandle event = spare_events.back();
    spare_events.pop_back();
    ASSERT_TRUE(driver_->RecordEvent(0, event, s.lane.stream).ok());
    const int pick = below(s.unmapped.size());
    const int to = s.unmapped[pick];
    s.unmapped.erase(s.unmapped.begin() + pick);
    granules.Map(to, i * kGranules + granule);
    const auto done = driver_->QueryEvent(0, event);
    ASSERT_TRUE(done.ok()) << done.status();
    mapped_while_running += !*done;
    s.old.push_back({.place = s.place_of[granule], .event = event});
    s.place_of[granule] = to;
  }
  for (auto& s : streams) {
    for (int granule = 0; granule < kGranules; ++granule) {
      kernels_->Check(s->lane.stream, ReadPath::kLoad, granules.at(s->place_of[granule]), bytes,
                      s->seed_of[granule], *tally_, {});
    }
    s->lane.Wait();
    while (!s->old.empty()) unmap_oldest(*s);
  }
  for (const EventHandle event : spare_events) {
    EXPECT_TRUE(driver_->DestroyEvent(0, event).ok());
  }
  ExpectAllRight();
  EXPECT_GT(mapped_while_running, kMoves / 2);
  RecordProperty("moves", kMoves);
  RecordProperty("mapped_while_running", mapped_while_running);
  RecordProperty("waits_for_an_old_mapping", waits);
}

// --- The old address ---

// A stronger statement than stream order needs: a kernel that has used an address, and still runs,
// finds the other granule that was mapped there meanwhile. Its L1 cache may not know (recorded).
TEST_F(SecondMappingTest, AnAddressServesAnotherGranuleAtOnceEvenForARunningKernel) {
  constexpr int kGranules = 4, kRounds = 1000;
  constexpr uint32_t kSeed = 100;
  Lane lane(*gpu_, *driver_), neighbour(*gpu_, *driver_);
  Gate gate(*gpu_), neighbour_gate(*gpu_);
  Tally cached(*gpu_);
  // Place 1 is the one that changes; the other is being written all the time.
  Granules granules(*driver_, 2, kGranules + 1);
  const Bytes bytes = 64 * kKiB;
  for (int i = 0; i < kGranules; ++i) {
    granules.Map(1, i);
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(1), bytes, 0, kSeed + i, {});
    lane.Wait();
    if (i + 1 < kGranules) granules.Unmap(1);
  }
  granules.Map(0, kGranules);
  kernels_->Write(neighbour.stream, WritePath::kStore, granules.at(0), granules.bytes(), 0, 7,
                  {.gate = neighbour_gate.Next()});
  ASSERT_TRUE(neighbour_gate.WaitStarted());

  kernels_->Watch(lane.stream, granules.at(1), bytes, kSeed, kGranules, kRounds, gate.Next(),
                  *tally_, cached, gpu_->processors());
  for (int round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(gate.WaitStarted());
    granules.Unmap(1);
    granules.Map(1, round % kGranules);
    gate.Open();
    gate.Next();
  }
  ASSERT_TRUE(gate.WaitStarted());
  neighbour_gate.Open();
  kernels_->Check(neighbour.stream, ReadPath::kLoad, granules.at(0), granules.bytes(), 7, *tally_,
                  {});
  gpu_->Synchronize();
  EXPECT_FALSE(gate.TimedOut() || neighbour_gate.TimedOut());
  ExpectAllRight();
  RecordProperty("remaps", kRounds);
  RecordProperty("wrong_words_from_l1_of_the_running_kernel",
                 static_cast<int>(cached.Read().wrong));
}

// Two addresses exchange two granules, over and over, by every path; kernels of the same stream are
// all that comes between.
TEST_F(SecondMappingTest, TwoAddressesExchangeTwoGranules) {
  constexpr int kRounds = 2000;
  Lane lane(*gpu_, *driver_);
  Granules granules(*driver_, 2, 2);
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  std::array<uint32_t, 2> seed = {1, 2};  // by granule
  for (int i : {0, 1}) {
    granules.Map(i, i);
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(i), kL1Bytes, 0, seed[i], {});
  }
  const Options everywhere = {.blocks = gpu_->processors(), .everywhere = true};
  for (int round = 0; round < kRounds; ++round) {
    for (const int place : {0, 1}) {
      uint32_t& of = seed[(place + round) % 2];
      const ReadPath read = reads[round % reads.size()];
      kernels_->Check(lane.stream, read, granules.at(place), kL1Bytes, of, *tally_, everywhere);
      kernels_->Write(lane.stream, writes[round % writes.size()], granules.at(place), kL1Bytes, of,
                      of + 2, {});
      of += 2;
      kernels_->Check(lane.stream, read, granules.at(place), kL1Bytes, of, *tally_, everywhere);
    }
    lane.Record();
    lane.WaitForEvent();
    for (const int place : {0, 1}) granules.Unmap(place);
    for (const int place : {0, 1}) granules.Map(place, (place + round + 1) % 2);
  }
  gpu_->Synchronize();
  ExpectAllRight();
  RecordProperty("exchanges", kRounds);
}

// --- Programmatic dependent launch ---

// The second kernel begins, through the new address, before the first has ended through the old.
TEST_F(SecondMappingTest, ADependentKernelSeesWhatTheOldAddressWroteOnceItHasWaited) {
  NeedsDependentLaunch();
  if (IsSkipped()) return;
  constexpr int kRounds = 600;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_), began(*gpu_);
  Granules granules(*driver_, 2, 1);
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  uint32_t seed = 1;
  int place = 0, overlapped = 0;
  granules.Map(place, 0);
  kernels_->Write(lane.stream, WritePath::kStore, granules.at(place), kL1Bytes, 0, seed, {});
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const DevicePtr from = granules.at(place), to = granules.at(1 - place);
    kernels_->Write(lane.stream, writes[round % writes.size()], from, kL1Bytes, seed, seed + 1,
                    {.gate = gate.Next(), .trigger = true});
    ASSERT_TRUE(gate.WaitStarted());
    granules.Map(1 - place, 0);
    kernels_->Check(lane.stream, reads[round % reads.size()], to, kL1Bytes, seed + 1, *tally_,
                    {.blocks = gpu_->processors(),
                     .gate = began.Next(),
                     .programmatic = true,
                     .wait = true,
                     .trigger = true,
                     .everywhere = true});
    kernels_->Write(lane.stream, writes[(round + 1) % writes.size()], to, kL1Bytes, seed + 1,
                    seed + 2, {.programmatic = true, .wait = true, .trigger = true});
    kernels_->Check(lane.stream, reads[(round + 1) % reads.size()], to, kL1Bytes, seed + 2, *tally_,
                    {.programmatic = true, .wait = true});
    ASSERT_TRUE(began.WaitStarted()) << "no overlap";
    ++overlapped;
    gate.Open();
    lane.Record();
    lane.WaitForEvent();
    granules.Unmap(place);
    place = 1 - place;
    seed += 2;
  }
  gpu_->Synchronize();
  EXPECT_FALSE(gate.TimedOut());
  EXPECT_EQ(overlapped, kRounds);
  ExpectAllRight();
  RecordProperty("overlapped", overlapped);
}

// The new address served another granule before, and a kernel that has ended left its lines in
// the L1 caches while the writer, a dependent of it, was already there.
TEST_F(SecondMappingTest, ADependentKernelSeesNothingOfWhatTheNewAddressServedBefore) {
  NeedsDependentLaunch();
  if (IsSkipped()) return;
  constexpr int kRounds = 600;
  Lane lane(*gpu_, *driver_), background(*gpu_, *driver_);
  Gate gate(*gpu_), began(*gpu_), background_gate(*gpu_);
  Granules granules(*driver_, 3, 3);
  const auto reads = KernelReads();
  constexpr uint32_t kBefore = 1;  // the pattern of granule 1
  uint32_t seed = kBefore;
  for (const int i : {0, 1}) {
    granules.Map(i, i);
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(i), kL1Bytes, 0, kBefore, {});
  }
  granules.Map(2, 2);
  // No multiprocessor is ever without a kernel.
  kernels_->Write(background.stream, WritePath::kStore, granules.at(2), granules.bytes(), 0, 5,
                  {.blocks = gpu_->processors(), .gate = background_gate.Next()});
  ASSERT_TRUE(background_gate.WaitStarted());
  int overlapped = 0;
  // Granule 0 is at place 0 and to be moved to place 1, where granule 1 is.
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const Options everywhere = {
        .blocks = gpu_->processors(), .linger_ns = 50'000, .trigger = true, .everywhere = true};
    kernels_->Check(lane.stream, ReadPath::kLoadKeep, granules.at(1), kL1Bytes, kBefore, *tally_,
                    everywhere);
    lane.Record();
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), kL1Bytes, 0, ++seed,
                    {.gate = gate.Next(), .programmatic = true, .wait = true, .trigger = true});
    ASSERT_TRUE(gate.WaitStarted());
    lane.WaitForEvent();
    granules.Unmap(1);
    granules.Map(1, 0);
    Options dependent = everywhere;
    dependent.gate = began.Next();
    dependent.programmatic = dependent.wait = true;
    kernels_->Check(lane.stream, reads[round % reads.size()], granules.at(1), kL1Bytes, seed,
                    *tally_, dependent);
    ASSERT_TRUE(began.WaitStarted()) << "no overlap";
    ++overlapped;
    gate.Open();
    lane.Wait();
    granules.Unmap(1);
    granules.Map(1, 1);
  }
  background_gate.Open();
  gpu_->Synchronize();
  EXPECT_FALSE(gate.TimedOut() || background_gate.TimedOut());
  EXPECT_EQ(overlapped, kRounds);
  ExpectAllRight();
  RecordProperty("overlapped", overlapped);
}

// What a dependent reads before it waits is its own race, with one address as with two: what that
// leaves in the L1 cache must do no more harm through the new address.
TEST_F(SecondMappingTest, ReadingAheadOfTheWaitIsNoWorseThroughTheNewAddress) {
  NeedsDependentLaunch();
  if (IsSkipped()) return;
  constexpr int kRounds = 300;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_), began(*gpu_);
  Granules granules(*driver_, 2, 1);
  granules.Map(0, 0);
  granules.Map(1, 0);
  uint32_t seed = 1;
  const std::pair<ReadPath, std::string> paths[] = {{ReadPath::kLoad, "ld_ca"},
                                                    {ReadPath::kLoadKeep, "ld_evict_last"},
                                                    {ReadPath::kLoadReadOnly, "ld_nc"},
                                                    {ReadPath::kCopyAsync, "cp_async"}};
  for (const auto& [path, key] : paths) {
    std::array<uint32_t, 2> wrong = {};
    for (const int place : {0, 1}) {
      const Tally here(*gpu_);
      for (int round = 0; round < kRounds; ++round) {
        kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), kL1Bytes, 0, ++seed,
                        {.gate = gate.Next(), .trigger = true});
        ASSERT_TRUE(gate.WaitStarted());
        kernels_->Check(lane.stream, path, granules.at(place), kL1Bytes, seed, here,
                        {.blocks = gpu_->processors(),
                         .gate = began.Next(),
                         .programmatic = true,
                         .wait = true,
                         .read_ahead = true,
                         .everywhere = true});
        ASSERT_TRUE(began.WaitStarted());
        gate.Open();
        lane.Wait();
      }
      wrong[place] = here.Read().wrong;
    }
    EXPECT_TRUE(wrong[1] == 0 || wrong[0] != 0) << Name(path) << ": " << wrong[1] << " words";
    RecordProperty("wrong_words_same_address_" + key, static_cast<int>(wrong[0]));
    RecordProperty("wrong_words_new_address_" + key, static_cast<int>(wrong[1]));
  }
}

// An event stands for all work before it, also for a kernel that a dependent, which does not wait,
// has overtaken: an old mapping may go when its event says so.
TEST_F(SecondMappingTest, AnEventCoversAKernelThatItsDependentOvertook) {
  NeedsDependentLaunch();
  if (IsSkipped()) return;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_), overtook(*gpu_), after(*gpu_), waited(*gpu_);
  Granules granules(*driver_, 1, 1);
  granules.Map(0, 0);
  const DevicePtr address = granules.at(0);
  kernels_->Write(lane.stream, WritePath::kStore, address, kL1Bytes, 0, 1,
                  {.gate = gate.Next(), .trigger = true});
  ASSERT_TRUE(gate.WaitStarted());
  kernels_->Check(lane.stream, ReadPath::kLoad, address, 0, 1, *tally_,
                  {.gate = overtook.Next(), .programmatic = true, .trigger = true});
  EXPECT_TRUE(overtook.WaitStarted());
  lane.Record();
  kernels_->Check(lane.stream, ReadPath::kLoad, address, kL1Bytes, 1, *tally_,
                  {.gate = after.Next()});
  EXPECT_FALSE(after.WaitStarted(milliseconds(200)));
  EXPECT_FALSE(lane.IsDone());
  gate.Open();
  lane.Wait();
  EXPECT_TRUE(lane.IsDone());
  ExpectAllRight();
}

// Recorded: whether griddepcontrol.wait covers more than the kernel just before, and whether an
// event between two kernels keeps the second from beginning early.
TEST_F(SecondMappingTest, RecordsHowFarDependentLaunchGoes) {
  NeedsDependentLaunch();
  if (IsSkipped()) return;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_), overtook(*gpu_), began(*gpu_);
  Granules granules(*driver_, 1, 1);
  granules.Map(0, 0);
  const DevicePtr address = granules.at(0);
  kernels_->Write(lane.stream, WritePath::kStore, address, kL1Bytes, 0, 1,
                  {.gate = gate.Next(), .trigger = true});
  ASSERT_TRUE(gate.WaitStarted());
  kernels_->Check(lane.stream, ReadPath::kLoad, address, 0, 1, *tally_,
                  {.gate = overtook.Next(), .programmatic = true, .trigger = true});
  ASSERT_TRUE(overtook.WaitStarted());
  const Tally third(*gpu_);
  kernels_->Check(lane.stream, ReadPath::kLoadL2, address, kL1Bytes, 1, third,
                  {.gate = began.Next(), .programmatic = true, .wait = true});
  const bool third_began = began.WaitStarted(milliseconds(200));
  std::this_thread::sleep_for(milliseconds(50));
  gate.Open();
  lane.Wait();
  RecordProperty("a_third_kernel_begins_while_the_first_runs", third_began);
  RecordProperty("words_of_the_first_kernel_missing_after_the_thirds_wait",
                 static_cast<int>(third.Read().wrong));

  kernels_->Write(lane.stream, WritePath::kStore, address, kL1Bytes, 1, 2,
                  {.gate = gate.Next(), .trigger = true});
  ASSERT_TRUE(gate.WaitStarted());
  lane.Record();
  kernels_->Check(lane.stream, ReadPath::kLoad, address, kL1Bytes, 2, *tally_,
                  {.gate = began.Next(), .programmatic = true, .wait = true});
  const bool across_event = began.WaitStarted(milliseconds(200));
  const bool event_done = lane.IsDone();
  gate.Open();
  lane.Wait();
  EXPECT_FALSE(event_done);
  ExpectAllRight();
  RecordProperty("a_dependent_begins_early_across_an_event", across_event);
}

// --- Graphs ---

TEST_F(SecondMappingTest, GraphsUseTheAddressesTheyWereCapturedWith) {
  constexpr int kRounds = 400;
  Lane lane(*gpu_, *driver_);
  Gate gate(*gpu_);
  Granules granules(*driver_, 2, 3);
  const Bytes half = granules.bytes() / 2;
  const DevicePtr from = granules.at(0), to = granules.at(1);
  const uint32_t filled = UniformSeed(77);
  const auto capture = [&](const auto& work) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    const CudaFunctions& f = gpu_->f();
    gpu_->Must(f.cuStreamBeginCapture(lane.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
               "cuStreamBeginCapture");
    work();
    gpu_->Must(f.cuStreamEndCapture(lane.stream, &graph), "cuStreamEndCapture");
    gpu_->Must(f.cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    gpu_->Must(f.cuGraphUpload(executable, lane.stream), "cuGraphUpload");
    gpu_->Must(f.cuGraphDestroy(graph), "cuGraphDestroy");
    return executable;
  };
  // Mapped while they are captured, at what will not be there when they run.
  granules.Map(0, 2);
  granules.Map(1, 2);
  const Gate::View round_one = gate.Next();
  const CUgraphExec writer = capture([&] {
    kernels_->Write(lane.stream, WritePath::kMemset, from + half, half, 0, filled, {});
    kernels_->Write(lane.stream, WritePath::kStore, from, half, 0, 5, {.gate = round_one});
  });
  const CUgraphExec reader = capture([&] {
    kernels_->Check(lane.stream, ReadPath::kLoadReadOnly, to, half, 5, *tally_, {});
    kernels_->Check(lane.stream, ReadPath::kCopyToDevice, to + half, half, filled, *tally_, {});
    kernels_->Write(lane.stream, WritePath::kAdd, to, half, 5, 6, {});
    kernels_->Check(lane.stream, ReadPath::kLoad, to, half, 6, *tally_, {});
  });
  lane.Wait();
  for (const int place : {0, 1}) granules.Unmap(place);

  int mapped_while_running = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const int granule = round % 2;
    granules.Map(0, granule);
    kernels_->Write(lane.stream, WritePath::kStore, from, granules.bytes(), 0, 1000 + round, {});
    lane.Wait();
    gate.Rewind();
    gpu_->Must(gpu_->f().cuGraphLaunch(writer, lane.stream), "cuGraphLaunch");
    lane.Record();
    ASSERT_TRUE(gate.WaitStarted());
    granules.Map(1, granule);
    mapped_while_running += !lane.IsDone();
    gpu_->Must(gpu_->f().cuGraphLaunch(reader, lane.stream), "cuGraphLaunch");
    gate.Open();
    lane.WaitForEvent();
    granules.Unmap(0);
    lane.Wait();
    granules.Unmap(1);
  }
  EXPECT_FALSE(gate.TimedOut());
  EXPECT_EQ(mapped_while_running, kRounds);
  ExpectAllRight();
  gpu_->Must(gpu_->f().cuGraphExecDestroy(writer), "cuGraphExecDestroy");
  gpu_->Must(gpu_->f().cuGraphExecDestroy(reader), "cuGraphExecDestroy");
  RecordProperty("mapped_while_running", mapped_while_running);
}

// --- Two GPUs ---

// Granules of the first device, mapped for both; the second is their peer.
class SecondMappingPeerTest : public SecondMappingTest {
 protected:
  void SetUp() override {
    SecondMappingTest::SetUp();
    if (IsSkipped()) return;
    const auto count = Gpu::Count();
    ASSERT_TRUE(count.ok());
    if (*count < 2) GTEST_SKIP() << "one GPU, and a peer takes two";
    int reachable = 0;
    gpu_->Must(gpu_->f().cuDeviceCanAccessPeer(&reachable, 1, 0), "cuDeviceCanAccessPeer");
    if (reachable == 0) GTEST_SKIP() << "the second GPU does not reach the first";
    auto peer = Gpu::Open(1);
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *std::move(peer);
    peer_->EnablePeer(*gpu_);
    gpu_->EnablePeer(*peer_);
    peer_kernels_ = std::make_unique<PatternKernels>(*peer_, 2 * kMiB);
    peer_tally_ = std::make_unique<Tally>(*peer_);
    gpu_->MakeCurrent();
  }
  void TearDown() override {
    if (peer_ != nullptr) {
      peer_->Synchronize();
      peer_tally_.reset();
      peer_kernels_.reset();
      peer_.reset();
    }
    SecondMappingTest::TearDown();
  }

  // What follows on `later`, a stream of `gpu`, comes after what was recorded on `earlier`.
  void Follow(const Gpu& gpu, const Lane& later, const Lane& earlier) {
    gpu.MakeCurrent();
    gpu.Must(gpu.f().cuStreamWaitEvent(later.stream, earlier.event(), 0), "cuStreamWaitEvent");
  }
  void ExpectAllRightOnBoth() {
    peer_->Synchronize();
    gpu_->Synchronize();
    const Tally::Counts counts = peer_tally_->Read();
    EXPECT_EQ(counts.wrong, 0u) << "words on the peer; the first at " << counts.index
                                << ": expected " << counts.expected << ", found " << counts.found;
    gpu_->MakeCurrent();
    ExpectAllRight();
  }

  std::unique_ptr<Gpu> peer_;
  std::unique_ptr<PatternKernels> peer_kernels_;
  std::unique_ptr<Tally> peer_tally_;
};

// The one writes through the old address, and the other, after an event, reads and writes through
// the new one.
TEST_F(SecondMappingPeerTest, KernelsOfBothFollow) {
  constexpr int kRounds = 1000;
  Lane lane(*gpu_, *driver_), peer_lane(*peer_, *driver_);
  Gate gate(*gpu_), peer_gate(*peer_);
  Granules granules(*driver_, 2, 1, /*accessors=*/{0, 1});
  const Bytes bytes = granules.bytes();
  const auto writes = KernelWrites();
  const auto reads = KernelReads();
  int place = 0, mapped_while_running = 0;
  uint32_t seed = 1;
  granules.Map(0, 0);
  gpu_->MakeCurrent();
  kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), bytes, 0, seed, {});
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const bool by_peer = round % 2 != 0;
    const DevicePtr from = granules.at(place), to = granules.at(1 - place);
    const WritePath write = writes[round / 2 % writes.size()];
    const ReadPath read = reads[round / 2 % reads.size()];
    Gpu& first = by_peer ? *peer_ : *gpu_;
    Gpu& second = by_peer ? *gpu_ : *peer_;
    PatternKernels& first_kernels = by_peer ? *peer_kernels_ : *kernels_;
    PatternKernels& second_kernels = by_peer ? *kernels_ : *peer_kernels_;
    const Tally& first_tally = by_peer ? *peer_tally_ : *tally_;
    const Tally& second_tally = by_peer ? *tally_ : *peer_tally_;
    Lane& first_lane = by_peer ? peer_lane : lane;
    Lane& second_lane = by_peer ? lane : peer_lane;
    Gate& first_gate = by_peer ? peer_gate : gate;

    first.MakeCurrent();
    first_kernels.Write(first_lane.stream, write, from, bytes, seed, seed + 1,
                        {.gate = first_gate.Next()});
    first_lane.Record();
    ASSERT_TRUE(first_gate.WaitStarted());
    granules.Map(1 - place, 0);
    mapped_while_running += !first_lane.IsDone();
    Follow(second, second_lane, first_lane);
    second_kernels.Check(second_lane.stream, read, to, bytes, seed + 1, second_tally, {});
    second_kernels.Write(second_lane.stream, write, to, bytes, seed + 1, seed + 2, {});
    second_lane.Record();
    Follow(first, first_lane, second_lane);
    first_kernels.Check(first_lane.stream, read, to, bytes, seed + 2, first_tally, {});
    first_gate.Open();
    first_lane.Record();
    first_lane.WaitForEvent();
    granules.Unmap(place);
    place = 1 - place;
    seed += 2;
  }
  EXPECT_FALSE(gate.TimedOut() || peer_gate.TimedOut());
  EXPECT_EQ(mapped_while_running, kRounds);
  ExpectAllRightOnBoth();
  RecordProperty("mapped_while_running", mapped_while_running);
  RecordProperty("longest_map_us", granules.longest_map_us());
}

// Copies between the devices, out of and into the new address.
TEST_F(SecondMappingPeerTest, CopiesFollow) {
  constexpr int kRounds = 500;
  Lane lane(*gpu_, *driver_), peer_lane(*peer_, *driver_);
  Gate gate(*gpu_);
  Granules granules(*driver_, 2, 1, /*accessors=*/{0, 1});
  const Bytes bytes = granules.bytes();
  const DevicePtr staging = peer_->Allocate(bytes);
  int place = 0, mapped_while_running = 0;
  uint32_t seed = 1;
  granules.Map(0, 0);
  gpu_->MakeCurrent();
  kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), bytes, 0, seed, {});
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const DevicePtr from = granules.at(place), to = granules.at(1 - place);
    gpu_->MakeCurrent();
    kernels_->Write(lane.stream, WritePath::kStore, from, bytes, seed, seed + 1,
                    {.gate = gate.Next()});
    lane.Record();
    ASSERT_TRUE(gate.WaitStarted());
    granules.Map(1 - place, 0);
    mapped_while_running += !lane.IsDone();
    const auto copy = [&](DevicePtr target, DevicePtr source) {
      // Ordered by the owner's stream in even rounds, by the peer's in odd ones.
      if (round % 2 != 0)
        return peer_->f().cuMemcpyDtoDAsync(target, source, bytes, peer_lane.stream);
      return gpu_->f().cuMemcpyDtoDAsync(target, source, bytes, lane.stream);
    };
    // The peer's stream waits before the copy is ordered; some copies make the host wait.
    gate.Open();
    if (round % 2 != 0) Follow(*peer_, peer_lane, lane);
    gpu_->Must(copy(staging, to), "cuMemcpyDtoDAsync");
    if (round % 2 == 0) {
      lane.Record();
      Follow(*peer_, peer_lane, lane);
    }
    peer_kernels_->Check(peer_lane.stream, ReadPath::kLoad, staging, bytes, seed + 1, *peer_tally_,
                         {});
    peer_kernels_->Write(peer_lane.stream, WritePath::kStore, staging, bytes, seed + 1, seed + 2,
                         {});
    peer_lane.Record();
    if (round % 2 == 0) Follow(*gpu_, lane, peer_lane);
    gpu_->Must(copy(to, staging), "cuMemcpyDtoDAsync");
    if (round % 2 != 0) {
      peer_lane.Record();
      Follow(*gpu_, lane, peer_lane);
    }
    kernels_->Check(lane.stream, ReadPath::kLoad, to, bytes, seed + 2, *tally_, {});
    lane.Record();
    lane.WaitForEvent();
    granules.Unmap(place);
    place = 1 - place;
    seed += 2;
  }
  EXPECT_FALSE(gate.TimedOut());
  EXPECT_EQ(mapped_while_running, kRounds);
  ExpectAllRightOnBoth();
  peer_->Free(staging);
  RecordProperty("mapped_while_running", mapped_while_running);
}

// Also the peer knows at once that an address serves another granule, and in a kernel that runs.
TEST_F(SecondMappingPeerTest, ARunningKernelOfThePeerFindsTheOtherGranule) {
  constexpr uint32_t kSeed = 100, kGranules = 4;
  constexpr int kRounds = 1000;
  constexpr Bytes kBytes = 16 * kKiB;
  Lane lane(*gpu_, *driver_), watcher(*peer_, *driver_);
  Gate gate(*peer_);
  const Tally cached(*peer_);
  Granules granules(*driver_, 1, kGranules, /*accessors=*/{0, 1});
  gpu_->MakeCurrent();
  for (uint32_t i = 0; i < kGranules; ++i) {
    if (i != 0) granules.Unmap(0);
    granules.Map(0, static_cast<int>(i));
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), kBytes, 0, kSeed + i, {});
    lane.Wait();
  }
  peer_->MakeCurrent();
  peer_kernels_->Watch(watcher.stream, granules.at(0), kBytes, kSeed, kGranules, kRounds,
                       gate.Next(), *peer_tally_, cached, peer_->processors());
  for (int round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(gate.WaitStarted());
    granules.Unmap(0);
    granules.Map(0, round % static_cast<int>(kGranules));
    gate.Open();
    gate.Next();
  }
  ASSERT_TRUE(gate.WaitStarted());
  EXPECT_FALSE(gate.TimedOut());
  ExpectAllRightOnBoth();
  RecordProperty("remaps", kRounds);
  RecordProperty("wrong_words_from_l1_of_the_running_kernel",
                 static_cast<int>(cached.Read().wrong));
}

// --- The tests can fail ---

TEST_F(SecondMappingTest, TheChecksSeeAReaderThatDidNotWait) {
  Lane lane(*gpu_, *driver_), other(*gpu_, *driver_);
  Gate gate(*gpu_);
  Granules granules(*driver_, 2, 1);
  granules.Map(0, 0);
  granules.Map(1, 0);
  for (const ReadPath read : ReadPathsOf(*gpu_)) {
    const Tally here(*gpu_);
    kernels_->Write(lane.stream, WritePath::kStore, granules.at(0), granules.bytes(), 0, 9,
                    {.gate = gate.Next()});
    ASSERT_TRUE(gate.WaitStarted());
    kernels_->Check(other.stream, read, granules.at(1), granules.bytes(), 9, here, {});
    other.Wait();
    EXPECT_GT(here.Read().wrong + kernels_->CheckCopies(), 0u) << Name(read);
    gate.Open();
    lane.Wait();
  }
}

// The L1 caches are not coherent: within one kernel, what one block wrote takes a fence in the
// others, with one address as with two. The checks would see old words if there were any.
TEST_F(SecondMappingTest, WithinOneKernelAFenceIsNeeded) {
  Lane lane(*gpu_, *driver_);
  Granules granules(*driver_, 2, 1);
  granules.Map(0, 0);
  granules.Map(1, 0);
  std::array<std::array<int, 3>, 2> wrong;
  uint32_t seed = 1;
  for (const int read : {0, 1}) {
    for (const Fence fence : {Fence::kNone, Fence::kDevice, Fence::kAliasProxy}) {
      const Tally here(*gpu_);
      for (int round = 0; round < 100; ++round) {
        kernels_->CheckWithinOneKernel(lane.stream, granules.at(0), granules.at(read), seed++,
                                       fence, here);
      }
      lane.Wait();
      wrong[read][static_cast<int>(fence)] = static_cast<int>(here.Read().wrong);
    }
  }
  EXPECT_GT(wrong[0][0], 0);
  EXPECT_GT(wrong[1][0], 0);
  EXPECT_EQ(wrong[0][1], 0);
  EXPECT_EQ(wrong[1][2], 0);
  for (const int read : {0, 1}) {
    const std::string key = read == 0 ? "same_address" : "other_address";
    RecordProperty("old_words_" + key + "_no_fence", wrong[read][0]);
    RecordProperty("old_words_" + key + "_threadfence", wrong[read][1]);
    RecordProperty("old_words_" + key + "_fence_proxy_alias", wrong[read][2]);
  }
}

}  // namespace
}  // namespace offcut
