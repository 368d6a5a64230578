#include "tests/fuzz/core_under_test.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "allocator/base/status_macros.h"
#include "allocator/policy/native_sizes.h"
#include "allocator/policy/sizes.h"
#include "allocator/sim/cards.h"

namespace offcut::fuzz {
namespace {

// Whole granules in which no block lies, and no slab that has a block.
Bytes ReleasableBytesOf(const StateView& view, const StateView::ArenaView& arena) {
  const auto is_free = [](const StateView::Tile& tile) {
    return tile.state == BlockState::kFree ||
           (tile.state == BlockState::kSlab && tile.free_slots == tile.slots.size());
  };
  Bytes releasable = 0;
  for (auto tile = arena.tiles.begin(); tile != arena.tiles.end();) {
    const auto first = tile;
    while (tile != arena.tiles.end() && is_free(*tile)) ++tile;
    if (tile == first) {
      ++tile;
      continue;
    }
    const DevicePtr begin = first->address;
    const DevicePtr end = std::prev(tile)->address + std::prev(tile)->size;
    for (const StateView::GranuleView& granule : view.granules) {
      const bool within = granule.mapped_at >= begin && granule.mapped_at + granule.bytes <= end;
      if (within) releasable += granule.bytes;
    }
  }
  return releasable;
}

}  // namespace

CoreUnderTest::CoreUnderTest(SimDriver& sim, Driver& driver)
    : sim_(sim), driver_(driver), clock_(sim.clock()) {}

CoreUnderTest::~CoreUnderTest() = default;

absl::Status CoreUnderTest::Open(const Setup& setup, absl::Span<EventSink* const> sinks) {
  OFFCUT_ASSIGN_OR_RETURN(config_, Config::Parse({.offcut_conf = setup.conf}));
  for (DeviceIndex device = 0; device < setup.devices; ++device) {
    One& one = devices_.emplace_back();
    std::vector<EventSink*> observers = {&one.witnesses};
    if (static_cast<size_t>(device) < sinks.size()) {
      observers.push_back(sinks[static_cast<size_t>(device)]);
    }
    absl::StatusOr<std::unique_ptr<DeviceAllocator>> created = DeviceAllocator::Create(
        driver_, device, clock_, address_map_, config_, std::move(observers), setup.limit);
    left_by_tests_ = sim_.model().memory().Census();
    OFFCUT_RETURN_IF_ERROR(created.status());
    one.allocator = *std::move(created);
    one.allocator->SetWaitForPeer(
        [this](DeviceIndex peer) { return devices_[peer].allocator->WaitForDevice(); });
  }
  return absl::OkStatus();
}

void CoreUnderTest::Close() { devices_.clear(); }

absl::StatusOr<DevicePtr> CoreUnderTest::Allocate(DeviceIndex device, StreamHandle stream,
                                                  Bytes bytes) {
  return devices_[device].allocator->Allocate(stream, bytes);
}

absl::Status CoreUnderTest::Free(DeviceIndex device, DevicePtr address) {
  return devices_[device].allocator->Free(address);
}

absl::Status CoreUnderTest::RecordStream(DeviceIndex device, DevicePtr address, DeviceIndex user,
                                         StreamHandle stream) {
  return devices_[device].allocator->RecordStream(address, user, stream);
}

Bytes CoreUnderTest::EmptyCache(DeviceIndex device) {
  return devices_[device].allocator->EmptyCache();
}

absl::Status CoreUnderTest::OpenTo(DeviceIndex device, DeviceIndex peer) {
  return devices_[device].allocator->OpenTo(peer);
}

void CoreUnderTest::SetLimit(DeviceIndex device, Bytes bytes) {
  devices_[device].allocator->SetLimit(bytes);
}

absl::StatusOr<BlockInfo> CoreUnderTest::FindBlock(DeviceIndex device, DevicePtr address) {
  return devices_[device].allocator->FindBlock(address);
}

void CoreUnderTest::SetFreeMemoryCallback(DeviceIndex device, std::function<bool()> callback) {
  if (static_cast<size_t>(device) >= devices_.size()) return;  // closed
  devices_[device].allocator->SetFreeMemoryCallback(std::move(callback));
}

absl::Status CoreUnderTest::RetainPool(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->RetainPool(pool);
}

absl::Status CoreUnderTest::ReleasePool(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->ReleasePool(pool);
}

uint32_t CoreUnderTest::PoolUseCount(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->PoolUseCount(pool);
}

absl::Status CoreUnderTest::SetNoSplit(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->SetNoSplit(pool);
}

absl::Status CoreUnderTest::SetUseOnOom(DeviceIndex device, PrivatePoolId pool, bool use) {
  return devices_[device].allocator->SetUseOnOom(pool, use);
}

absl::Status CoreUnderTest::BeginAllocateToPool(DeviceIndex device, PrivatePoolId pool,
                                                StreamHandle stream, PrivatePools::Filter filter) {
  return devices_[device].allocator->BeginAllocateToPool(pool, stream, std::move(filter));
}

absl::Status CoreUnderTest::EndAllocateToPool(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->EndAllocateToPool(pool);
}

Bytes CoreUnderTest::EmptyCacheOf(DeviceIndex device, PrivatePoolId pool) {
  return devices_[device].allocator->EmptyCacheOf(pool);
}

absl::StatusOr<bool> CoreUnderTest::HasLiveBlocks(DeviceIndex device, PrivatePoolId pool,
                                                  absl::Span<const DevicePtr> addresses) {
  return devices_[device].allocator->HasLiveBlocks(pool, addresses);
}

absl::StatusOr<PoolCheckpoint> CoreUnderTest::TakeCheckpoint(DeviceIndex device,
                                                             PrivatePoolId pool) {
  return devices_[device].allocator->TakeCheckpoint(pool);
}

absl::StatusOr<RestoredBlocks> CoreUnderTest::RestoreCheckpoint(DeviceIndex device,
                                                                const PoolCheckpoint& checkpoint) {
  return devices_[device].allocator->RestoreCheckpoint(checkpoint);
}

Accounting CoreUnderTest::Account(DeviceIndex device) {
  return devices_[device].allocator->Account();
}

Counters CoreUnderTest::counters(DeviceIndex device) {
  return devices_[device].allocator->counters();
}

Bytes CoreUnderTest::ReservedBytes(DeviceIndex device) const {
  return devices_[device].witnesses.reserved_bytes();
}

void CoreUnderTest::MarkStep(DeviceIndex device, uint64_t step) {
  devices_[device].allocator->MarkStep(step);
}

void CoreUnderTest::ResetPeaks(DeviceIndex device) { devices_[device].allocator->ResetPeaks(); }

void CoreUnderTest::ResetTotals(DeviceIndex device) { devices_[device].allocator->ResetTotals(); }

absl::Status CoreUnderTest::Check() {
  std::vector<StateView> views;
  for (const One& one : devices_) {
    views.push_back(one.allocator->View());
    OFFCUT_RETURN_IF_ERROR(one.witnesses.Check(views.back()));
  }
  return CheckDriverBooks(sim_.model(), views, left_by_tests_);
}

CoreUnderTest::Holdings CoreUnderTest::HoldingsOf(DeviceIndex device) {
  const StateView view = devices_[device].allocator->View();
  const Accounting sum = view.Account(/*device_used_bytes=*/0);
  Holdings holdings = {.reserved_bytes = sum.reserved_bytes,
                       .live_bytes = sum.live_bytes,
                       .pending_bytes = sum.pending_bytes};
  for (const StateView::ArenaView& arena : view.arenas) {
    const uint16_t pool = arena.tiles.front().pool;
    if (arena.segment && pool != kNoPool && view.pools[pool].in_use) continue;
    holdings.releasable_bytes += ReleasableBytesOf(view, arena);
  }
  return holdings;
}

Bytes CoreUnderTest::GrowthMax(Bytes bytes, bool routed) const {
  namespace native = policy::native;
  const Bytes largest_block = config_.roundup_power2_divisions() == Divisions()
                                  ? native::BlockSize(bytes, 0)
                                  : std::bit_ceil(std::max(bytes, native::kBlockMin));
  if (UsesDriverPools()) return RoundUp(largest_block, sim::PoolModel::kChunkBytes);
  if (config_.layout() == LayoutKind::kSegments || routed) {
    // Beyond these limits the request asks for segments of another kind.
    const Bytes large_segment = config_.large_segment_size_mb().bytes();
    return std::max(native::SegmentSize(largest_block, large_segment),
                    native::IsSmall(largest_block) ? 0 : large_segment);
  }
  const Bytes tile =
      bytes <= policy::kSlotMax ? policy::SlabSize(policy::SlotClassFor(bytes)) : largest_block;
  return RoundUp(tile, sim::kGranularity);
}

}  // namespace offcut::fuzz
