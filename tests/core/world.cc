#include "tests/core/world.h"

#include <algorithm>

namespace offcut {
namespace {

constexpr DeviceIndex kDevice = 0;

sim::SimOptions MachineOf(const World::Options& options) {
  sim::SimOptions machine;
  machine.memory_bytes = options.memory_bytes;
  machine.lag_ns = options.lag_ns;
  machine.outside_bytes = 0;
  machine.devices = options.devices;
  return machine;
}

}  // namespace

size_t EventLog::Count(EventKind kind) const {
  return static_cast<size_t>(
      std::count_if(events.begin(), events.end(), [&](const Event& e) { return e.kind == kind; }));
}

World::World(const Options& options) : sim(MachineOf(options)), clock(sim.clock()) {
  auto created = DeviceAllocator::Create(driver, kDevice, clock, address_map, options.config,
                                         {&log, &witnesses}, options.limit);
  EXPECT_TRUE(created.ok()) << created.status();
  allocator = *std::move(created);
}

DevicePtr World::Allocate(Bytes requested, StreamHandle stream) {
  const absl::StatusOr<DevicePtr> address = allocator->Allocate(stream, requested);
  EXPECT_TRUE(address.ok()) << address.status();
  Check();
  return address.value_or(0);
}

absl::Status World::TryAllocate(Bytes requested, StreamHandle stream) {
  const absl::Status status = allocator->Allocate(stream, requested).status();
  Check();
  return status;
}

void World::Free(DevicePtr address) {
  EXPECT_TRUE(allocator->Free(address).ok());
  Check();
}

void World::RecordStream(DevicePtr address, DeviceIndex device, StreamHandle stream) {
  EXPECT_TRUE(allocator->RecordStream(address, device, stream).ok());
  Check();
}

StreamHandle World::NewStream() {
  return *sim.model().streams().CreateStream(kDevice, {.non_blocking = true});
}

void World::Launch(StreamHandle stream, DevicePtr address, uint64_t duration_ns) {
  const absl::StatusOr<BlockInfo> block = allocator->FindBlock(address);
  ASSERT_TRUE(block.ok()) << block.status();
  const absl::Status launched =
      sim.model().UseMemory(kDevice, stream, address, block->size, duration_ns);
  EXPECT_TRUE(launched.ok()) << launched;
}

void World::Check() {
  const StateView view = allocator->View();
  const absl::Status agreed = witnesses.Check(view);
  EXPECT_TRUE(agreed.ok()) << agreed;
  const absl::Status books = CheckDriverBooks(sim.model(), {view});
  EXPECT_TRUE(books.ok()) << books;
}

}  // namespace offcut
