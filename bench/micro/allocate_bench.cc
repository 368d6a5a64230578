// What an allocation and its free cost on the program's thread, over a simulated device that
// answers at once: the allocator alone, with and without a recording.
//
//   Pair/4096        one block of that size, allocated and freed
//   RandomSizes/N    N blocks live, of sizes between 512 B and 64 MiB; each step frees one and
//                    allocates one
//
// The driver is asked nothing in steady state, so what kind of device it is does not matter.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "allocator/base/clock.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/sim/sim_driver.h"
#include "allocator/trace/recorder.h"

namespace offcut {
namespace {

enum Recording { kOff = 0, kOn = 1 };

class Device {
 public:
  explicit Device(Recording recording) {
    std::vector<EventSink*> sinks;
    if (recording == kOn) {
      char directory[] = "/tmp/offcut_bench_XXXXXX";
      directory_ = mkdtemp(directory);
      recorder_ = *Recorder::Start(directory_, "[]", Clock::Real());
      sinks.push_back(*recorder_->SinkFor(0, "bench", 0));
    }
    allocator_ = *DeviceAllocator::Create(driver_, 0, Clock::Real(), address_map_, Config(), sinks);
  }
  ~Device() {
    allocator_.reset();
    recorder_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  DevicePtr Allocate(Bytes requested) { return *allocator_->Allocate(nullptr, requested); }
  void Free(DevicePtr address) { allocator_->Free(address).IgnoreError(); }

 private:
  std::string directory_;
  SimDriver driver_;
  AddressMap address_map_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

void Pair(benchmark::State& state) {
  Device device(static_cast<Recording>(state.range(1)));
  const Bytes requested = static_cast<Bytes>(state.range(0));
  device.Free(device.Allocate(requested));
  for (auto _ : state) device.Free(device.Allocate(requested));
}
BENCHMARK(Pair)->ArgNames({"bytes", "recording"})->ArgsProduct({{4096, 1 << 20, 64 << 20}, {0, 1}});

void RandomSizes(benchmark::State& state) {
  Device device(static_cast<Recording>(state.range(1)));
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> log2_bytes(9, 26);
  // Drawn beforehand: the generator costs as much as an allocation.
  std::vector<Bytes> sizes(1 << 16);
  for (Bytes& size : sizes) size = static_cast<Bytes>(std::exp2(log2_bytes(random)));
  std::vector<DevicePtr> live;
  for (int64_t i = 0; i < state.range(0); ++i) live.push_back(device.Allocate(sizes[i]));
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 1) % sizes.size();
    DevicePtr& victim = live[(next * 40503) % live.size()];
    device.Free(victim);
    victim = device.Allocate(sizes[next]);
  }
}
BENCHMARK(RandomSizes)->ArgNames({"live", "recording"})->ArgsProduct({{1000, 10000}, {0, 1}});

}  // namespace
}  // namespace offcut
