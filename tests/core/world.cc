#include "tests/core/world.h"

#include <algorithm>

#include "allocator/core/audit.h"
#include "allocator/events/memory_state.h"

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

// What MemoryState knows of the allocator, side by side with the allocator's own view.
void ExpectSameState(const MemoryState& replayed, const StateView& view) {
  EXPECT_EQ(replayed.inconsistencies(), 0u);
  ASSERT_EQ(replayed.blocks().size(), view.taken.size());
  for (const StateView::Taken& block : view.taken) {
    const auto it = replayed.blocks().find(block.address);
    ASSERT_NE(it, replayed.blocks().end());
    EXPECT_EQ(it->second.requested, block.requested);
    EXPECT_EQ(it->second.size, block.size);
    EXPECT_EQ(it->second.pool, block.pool);
    EXPECT_EQ(it->second.pending, block.state == BlockState::kPending);
  }
  ASSERT_EQ(replayed.granules().size(), view.granules.size());
  for (const StateView::GranuleView& granule : view.granules) {
    const uint32_t id = granule.index | (granule.small ? kSmallGranuleBit : 0);
    const auto it = replayed.granules().find(id);
    ASSERT_NE(it, replayed.granules().end());
    EXPECT_EQ(it->second.mapped_at, granule.mapped_at);
  }
  EXPECT_EQ(replayed.reserved_bytes(), view.reserved_bytes);
  EXPECT_EQ(replayed.Account(), view.Account(replayed.device_used_bytes()));
}

}  // namespace

size_t EventLog::Count(EventKind kind) const {
  return static_cast<size_t>(
      std::count_if(events.begin(), events.end(), [&](const Event& e) { return e.kind == kind; }));
}

World::World(const Options& options) : sim(MachineOf(options)), clock(sim.clock()) {
  auto created =
      DeviceAllocator::Create(driver, kDevice, clock, address_map, {&log}, options.limit);
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

void World::RecordStream(DevicePtr address, StreamHandle stream) {
  EXPECT_TRUE(allocator->RecordStream(address, stream).ok());
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
  const absl::Status audit = Audit(view);
  EXPECT_TRUE(audit.ok()) << audit;
  MemoryState replayed;
  Counters folded;
  for (const Event& event : log.events) {
    replayed.Apply(event);
    folded.Apply(event);
  }
  ExpectSameState(replayed, view);
  EXPECT_EQ(folded, view.counters);
  const sim::MemoryCensus census = sim.model().memory().Census();
  EXPECT_EQ(census.physical_bytes, view.reserved_bytes);
  EXPECT_EQ(census.mapped_bytes, static_cast<Bytes>(view.counters.mapped_bytes[0].current));
}

}  // namespace offcut
