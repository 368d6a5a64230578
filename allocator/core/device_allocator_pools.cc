// What DeviceAllocator does with private pools: counting their uses, routing requests to them, and
// giving their memory back once they are released.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/device_allocator.h"
#include "allocator/policy/sizes.h"

namespace offcut {

// --- Uses and routes -----------------------------------------------------------------------------

absl::Status DeviceAllocator::RetainPool(PrivatePoolId id,
                                         std::shared_ptr<const ForeignAllocator> foreign) {
  DeviceMutexLock lock(&mutex_);
  // The parameter outlives the lock, also where the pool does not take it over.
  return private_pools_.Retain(id, foreign).status();
}

absl::Status DeviceAllocator::ReleasePool(PrivatePoolId id) {
  DeviceMutexLock lock(&mutex_);
  if (const absl::StatusOr<PrivatePool*> pool = private_pools_.Find(id); pool.ok()) {
    private_layout().BeforeRelease(**pool);
  }
  OFFCUT_RETURN_IF_ERROR(private_pools_.Release(id));
  RemoveReleasedPools();
  ReturnForeignSlow();
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
  return private_pools_.BeginRoute(id, stream, std::move(filter));
}

absl::Status DeviceAllocator::EndAllocateToPool(PrivatePoolId id) {
  // Outlives the lock.
  absl::StatusOr<PrivatePools::Filter> filter;
  DeviceMutexLock lock(&mutex_);
  filter = private_pools_.EndRoute(id);
  RemoveReleasedPools();
  ReturnForeignSlow();
  return filter.status();
}

Pool* DeviceAllocator::PrivatePoolFor(PrivatePool& owner, StreamLedger::Stream& stream) {
  for (Pool* const pool : owner.pools) {
    if (&pool->stream == &stream) return pool;
  }
  Layout& layout = owner.foreign != nullptr ? *foreign_layout_ : private_layout();
  owner.pools.push_back(AddPool(layout, stream, &owner));
  return owner.pools.back();
}

// --- Foreign memory ------------------------------------------------------------------------------

namespace {

// A call of a foreign allocator that a thread is in.
struct ForeignCall {
  const DeviceAllocator* by;
  Pool* pool;  // that needs memory; nullptr if memory is given back
  Bytes requested;
};
thread_local const ForeignCall* foreign_call = nullptr;

}  // namespace

bool DeviceAllocator::InForeignCall() const {
  return foreign_call != nullptr && foreign_call->by == this;
}

absl::Status DeviceAllocator::GrowForeignSlow(Pool& pool, Bytes requested) {
  const Bytes bytes = pool.layout.GrowthFor(requested);
  OFFCUT_RETURN_IF_ERROR(foreign_layout_->CheckLimit(bytes));
  const std::shared_ptr<const ForeignAllocator> allocator = pool.private_pool->foreign;
  const ForeignCall call = {.by = this, .pool = &pool, .requested = requested};
  private_pools_.BeginForeignCall();
  mutex_.Unlock();
  const ForeignCall* const outer = std::exchange(foreign_call, &call);
  const absl::StatusOr<DevicePtr> address = allocator->allocate(bytes);
  foreign_call = outer;
  mutex_.Lock();
  private_pools_.EndForeignCall();
  OFFCUT_RETURN_IF_ERROR(address.status());
  if (*address == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the private pool's own allocator gave none of ", bytes, " bytes"));
  }
  const bool free_of_blocks = HoldsNoBlock(*address, bytes);
  const absl::Status entered =
      free_of_blocks ? foreign_layout_->EnterForeign(pool, requested, *address)
                     : absl::InvalidArgumentError(absl::StrCat(
                           "the allocator of a private pool gave 0x", absl::Hex(*address),
                           ", where there are blocks of the program"));
  UpdateLimit();
  if (!entered.ok()) {
    mutex_.Unlock();
    allocator->free(*address, bytes);
    mutex_.Lock();
  }
  return entered;
}

bool DeviceAllocator::HoldsNoBlock(DevicePtr address, Bytes bytes) const {
  if (address_map_.Find(address) != device_) return true;
  bool none = true;
  taken_.ForEach([&](DevicePtr start, const Block*) { none &= start - address >= bytes; });
  return none;
}

absl::StatusOr<DevicePtr> DeviceAllocator::LendSlow(Bytes requested) {
  if (foreign_call->pool == nullptr || requested == 0 || requested > policy::kRequestMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", requested, " bytes for an allocator that is given memory back"));
  }
  return foreign_layout_->Lend(*foreign_call->pool, foreign_call->requested, requested);
}

void DeviceAllocator::ReturnForeignSlow() {
  while (const std::optional<SegmentsLayout::Return> segment = foreign_layout_->NextReturn()) {
    const ForeignCall call = {.by = this, .pool = nullptr, .requested = 0};
    private_pools_.BeginForeignCall();
    mutex_.Unlock();
    const ForeignCall* const outer = std::exchange(foreign_call, &call);
    segment->to->free(segment->address, segment->bytes);
    foreign_call = outer;
    mutex_.Lock();
    private_pools_.EndForeignCall();
    foreign_layout_->FinishReturn(segment->address);
    UpdateLimit();
    RemoveReleasedPools();
  }
  if (unused_foreign_.empty()) return;
  std::vector<std::shared_ptr<const ForeignAllocator>> unused = std::exchange(unused_foreign_, {});
  mutex_.Unlock();
  unused.clear();
  mutex_.Lock();
}

void DeviceAllocator::UpdateLimit() {
  // PyTorch counts foreign memory against the limit, so what is left of it is ours.
  const Bytes foreign = static_cast<Bytes>(emitter_.counters().foreign_bytes[0].current);
  context_.limit = limit_ == kNoLimit ? kNoLimit : limit_ - std::min(limit_, foreign);
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
  if (!private_pools_.Released(&id).empty() && WaitToReleaseSlow().ok()) {
    for (const PrivatePool* const owner : private_pools_.Released(&id)) {
      for (Pool* const pool : owner->pools) released += pool->layout.ReleaseIdle(pool);
    }
    RemoveReleasedPools();
    ReturnForeignSlow();
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
    if (owner.foreign != nullptr) unused_foreign_.push_back(std::move(owner.foreign));
    return true;
  });
}

void DeviceAllocator::SetFreeMemoryCallback(std::function<bool()> callback) {
  DeviceMutexLock lock(&mutex_);
  free_memory_callback_ = std::move(callback);
}

}  // namespace offcut
