#include "allocator/events/memory_state.h"

#include <algorithm>
#include <iterator>

namespace offcut {

void MemoryState::Apply(const Event& event) {
  switch (event.kind) {
    case EventKind::kStreamSeen:
      streams_[event.extra] = {.id = event.address, .handle = event.bytes};
      break;
    case EventKind::kPoolCreated:
      pools_[event.pool] = {.stream_index = event.extra, .private_pool_id = event.bytes};
      break;
    case EventKind::kBlockAllocated: {
      const Block block = {.requested = event.bytes,
                           .size = event.block_bytes(),
                           .pool = event.pool,
                           .foreign = IsForeign(event.address),
                           .allocated_ns = event.time_ns,
                           .allocation_index = allocations_++};
      const auto [it, inserted] = blocks_.try_emplace(event.address, block);
      if (!inserted) {
        // Its free was lost: what is handed out again cannot still be live.
        ++inconsistencies_;
        if (!it->second.pending) AddLive(it->second, /*sign=*/-1);
        it->second = block;
      }
      AddLive(block, /*sign=*/1);
      break;
    }
    case EventKind::kBlockFreed:
      RemoveBlock(event, /*was_pending=*/false);
      break;
    case EventKind::kPendingFreeFinished:
      RemoveBlock(event, /*was_pending=*/true);
      break;
    case EventKind::kBlockFreePended: {
      const auto it = blocks_.find(event.address);
      if (it == blocks_.end() || it->second.pending) {
        ++inconsistencies_;
        break;
      }
      it->second.pending = true;
      AddLive(it->second, /*sign=*/-1);
      break;
    }
    case EventKind::kGranuleCreated: {
      // Private pools take no granules from others, and give none.
      const Granule granule = {.size = event.bytes, .in_private_pool = IsPrivate(event.pool)};
      if (granules_.try_emplace(event.extra, granule).second) {
        reserved_bytes_ += event.bytes;
      } else {
        ++inconsistencies_;
      }
      break;
    }
    case EventKind::kGranuleMapped: {
      const auto it = granules_.find(event.extra);
      if (it == granules_.end() || it->second.mapped_at != 0) {
        ++inconsistencies_;
      } else {
        it->second.mapped_at = event.address;
      }
      break;
    }
    case EventKind::kGranuleUnmapped: {
      const auto it = granules_.find(event.extra);
      if (it == granules_.end() || it->second.mapped_at != event.address) {
        ++inconsistencies_;
      } else {
        it->second.mapped_at = 0;
      }
      break;
    }
    case EventKind::kGranuleMoved: {
      const auto it = granules_.find(event.extra);
      if (it == granules_.end() || it->second.mapped_at == 0) {
        ++inconsistencies_;
      } else {
        it->second.mapped_at = event.address;
      }
      break;
    }
    case EventKind::kOldMappingMade:
      if (!old_mappings_.try_emplace(event.address, event.extra).second) ++inconsistencies_;
      break;
    case EventKind::kOldMappingRemoved:
      if (old_mappings_.erase(event.address) == 0) ++inconsistencies_;
      break;
    case EventKind::kGranuleReleased: {
      const auto it = granules_.find(event.extra);
      if (it == granules_.end()) {
        ++inconsistencies_;
      } else {
        reserved_bytes_ -= it->second.size;
        granules_.erase(it);
      }
      break;
    }
    case EventKind::kDriverPoolGrown:
      driver_pools_[event.extra] += event.bytes;
      reserved_bytes_ += event.bytes;
      break;
    case EventKind::kDriverPoolShrunk:
      ShrinkDriverPool(event);
      break;
    case EventKind::kForeignSegmentAdded:
      if (foreign_segments_.try_emplace(event.address, event.bytes).second) {
        foreign_bytes_ += event.bytes;
      } else {
        ++inconsistencies_;
      }
      break;
    case EventKind::kForeignSegmentRemoved: {
      const auto it = foreign_segments_.find(event.address);
      if (it == foreign_segments_.end()) {
        ++inconsistencies_;
      } else {
        foreign_bytes_ -= it->second;
        foreign_segments_.erase(it);
      }
      break;
    }
    case EventKind::kDeviceUsedSampled:
      device_used_bytes_ = event.bytes;
      break;
    default:
      break;
  }
}

bool MemoryState::IsForeign(DevicePtr address) const {
  const auto behind = foreign_segments_.upper_bound(address);
  if (behind == foreign_segments_.begin()) return false;
  const auto& [base, bytes] = *std::prev(behind);
  return address - base < bytes;
}

void MemoryState::AddLive(const Block& block, int sign) {
  const Bytes by = sign > 0 ? block.requested : Bytes{0} - block.requested;
  live_bytes_ += by;
  if (block.foreign) foreign_live_bytes_ += by;
}

void MemoryState::RemoveBlock(const Event& event, bool was_pending) {
  const auto it = blocks_.find(event.address);
  if (it == blocks_.end()) {
    ++inconsistencies_;
    return;
  }
  const Block& block = it->second;
  if (block.pending != was_pending || block.requested != event.bytes ||
      block.size != event.block_bytes()) {
    ++inconsistencies_;
  }
  if (!block.pending) AddLive(block, /*sign=*/-1);
  blocks_.erase(it);
}

void MemoryState::ShrinkDriverPool(const Event& event) {
  const auto it = driver_pools_.find(event.extra);
  if (it == driver_pools_.end() || it->second < event.bytes) {
    ++inconsistencies_;
    return;
  }
  reserved_bytes_ -= event.bytes;
  it->second -= event.bytes;
  if (it->second == 0) driver_pools_.erase(it);
}

bool MemoryState::IsPrivate(uint16_t pool) const {
  const auto it = pools_.find(pool);
  return it != pools_.end() && it->second.private_pool_id != 0;
}

Accounting MemoryState::Account() const {
  std::vector<AccountedBlock> blocks;
  blocks.reserve(blocks_.size());
  for (const auto& [address, block] : blocks_) {
    if (block.foreign) continue;
    blocks.push_back({.address = address,
                      .size = block.size,
                      .requested = block.requested,
                      .pending = block.pending,
                      .in_private_pool = IsPrivate(block.pool)});
  }
  std::vector<AccountedGranule> granules;
  granules.reserve(granules_.size());
  for (const auto& [id, granule] : granules_) {
    granules.push_back({.address = granule.mapped_at,
                        .size = granule.size,
                        .in_private_pool = granule.in_private_pool});
  }
  std::sort(
      granules.begin(), granules.end(),
      [](const AccountedGranule& a, const AccountedGranule& b) { return a.address < b.address; });
  AccountedDriverPools driver_pools;
  for (const auto& [number, reserved] : driver_pools_) {
    driver_pools.Add(reserved, IsPrivateDriverPool(number));
  }
  Accounting sum = ComputeAccounting(blocks, granules, driver_pools, device_used_bytes_);
  sum.foreign_bytes = foreign_bytes_;
  return sum;
}

}  // namespace offcut
