#include "allocator/core/device_allocator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/arena_layout.h"
#include "allocator/core/async_layout.h"
#include "allocator/core/segments_layout.h"
#include "allocator/policy/sizes.h"

namespace offcut {

namespace {

// The layout that the options ask for or, with a notice, the next best that the device has
// everything for.
LayoutKind LayoutFor(const Config& config, DeviceIndex device, const DeviceProperties& properties,
                     std::string* notice) {
  LayoutKind layout = config.layout();
  std::string lacks;
  if (layout == LayoutKind::kAsync && !properties.driver_pools) {
    lacks = "no pools of stream-ordered memory";
    layout = config.native_layout();
  }
  if (layout == LayoutKind::kArena && !properties.virtual_memory) {
    absl::StrAppend(&lacks, lacks.empty() ? "" : " and ", "no virtual memory management");
    layout = LayoutKind::kSegments;
  }
  if (!lacks.empty()) {
    *notice =
        absl::StrCat("device ", device, " (", properties.name, ") has ", lacks, ": the ",
                     layout == LayoutKind::kArena ? "arena" : "segments", " layout is used there");
  }
  return layout;
}

}  // namespace

// --- Life and death ------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<DeviceAllocator>> DeviceAllocator::Create(
    Driver& driver, DeviceIndex device, const Clock& clock, AddressMap& address_map,
    const Config& config, std::vector<EventSink*> sinks, Bytes limit) {
  OFFCUT_RETURN_IF_ERROR(driver.Initialize());
  OFFCUT_ASSIGN_OR_RETURN(DeviceProperties properties, driver.GetProperties(device));
  std::string notice;
  const LayoutKind layout = LayoutFor(config, device, properties, &notice);
  std::unique_ptr<DeviceAllocator> allocator(new DeviceAllocator(
      driver, device, std::move(properties), layout, clock, address_map, config, std::move(sinks)));
  allocator->notice_ = std::move(notice);
  allocator->SetLimit(limit);
  DeviceMutexLock lock(&allocator->mutex_);
  if (layout == LayoutKind::kArena) {
    // A device that grants none, or cannot say, gets plain memory.
    allocator->granules_.SetFlags(GrantedMemoryFlags(driver, device).value_or(MemoryFlags()));
    // Now, while nothing runs that the test would have to wait for.
    allocator->context_.second_mappings_work =
        config.remap() == RemapMode::kAlias && SecondMappingsWork(driver, device).value_or(false);
    if (config.remap() == RemapMode::kAlias && !allocator->context_.second_mappings_work) {
      allocator->notice_ = absl::StrCat(
          "second mappings failed their test on device ", device, " (", allocator->properties_.name,
          "); granules are moved once the device is done with them, as with remap:wait");
    }
  }
  allocator->context_.SampleDeviceUsed();
  return allocator;
}

DeviceAllocator::DeviceAllocator(Driver& driver, DeviceIndex device, DeviceProperties properties,
                                 LayoutKind layout, const Clock& clock, AddressMap& address_map,
                                 const Config& config, std::vector<EventSink*> sinks)
    : driver_(driver),
      device_(device),
      properties_(std::move(properties)),
      config_(config),
      address_map_(address_map),
      emitter_(device, clock),
      granules_(driver, device, properties_.granularity, emitter_),
      streams_(driver, device, emitter_),
      context_{.driver = driver,
               .device = device,
               .properties = properties_,
               .config = config_,
               .address_map = address_map,
               .emitter = emitter_,
               .blocks = blocks_,
               .granules = granules_,
               .streams = streams_,
               .taken = taken_,
               .private_pools = private_pools_,
               .mutex = mutex_,
               .limit = kNoLimit},
      private_pools_(emitter_) {
  switch (layout) {
    case LayoutKind::kSegments:
      layouts_.push_back(std::make_unique<SegmentsLayout>(context_, SegmentSource::kDriver));
      break;
    case LayoutKind::kAsync:
      layouts_.push_back(std::make_unique<AsyncLayout>(context_));
      break;
    case LayoutKind::kArena:
      layouts_.push_back(std::make_unique<ArenaLayout>(context_));
      layouts_.push_back(std::make_unique<SegmentsLayout>(context_, SegmentSource::kOneGranule));
      break;
  }
  private_layout_ = layouts_.back().get();
  auto foreign = std::make_unique<SegmentsLayout>(context_, SegmentSource::kForeign);
  foreign_layout_ = foreign.get();
  layouts_.push_back(std::move(foreign));
  for (EventSink* sink : sinks) emitter_.AddSink(sink);
}

DeviceAllocator::~DeviceAllocator() {
  DeviceMutexLock lock(&mutex_);
  // What the driver refuses now stays with the process.
  driver_.SynchronizeDevice(device_).IgnoreError();
  taken_.ForEach([](DevicePtr, Block* block) { delete block->uses; });
  layouts_.clear();
}

// --- The hot path --------------------------------------------------------------------------------

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void DeviceAllocator::EmitBlock(EventKind kind,
                                                                    const Block& block) {
  emitter_.EmitInline({.address = block.address,
                       .bytes = block.requested,
                       .extra = static_cast<uint32_t>(block.size / kBlockAlignment),
                       .pool = block.pool->index,
                       .kind = kind});
}

inline absl::StatusOr<Pool*> DeviceAllocator::PoolFor(StreamHandle handle) {
  const StreamLedger::Stream* const stream = streams_.FindLast(handle);
  if (ABSL_PREDICT_TRUE(stream != nullptr && !private_pools_.may_divert() &&
                        stream->index < pool_of_stream_.size())) {
    if (Pool* const pool = pool_of_stream_[stream->index]; pool != nullptr) return pool;
  }
  return PoolForSlow(handle);
}

absl::StatusOr<DevicePtr> DeviceAllocator::Allocate(StreamHandle stream, Bytes requested) {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool* const pool, PoolFor(stream));
  if (ABSL_PREDICT_FALSE(pool == nullptr)) return LendSlow(requested);
  if (ABSL_PREDICT_FALSE(requested == 0 || requested > policy::kRequestMax)) {
    return FailSlow(*pool, requested, absl::OutOfRangeError("no device has as much memory"));
  }
  if (streams_.has_pending()) streams_.Poll([this](Block* block) { FinishPendingFree(block); });

  Block* block = pool->layout.Take(*pool, requested);
  if (ABSL_PREDICT_FALSE(block == nullptr)) {
    OFFCUT_ASSIGN_OR_RETURN(block, ClimbReclaimLadderSlow(*pool, requested));
  }
  EnterBlock(block, requested);
  return block->address;
}

void DeviceAllocator::EnterBlock(Block* block, Bytes requested) {
  block->requested = requested;
  taken_.Insert(block);
  EmitBlock(EventKind::kBlockAllocated, *block);
}

absl::Status DeviceAllocator::Free(DevicePtr address) {
  DeviceMutexLock lock(&mutex_);
  if (ABSL_PREDICT_FALSE(address == 0)) return InvalidFreeSlow(address);
  const size_t place = taken_.PlaceOf(address);
  if (ABSL_PREDICT_FALSE(place == BlockTable::kNowhere)) return InvalidFreeSlow(address);
  Block* const block = taken_.At(place);
  if (ABSL_PREDICT_FALSE(block->state != BlockState::kLive)) return InvalidFreeSlow(address);
  if (block->uses != nullptr) {
    block->state = BlockState::kPending;
    EmitBlock(EventKind::kBlockFreePended, *block);
    block->pool->layout.NotePending(*block);
    block->uses->epoch = block->pool->stream.epoch;
    streams_.Pend(block);
    return absl::OkStatus();
  }
  taken_.RemoveAt(place);
  EmitBlock(EventKind::kBlockFreed, *block);
  block->pool->layout.GiveBack(block, block->pool->stream.epoch);
  return absl::OkStatus();
}

void DeviceAllocator::FreeBlock(Block* block) {
  taken_.Remove(block);
  EmitBlock(EventKind::kBlockFreed, *block);
  block->pool->layout.GiveBack(block, block->pool->stream.epoch);
}

void DeviceAllocator::FinishPendingFree(Block* block) {
  EmitBlock(EventKind::kPendingFreeFinished, *block);
  const uint64_t epoch = block->uses->epoch;
  delete std::exchange(block->uses, nullptr);
  taken_.Remove(block);
  block->pool->layout.GiveBack(block, epoch);
}

absl::StatusOr<Pool*> DeviceAllocator::PoolForSlow(StreamHandle handle) {
  if (private_pools_.may_divert() && InForeignCall()) return nullptr;
  OFFCUT_ASSIGN_OR_RETURN(StreamLedger::Stream* const stream, streams_.Find(handle));
  if (private_pools_.has_routes()) {
    OFFCUT_ASSIGN_OR_RETURN(PrivatePool* const owner, private_pools_.FindRoute(handle));
    if (owner != nullptr) return PrivatePoolFor(*owner, *stream);
  }
  if (stream->index < pool_of_stream_.size()) {
    if (Pool* const pool = pool_of_stream_[stream->index]; pool != nullptr) return pool;
  }
  if (pool_of_stream_.size() <= stream->index) pool_of_stream_.resize(stream->index + 1);
  pool_of_stream_[stream->index] = AddPool(default_layout(), *stream, /*owner=*/nullptr);
  return pool_of_stream_[stream->index];
}

Pool* DeviceAllocator::AddPool(Layout& layout, StreamLedger::Stream& stream, PrivatePool* owner) {
  const auto spare = std::find_if(spare_pools_.begin(), spare_pools_.end(), [&](const Pool* pool) {
    return &pool->stream == &stream && &pool->layout == &layout;
  });
  Pool* pool = nullptr;
  if (owner != nullptr && spare != spare_pools_.end()) {
    pool = *spare;
    spare_pools_.erase(spare);
  } else {
    OFFCUT_CHECK(pools_.size() < kNoPool, "more pools than an event can name");
    pools_.push_back(layout.NewPool(static_cast<uint16_t>(pools_.size()), stream));
    pool = pools_.back().get();
  }
  pool->private_pool = owner;
  emitter_.Emit({.bytes = owner != nullptr ? owner->id.Encode() : 0,
                 .extra = stream.index,
                 .pool = pool->index,
                 .kind = EventKind::kPoolCreated});
  return pool;
}

// --- The rest ---------------------------------------------------------------------------------

Bytes DeviceAllocator::EmptyCache() {
  DeviceMutexLock lock(&mutex_);
  const Bytes released = WaitToReleaseSlow().ok() ? ReleaseAllIdle() : 0;
  ReturnForeignSlow();
  emitter_.Emit({.bytes = released, .kind = EventKind::kCacheEmptied});
  return released;
}

absl::Status DeviceAllocator::InvalidFreeSlow(DevicePtr address) {
  if (foreign_layout_->TakeBack(address)) return absl::OkStatus();
  const bool ours = address_map_.Find(address).has_value();
  emitter_.Emit(
      {.address = address, .extra = ours ? 1u : 0u, .kind = EventKind::kInvalidFreeIgnored});
  return absl::InvalidArgumentError(
      absl::StrCat("0x", absl::Hex(address), " is not the start of a live block",
                   ours ? "; was it freed before?" : ", and was never handed out"));
}

absl::Status DeviceAllocator::RecordStream(DevicePtr address, DeviceIndex device,
                                           StreamHandle handle) {
  DeviceMutexLock lock(&mutex_);
  Block* const found = taken_.Find(address);
  if (found == nullptr || found->state != BlockState::kLive) {
    return absl::InvalidArgumentError(
        absl::StrCat("0x", absl::Hex(address), " is not the start of a live block"));
  }
  Block& block = *found;
  OFFCUT_ASSIGN_OR_RETURN(const StreamLedger::Stream* const stream,
                          streams_.FindOn(device, handle));
  if (stream == &block.pool->stream) return absl::OkStatus();
  // PyTorch captures within a route; of any other capture the use is awaited, which is safe too.
  // The legacy stream never is captured: beside a capture it only cannot be asked.
  bool captured = false;
  if (private_pools_.has_routes() && stream->handle != nullptr) {
    OFFCUT_ASSIGN_OR_RETURN(captured, streams_.IsCapturing(*stream));
  }
  if (streams_.AddUse(block, *stream, captured)) {
    emitter_.Emit({.address = address,
                   .extra = stream->index,
                   .pool = block.pool->index,
                   .kind = EventKind::kStreamUseRecorded});
  }
  return absl::OkStatus();
}

absl::Status DeviceAllocator::OpenTo(DeviceIndex peer) {
  DeviceMutexLock lock(&mutex_);
  return default_layout().OpenTo(peer);
}

void DeviceAllocator::SetSizeOptions(const SizeOptions& options) {
  DeviceMutexLock lock(&mutex_);
  for (const std::unique_ptr<Layout>& layout : layouts_) layout->SetSizeOptions(options);
}

void DeviceAllocator::SetLimit(Bytes limit) {
  DeviceMutexLock lock(&mutex_);
  limit_ = limit;
  UpdateLimit();
  emitter_.Emit({.bytes = limit, .kind = EventKind::kLimitSet});
}

absl::StatusOr<BlockInfo> DeviceAllocator::FindBlock(DevicePtr address) const {
  DeviceMutexLock lock(&mutex_);
  const Block* found = taken_.Find(address);
  if (found == nullptr) {
    // An address within a block: rare enough to look at them all.
    taken_.ForEach([&](DevicePtr, const Block* block) {
      if (address - block->address < block->size) found = block;
    });
  }
  if (found == nullptr || found->state != BlockState::kLive) {
    return absl::InvalidArgumentError(
        absl::StrCat("0x", absl::Hex(address), " is in no live block of device ", device_));
  }
  const Block& block = *found;
  const Layout::Range range = block.pool->layout.RangeOf(block);
  return BlockInfo{.address = block.address,
                   .requested = block.requested,
                   .size = block.size,
                   .stream = block.pool->stream.handle,
                   .range_address = range.address,
                   .range_bytes = range.bytes};
}

Bytes DeviceAllocator::LargestFreeBlock() const {
  DeviceMutexLock lock(&mutex_);
  Bytes largest = 0;
  for (const std::unique_ptr<Pool>& pool : pools_) {
    largest = std::max(largest, pool->layout.LargestFree(*pool));
  }
  return largest;
}

Counters DeviceAllocator::counters() const {
  DeviceMutexLock lock(&mutex_);
  return emitter_.counters();
}

SegmentCounters DeviceAllocator::segment_counters() const {
  DeviceMutexLock lock(&mutex_);
  return context_.segment_counters;
}

void DeviceAllocator::ResetPeaks() {
  DeviceMutexLock lock(&mutex_);
  context_.segment_counters.ResetPeaks();
  NoteLargestLive();
  emitter_.Emit({.kind = EventKind::kPeaksReset});
}

void DeviceAllocator::ResetTotals() {
  DeviceMutexLock lock(&mutex_);
  context_.segment_counters.ResetTotals();
  emitter_.Emit({.kind = EventKind::kTotalsReset});
}

void DeviceAllocator::AddSink(EventSink* sink, absl::FunctionRef<void(const StateView&)> begin) {
  DeviceMutexLock lock(&mutex_);
  begin(ViewLocked());
  emitter_.AddSink(sink);
}

void DeviceAllocator::RemoveSink(EventSink* sink) {
  DeviceMutexLock lock(&mutex_);
  emitter_.RemoveSink(sink);
}

void DeviceAllocator::RemoveSinks() {
  DeviceMutexLock lock(&mutex_);
  emitter_.RemoveSinks();
}

void DeviceAllocator::MarkStep(uint64_t number) {
  DeviceMutexLock lock(&mutex_);
  emitter_.Emit({.bytes = number, .kind = EventKind::kStepMarked});
}

Accounting DeviceAllocator::Account() {
  DeviceMutexLock lock(&mutex_);
  for (const std::unique_ptr<Layout>& layout : layouts_) layout->Refresh();
  const Bytes device_used = context_.SampleDeviceUsed();
  return ViewLocked().Account(device_used);
}

StateView DeviceAllocator::View(absl::FunctionRef<void()> at_moment) const {
  DeviceMutexLock lock(&mutex_);
  at_moment();
  return ViewLocked();
}

StateView DeviceAllocator::ViewLocked() const {
  StateView view = {.limit = limit_,
                    .reserved_bytes = granules_.reserved_bytes(),
                    .pending_blocks = streams_.pending_blocks(),
                    .counters = emitter_.counters(),
                    .segment_counters = context_.segment_counters};
  for (const std::unique_ptr<Layout>& layout : layouts_) layout->AddTo(view);
  granules_.ForEach([&](GranuleIndex index, const GranulePool::Granule& granule) {
    view.granules.push_back({.index = index,
                             .bytes = granule.bytes,
                             .mapped_at = granule.mapped_at,
                             .old_mappings = granule.old_mappings,
                             .small = granule.small});
  });
  for (const auto& stream : streams_.streams()) view.streams.push_back(stream->handle);
  for (const std::unique_ptr<Pool>& pool : pools_) {
    view.pools.push_back(
        {.stream = pool->stream.handle,
         .private_pool_id = pool->private_pool != nullptr ? pool->private_pool->id.Encode() : 0,
         .in_use = pool->private_pool != nullptr && pool->private_pool->in_use()});
  }
  taken_.ForEach([&](DevicePtr key, const Block* block) {
    view.taken.push_back({.key = key,
                          .address = block->address,
                          .size = block->size,
                          .requested = block->requested,
                          .pool = block->pool->index,
                          .state = block->state,
                          .unfinished_uses = block->uses != nullptr ? block->uses->unfinished : 0});
  });
  std::sort(view.taken.begin(), view.taken.end(),
            [](const StateView::Taken& a, const StateView::Taken& b) { return a.key < b.key; });
  return view;
}

}  // namespace offcut
