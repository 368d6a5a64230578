// What a call of SimDriver costs when nothing backs its addresses: a replay makes millions of them.
//
//   Granule/N        a granule more, on top of N mapped ones: created, mapped, opened, unmapped,
//                    released
//   MoveGranule/N    one of N mapped granules gets a second mapping, opened; the first goes
//   Segment/N/fixed  one of N segments of cuMemAlloc is freed and one allocated: of another size
//                    wherever there is room, or (1) the same at the address that it had
//   EventRecordAndQuery, EventCreateAndDestroy, MemoryInfo

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/sim/sim_driver.h"

namespace offcut {
namespace {

constexpr Bytes kGranule = sim::kGranularity;

sim::SimOptions RoomyMachine() {
  sim::SimOptions machine;
  machine.memory_bytes = 1024 * kGiB;
  return machine;
}

class World {
 public:
  World() : driver_(RoomyMachine()) { Check(driver_.Initialize()); }

  SimDriver& driver() { return driver_; }

  // Reserved for twice as many, the first `count` mapped and opened.
  DevicePtr MapGranules(uint64_t count, std::vector<PhysicalHandle>* handles) {
    const DevicePtr base = *driver_.ReserveAddress(0, 2 * count * kGranule, 0, 0);
    for (uint64_t i = 0; i < count; ++i) {
      handles->push_back(*driver_.CreateMemory(0, kGranule, {}));
      Check(driver_.Map(base + i * kGranule, kGranule, handles->back()));
      Check(driver_.SetAccess(base + i * kGranule, kGranule, 0));
    }
    return base;
  }

  static void Check(const absl::Status& status) { OFFCUT_CHECK(status.ok(), status.message()); }

 private:
  SimDriver driver_;
};

void Granule(benchmark::State& state) {
  World world;
  std::vector<PhysicalHandle> handles;
  const uint64_t count = static_cast<uint64_t>(state.range(0));
  const DevicePtr base = world.MapGranules(count, &handles);
  uint64_t i = 0;
  for (auto _ : state) {
    const DevicePtr address = base + (count + i++ % count) * kGranule;
    const PhysicalHandle handle = *world.driver().CreateMemory(0, kGranule, {});
    World::Check(world.driver().Map(address, kGranule, handle));
    World::Check(world.driver().SetAccess(address, kGranule, 0));
    World::Check(world.driver().Unmap(address, kGranule));
    World::Check(world.driver().ReleaseMemory(handle));
  }
  state.SetItemsProcessed(state.iterations() * 5);
}
BENCHMARK(Granule)->Arg(1000)->Arg(50'000);

void MoveGranule(benchmark::State& state) {
  World world;
  std::vector<PhysicalHandle> handles;
  const uint64_t count = static_cast<uint64_t>(state.range(0));
  const DevicePtr base = world.MapGranules(count, &handles);
  std::vector<uint64_t> where(count), free_places(count);
  for (uint64_t i = 0; i < count; ++i) {
    where[i] = i;
    free_places[i] = count + i;
  }
  std::mt19937_64 random(1);
  for (auto _ : state) {
    const uint64_t granule = random() % count;
    uint64_t& place = free_places[random() % count];
    const DevicePtr from = base + where[granule] * kGranule, to = base + place * kGranule;
    World::Check(world.driver().Map(to, kGranule, handles[granule]));
    World::Check(world.driver().SetAccess(to, kGranule, 0));
    World::Check(world.driver().Unmap(from, kGranule));
    std::swap(where[granule], place);
  }
  state.SetItemsProcessed(state.iterations() * 3);
}
BENCHMARK(MoveGranule)->Arg(1000)->Arg(50'000);

// Of the sizes that PyTorch's own allocator asks for.
void Segment(benchmark::State& state) {
  World world;
  const uint64_t count = static_cast<uint64_t>(state.range(0));
  const bool fixed = state.range(1) != 0;
  std::mt19937_64 random(1);
  std::vector<DevicePtr> segments(count);
  std::vector<Bytes> sizes(count);
  for (uint64_t i = 0; i < count; ++i) {
    sizes[i] = (1 + random() % 32) * kGranule;
    segments[i] = *world.driver().AllocateMemory(0, sizes[i]);
  }
  for (auto _ : state) {
    const uint64_t segment = random() % count;
    World::Check(world.driver().FreeMemory(0, segments[segment]));
    if (fixed) {
      world.driver().FixNextAllocation(segments[segment]);
    } else {
      sizes[segment] = (1 + random() % 32) * kGranule;
    }
    segments[segment] = *world.driver().AllocateMemory(0, sizes[segment]);
  }
  state.SetItemsProcessed(state.iterations() * 2);
}
BENCHMARK(Segment)
    ->ArgNames({"", "fixed"})
    ->Args({100, 0})
    ->Args({3000, 0})
    ->Args({100, 1})
    ->Args({3000, 1});

void EventRecordAndQuery(benchmark::State& state) {
  World world;
  std::vector<EventHandle> events;
  for (int i = 0; i < 64; ++i) events.push_back(*world.driver().CreateEvent(0));
  uint64_t i = 0;
  for (auto _ : state) {
    const EventHandle event = events[i++ % events.size()];
    World::Check(world.driver().RecordEvent(0, event, nullptr));
    benchmark::DoNotOptimize(*world.driver().QueryEvent(0, event));
  }
  state.SetItemsProcessed(state.iterations() * 2);
}
BENCHMARK(EventRecordAndQuery);

void EventCreateAndDestroy(benchmark::State& state) {
  World world;
  for (auto _ : state) {
    World::Check(world.driver().DestroyEvent(0, *world.driver().CreateEvent(0)));
  }
  state.SetItemsProcessed(state.iterations() * 2);
}
BENCHMARK(EventCreateAndDestroy);

void MemoryInfo(benchmark::State& state) {
  World world;
  for (auto _ : state) benchmark::DoNotOptimize(world.driver().GetMemoryInfo(0)->free_bytes);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(MemoryInfo);

}  // namespace
}  // namespace offcut
