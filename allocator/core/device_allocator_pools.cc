// What DeviceAllocator does with private pools: counting their uses, routing requests to them, and
// giving their memory back once they are released.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/device_allocator.h"

namespace offcut {

// --- Uses and routes -----------------------------------------------------------------------------

absl::Status DeviceAllocator::RetainPool(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  return private_pools_.Retain(id).status();
}

absl::Status DeviceAllocator::ReleasePool(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_RETURN_IF_ERROR(private_pools_.Release(id));
  RemoveReleasedPools();
  return absl::OkStatus();
}

uint32_t DeviceAllocator::PoolUseCount(PrivatePoolId id) const {
  DeviceMutexLock lock(&mutex_);
  const absl::StatusOr<PrivatePool*> pool = private_pools_.Find(id);
  return pool.ok() ? (*pool)->uses : 0;
}

absl::Status DeviceAllocator::SetNoSplit(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(PrivatePool* const pool, private_pools_.Find(id));
  pool->no_split = true;
  return absl::OkStatus();
}

absl::Status DeviceAllocator::SetUseOnOom(PrivatePoolId id, bool use) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(PrivatePool* const pool, private_pools_.Find(id));
  pool->use_on_oom = use;
  return absl::OkStatus();
}

absl::Status DeviceAllocator::BeginAllocateToPool(PrivatePoolId id, StreamHandle stream,
                                                  PrivatePools::Filter filter) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_RETURN_IF_ERROR(streams_.Find(stream).status());
  return private_pools_.BeginRoute(id, std::move(filter));
}

absl::Status DeviceAllocator::EndAllocateToPool(PrivatePoolId id) {
  // Outlives the lock.
  absl::StatusOr<PrivatePools::Filter> filter;
  DeviceMutexLock lock(&mutex_);
  filter = private_pools_.EndRoute(id);
  RemoveReleasedPools();
  return filter.status();
}

Pool* DeviceAllocator::PrivatePoolFor(PrivatePool& owner, StreamLedger::Stream& stream) {
  for (Pool* const pool : owner.pools) {
    if (&pool->stream == &stream) return pool;
  }
  owner.pools.push_back(AddPool(private_layout(), stream, &owner));
  return owner.pools.back();
}

// --- Blocks --------------------------------------------------------------------------------------

Block* DeviceAllocator::TakeOnOomSlow(const Pool& pool, Bytes requested) {
  Block* block = nullptr;
  private_pools_.ForEachInUse([&](PrivatePool& owner) {
    if (!owner.use_on_oom) return;
    for (Pool* const other : owner.pools) {
      if (block != nullptr || &other->stream != &pool.stream) continue;
      block = other->layout.Take(*other, requested);
    }
  });
  return block;
}

absl::StatusOr<bool> DeviceAllocator::HasLiveBlocks(PrivatePoolId id,
                                                    absl::Span<const DevicePtr> addresses) const {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const PrivatePool* const pool, private_pools_.Find(id));
  const std::set<DevicePtr> expected(addresses.begin(), addresses.end());
  size_t live = 0;
  bool unexpected = false;
  taken_.ForEach([&](DevicePtr address, const Block* block) {
    if (block->state != BlockState::kLive || block->pool->private_pool != pool) return;
    unexpected |= !expected.contains(address);
    ++live;
  });
  return !unexpected && live == expected.size();
}

// --- Checkpoints ---------------------------------------------------------------------------------

absl::StatusOr<std::vector<Block*>> DeviceAllocator::SegmentsForCheckpoint(PrivatePoolId id) {
  OFFCUT_ASSIGN_OR_RETURN(const PrivatePool* const owner, private_pools_.Find(id));
  if (streams_.has_pending()) streams_.Poll([this](Block* block) { FinishPendingFree(block); });
  std::vector<Block*> segments;
  for (const Pool* const pool : owner->pools) {
    OFFCUT_ASSIGN_OR_RETURN(const std::vector<Block*> firsts, pool->layout.SegmentsOf(*pool));
    segments.insert(segments.end(), firsts.begin(), firsts.end());
  }
  for (const Block* const first : segments) {
    for (const Block* block = first; block != nullptr; block = block->next) {
      if (block->state == BlockState::kPending) {
        return absl::FailedPreconditionError(absl::StrCat(
            "Events should have synchronized when checkpointing block: the block at 0x",
            absl::Hex(block->address), " is freed and still used by a stream"));
      }
    }
  }
  return segments;
}

absl::StatusOr<PoolCheckpoint> DeviceAllocator::TakeCheckpoint(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<Block*> segments, SegmentsForCheckpoint(id));
  PoolCheckpoint checkpoint = {.pool = id};
  for (const Block* const first : segments) {
    PoolCheckpoint::Segment& segment = checkpoint.segments.emplace_back();
    segment.address = first->address;
    for (const Block* block = first; block != nullptr; block = block->next) {
      segment.blocks.push_back({.size = block->size,
                                .requested = block->requested,
                                .live = block->state == BlockState::kLive});
    }
  }
  return checkpoint;
}

absl::StatusOr<RestoredBlocks> DeviceAllocator::RestoreCheckpoint(
    const PoolCheckpoint& checkpoint) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<Block*> segments,
                          SegmentsForCheckpoint(checkpoint.pool));
  std::map<DevicePtr, std::pair<Block*, Bytes>> by_address;
  std::vector<Block*> live;
  for (Block* const first : segments) {
    Bytes& bytes = by_address[first->address].second;
    by_address[first->address].first = first;
    for (Block* block = first; block != nullptr; block = block->next) {
      bytes += block->size;
      if (block->state != BlockState::kLive) continue;
      if (block->uses != nullptr) {
        return absl::FailedPreconditionError(absl::StrCat(
            "Events should have synchronized when setting checkpointed block: the block at 0x",
            absl::Hex(block->address), " is used by other streams"));
      }
      live.push_back(block);
    }
  }
  for (const PoolCheckpoint::Segment& segment : checkpoint.segments) {
    const auto found = by_address.find(segment.address);
    if (found == by_address.end() || found->second.second != segment.bytes()) {
      return absl::FailedPreconditionError(
          absl::StrCat(" could not find 0x", absl::Hex(segment.address),
                       ": the segment is not in the pool any more"));
    }
  }

  RestoredBlocks restored;
  for (Block* const block : live) {
    restored.freed.push_back(block->address);
    FreeBlock(block);
  }
  for (const PoolCheckpoint::Segment& segment : checkpoint.segments) {
    Block* const whole = by_address[segment.address].first;
    std::vector<Bytes> sizes;
    for (const PoolCheckpoint::Block& block : segment.blocks) sizes.push_back(block.size);
    const std::vector<Block*> blocks = whole->pool->layout.Cut(whole, sizes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (segment.blocks[i].live) {
        restored.allocated.push_back(blocks[i]->address);
        EnterBlock(blocks[i], segment.blocks[i].requested);
      } else {
        blocks[i]->pool->layout.GiveBack(blocks[i], blocks[i]->pool->stream.epoch);
      }
    }
  }
  return restored;
}

// --- Giving memory back --------------------------------------------------------------------------

Bytes DeviceAllocator::EmptyCacheOf(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  Bytes released = 0;
  if (!private_pools_.Released(&id).empty() && WaitForDeviceSlow().ok()) {
    for (const PrivatePool* const owner : private_pools_.Released(&id)) {
      for (Pool* const pool : owner->pools) released += pool->layout.ReleaseIdle(pool);
    }
    RemoveReleasedPools();
  }
  emitter_.Emit({.bytes = released, .kind = EventKind::kCacheEmptied});
  return released;
}

Bytes DeviceAllocator::ReleaseAllIdle() {
  Bytes released = 0;
  for (const std::unique_ptr<Layout>& layout : layouts_) {
    released += layout->ReleaseIdle(/*only=*/nullptr);
  }
  RemoveReleasedPools();
  return released;
}

void DeviceAllocator::RemoveReleasedPools() {
  private_pools_.RemoveReleased([this](PrivatePool& owner) {
    for (const Pool* const pool : owner.pools) {
      if (pool->climbers > 0 || pool->layout.HoldsMemory(*pool)) return false;
    }
    for (Pool* const pool : owner.pools) {
      pool->private_pool = nullptr;
      spare_pools_.push_back(pool);
    }
    return true;
  });
}

void DeviceAllocator::SetFreeMemoryCallback(std::function<bool()> callback) {
  DeviceMutexLock lock(&mutex_);
  free_memory_callback_ = std::move(callback);
}

}  // namespace offcut
