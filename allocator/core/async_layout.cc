#include "allocator/core/async_layout.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/timed_call.h"

namespace offcut {

namespace native = policy::native;

namespace {

// cuda.h: CU_STREAM_PER_THREAD.
const StreamHandle kPerThreadStream = reinterpret_cast<StreamHandle>(0x2);
// What the driver's pools grow by, as seen on an H100.
constexpr Bytes kChunk = 32 * kMiB;
// Of a block whose capture the driver could not name.
constexpr uint64_t kUnknownCapture = ~uint64_t{0};

DriverPoolOptions OptionsOf(const Config& config) {
  return {.release_threshold_bytes = config.async_release_threshold_mb().bytes(),
          .reuse_follow_events = config.async_reuse_follow_events(),
          .reuse_opportunistic = config.async_reuse_opportunistic(),
          .reuse_internal_dependencies = config.async_reuse_internal_dependencies()};
}

}  // namespace

AsyncLayout::AsyncLayout(LayoutContext& context)
    : Layout(context),
      options_(OptionsOf(context.config)),
      divisions_(context.config.roundup_power2_divisions().slots),
      graphs_{DriverMemory{.number = kGraphMemory}, DriverMemory{.number = kPrivateGraphMemory}} {
  memories_.push_back(std::make_unique<DriverMemory>());
}

AsyncLayout::~AsyncLayout() {
  for (AsyncPool* const pool : pools_) {
    while (pool->first != nullptr) returns_.push_back(Leave(pool->first, /*epoch=*/0));
  }
  for (const LeftToGraph& left : left_to_graphs_) returns_.push_back({.address = left.address});
  // What the driver refuses now stays with the process.
  for (const Return& back : returns_) {
    context_.driver.FreeMemory(context_.device, back.address).IgnoreError();
  }
  for (const std::unique_ptr<DriverMemory>& memory : memories_) {
    if (memory->handle != nullptr) context_.driver.DestroyDriverPool(memory->handle).IgnoreError();
  }
}

std::unique_ptr<Pool> AsyncLayout::NewPool(uint16_t index, StreamLedger::Stream& stream) {
  auto pool = std::make_unique<AsyncPool>(index, stream, *this);
  pools_.push_back(pool.get());
  return pool;
}

// --- Allocating ----------------------------------------------------------------------------------

Bytes AsyncLayout::BlockSize(Bytes requested) const {
  return native::BlockSize(requested, divisions_);
}

Block* AsyncLayout::Take(Pool& pool, Bytes requested) {
  return Ask(Cast(pool), requested, Undo::kLater).value_or(nullptr);
}

absl::StatusOr<Block*> AsyncLayout::Ask(AsyncPool& pool, Bytes requested, Undo undo) {
  const Bytes size = BlockSize(requested);
  OFFCUT_ASSIGN_OR_RETURN(const bool capturing, context_.streams.IsCapturing(pool.stream));
  if (capturing && pool.stream.handle != nullptr) return AskForGraph(pool, size);
  if (!returns_.empty()) HandBackAll();
  OFFCUT_ASSIGN_OR_RETURN(const StreamHandle stream, StreamToAskOn(pool, capturing));
  OFFCUT_ASSIGN_OR_RETURN(DriverMemory* const memory, MemoryFor(pool));
  OFFCUT_RETURN_IF_ERROR(CheckLimit(*memory, size));

  const uint64_t start_ns = context_.emitter.clock().NowNs();
  const absl::StatusOr<DevicePtr> address = Allocate(memory->handle, size, stream);
  if (!address.ok()) {
    EmitDriverCall(context_.emitter, DriverCall::kAllocateAsync, 0, start_ns, address.status());
    return address.status();
  }
  ++memory->allocations;
  OFFCUT_ASSIGN_OR_RETURN(Block* const block, Enter(pool, *memory, *address, size, /*capture=*/0));
  if (!Measure(*memory)) return block;

  // It grew: this was no call of the hot path, and the driver may have taken from other pools.
  EmitDriverCall(context_.emitter, DriverCall::kAllocateAsync, *address, start_ns,
                 absl::OkStatus());
  Refresh();
  context_.SampleDeviceUsed();
  if (reserved_bytes_ <= context_.limit) return block;
  beyond_limit_ = true;
  const Return back = Leave(block, pool.stream.epoch);
  const bool freed =
      undo == Undo::kNow && TimedCall(context_.emitter, DriverCall::kFreeMemory, back.address, [&] {
                              return context_.driver.FreeMemory(context_.device, back.address);
                            }).ok();
  if (freed) {
    --memory->allocations;
    TrimAll();
  } else if (!HandBack(back)) {
    returns_.push_back(back);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a block of ", FormatBytes(size), " would make the driver's pools grow beyond the limit of ",
      FormatBytes(context_.limit)));
}

absl::StatusOr<StreamHandle> AsyncLayout::StreamToAskOn(const Pool& pool, bool capturing) const {
  if (!capturing) return pool.stream.handle;
  // The legacy stream takes no work beside the capture of a stream that it waits for, and none can
  // use the block until that ends. It waits for this thread's own default stream, too.
  OFFCUT_ASSIGN_OR_RETURN(const bool forbidden,
                          context_.driver.IsCapturing(context_.device, kPerThreadStream));
  if (!forbidden) return kPerThreadStream;
  return absl::FailedPreconditionError(
      "the default streams take no work while a stream that they wait for is being captured");
}

absl::StatusOr<Block*> AsyncLayout::AskForGraph(AsyncPool& pool, Bytes size) {
  if (size > context_.limit - std::min(context_.limit, reserved_bytes_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "memory of a graph, ", FormatBytes(size), " beyond ", FormatBytes(reserved_bytes_),
        ", would pass the limit of ", FormatBytes(context_.limit)));
  }
  absl::StatusOr<uint64_t> capture =
      context_.driver.GetCaptureId(context_.device, pool.stream.handle);
  if (absl::IsUnimplemented(capture.status())) capture = kUnknownCapture;
  OFFCUT_RETURN_IF_ERROR(capture.status());
  if (*capture == 0) {
    return absl::FailedPreconditionError("the stream's capture was made invalid before");
  }
  // A graph takes nothing from a pool but whom its memory is open to.
  DriverMemory& shared = *memories_.front();
  if (shared.handle == nullptr) OFFCUT_RETURN_IF_ERROR(Create(shared));
  OFFCUT_ASSIGN_OR_RETURN(const DevicePtr address,
                          TimedCall(context_.emitter, DriverCall::kAllocateAsync, 0, [&] {
                            return Allocate(shared.handle, size, pool.stream.handle);
                          }));
  DriverMemory& memory = GraphMemoryOf(pool);
  ++memory.allocations;
  return Enter(pool, memory, address, size, *capture);
}

absl::StatusOr<DevicePtr> AsyncLayout::Allocate(DriverPool pool, Bytes size, StreamHandle stream) {
  // The memory of a graph that is gone may be handed out again while the program still holds a
  // block of it. No two blocks have one address: others are asked for, and these then freed.
  constexpr size_t kMostAside = 64;
  std::vector<DevicePtr> aside;
  absl::StatusOr<DevicePtr> address;
  do {
    address = context_.driver.AllocateAsync(pool, size, context_.device, stream);
    if (!address.ok() || !IsNamed(*address)) break;
    aside.push_back(*address);
    address = absl::ResourceExhaustedError("the driver has only addresses that are in use");
  } while (aside.size() < kMostAside);
  for (const DevicePtr named : aside) {
    context_.driver.FreeAsync(named, context_.device, stream).IgnoreError();
  }
  return address;
}

bool AsyncLayout::IsNamed(DevicePtr address) const {
  return context_.taken.Find(address) != nullptr ||
         std::any_of(returns_.begin(), returns_.end(),
                     [address](const Return& back) { return back.address == address; });
}

absl::Status AsyncLayout::CheckLimit(const DriverMemory& memory, Bytes size) {
  beyond_limit_ = beyond_limit_ && reserved_bytes_ > context_.limit;
  const Bytes free = memory.reserved_bytes - memory.taken_bytes;
  const Bytes growth_min = size - std::min(size, free);
  const Bytes room = context_.limit - std::min(context_.limit, reserved_bytes_);
  // What grows too far goes back only after a wait, which a capture forbids.
  const bool may_try = RoundUp(size, kChunk) <= room || !context_.streams.AnyCapturing();
  if (growth_min <= room && !beyond_limit_ && may_try) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a block of ", FormatBytes(size), ", with ", FormatBytes(free),
                   " free in the driver's pool and ", FormatBytes(reserved_bytes_),
                   " reserved, would pass the limit of ", FormatBytes(context_.limit)));
}

absl::StatusOr<Block*> AsyncLayout::Enter(AsyncPool& pool, DriverMemory& memory, DevicePtr address,
                                          Bytes size, uint64_t capture) {
  Block* const block = context_.blocks.New();
  block->address = address;
  block->size = size;
  block->pool = &pool;
  block->capture = capture;
  block->state = BlockState::kLive;
  block->next = pool.first;
  if (pool.first != nullptr) pool.first->previous = block;
  pool.first = block;
  memory.taken_bytes += size;
  if (capture != 0) SetReserved(memory, memory.taken_bytes);
  // The marks stay: other blocks may lie beside this one.
  const absl::Status entered = context_.address_map.Insert(address, size, context_.device);
  if (entered.ok()) return block;
  const Return back = Leave(block, pool.stream.epoch);
  if (!HandBack(back)) returns_.push_back(back);
  return entered;
}

AsyncLayout::Return AsyncLayout::Leave(Block* block, uint64_t epoch) {
  AsyncPool& pool = Cast(*block->pool);
  DriverMemory& memory = MemoryOf(*block);
  const Return back = {
      .address = block->address, .stream = &pool.stream, .epoch = epoch, .memory = &memory};
  (block->previous != nullptr ? block->previous->next : pool.first) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  memory.taken_bytes -= block->size;
  if (block->capture != 0) SetReserved(memory, memory.taken_bytes);
  context_.blocks.Delete(block);
  return back;
}

AsyncLayout::DriverMemory& AsyncLayout::MemoryOf(const Block& block) {
  return block.capture != 0 ? GraphMemoryOf(*block.pool) : *Cast(*block.pool).memory;
}

// --- The slow path -------------------------------------------------------------------------------

absl::Span<const ReclaimStep> AsyncLayout::ladder() const {
  static constexpr ReclaimStep kLadder[] = {
      ReclaimStep::kTrimPools, ReclaimStep::kFreeMemoryCallbacks, ReclaimStep::kFinishPending,
      ReclaimStep::kUseOnOom, ReclaimStep::kReleaseIdle};
  return kLadder;
}

absl::Status AsyncLayout::TakeStep(ReclaimStep step, Pool& pool, Bytes requested) {
  if (step == ReclaimStep::kTrimPools) TrimAll();
  // The last step comes right after a wait for the device.
  const Undo undo = step == ReclaimStep::kReleaseIdle ? Undo::kNow : Undo::kLater;
  const absl::StatusOr<Block*> block = Ask(Cast(pool), requested, undo);
  fresh_ = block.value_or(nullptr);
  return block.status();
}

Block* AsyncLayout::TakeAfterStep(Pool&, Bytes) { return std::exchange(fresh_, nullptr); }

Bytes AsyncLayout::GrowthFor(Bytes requested) const {
  return RoundUp(BlockSize(requested), kChunk);
}

Bytes AsyncLayout::ReleaseIdle(const Pool* only) {
  Bytes released = 0;
  if (only == nullptr) {
    released = TrimAll();
  } else if (DriverMemory* const memory = Cast(*only).memory; memory != nullptr) {
    released = Trim(*memory);
  }
  for (size_t i = memories_.size(); i-- > 1;) DestroyIfGone(*memories_[i]);
  std::erase_if(memories_, [](const std::unique_ptr<DriverMemory>& memory) {
    return memory->number != kDefaultDriverPool && memory->handle == nullptr;
  });
  if (released > 0) context_.SampleDeviceUsed();
  return released;
}

void AsyncLayout::Refresh() {
  for (const std::unique_ptr<DriverMemory>& memory : memories_) {
    if (memory->handle != nullptr) Measure(*memory);
  }
}

absl::Status AsyncLayout::OpenTo(DeviceIndex peer) {
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end() || peer == context_.device) {
    return absl::OkStatus();
  }
  for (const std::unique_ptr<DriverMemory>& memory : memories_) {
    if (memory->handle == nullptr) continue;
    OFFCUT_RETURN_IF_ERROR(TimedCall(context_.emitter, DriverCall::kOpenDriverPoolTo, 0, [&] {
      return context_.driver.OpenDriverPoolTo(memory->handle, peer);
    }));
  }
  peers_.push_back(peer);
  return absl::OkStatus();
}

// --- The driver's pools --------------------------------------------------------------------------

absl::StatusOr<AsyncLayout::DriverMemory*> AsyncLayout::MemoryFor(AsyncPool& pool) {
  if (ABSL_PREDICT_TRUE(pool.memory != nullptr)) return pool.memory;
  DriverMemory* memory = memories_.front().get();
  if (pool.private_pool != nullptr) {
    const auto found = std::find_if(memories_.begin(), memories_.end(), [&pool](const auto& other) {
      return other->owner == pool.private_pool;
    });
    if (found == memories_.end()) {
      memories_.push_back(std::make_unique<DriverMemory>(
          DriverMemory{.number = next_number_++, .owner = pool.private_pool}));
      memory = memories_.back().get();
    } else {
      memory = found->get();
    }
  }
  if (memory->handle == nullptr) {
    if (const absl::Status created = Create(*memory); !created.ok()) {
      if (memory->owner != nullptr) memories_.pop_back();
      return created;
    }
  }
  pool.memory = memory;
  return memory;
}

absl::Status AsyncLayout::Create(DriverMemory& memory) {
  Driver& driver = context_.driver;
  OFFCUT_ASSIGN_OR_RETURN(const DriverPool handle,
                          TimedCall(context_.emitter, DriverCall::kCreateDriverPool, 0, [&] {
                            return driver.CreateDriverPool(context_.device, MemoryFlags());
                          }));
  DriverPoolOptions options = options_;
  // A graph may use what was freed in a private pool: it stays as long as the driver can spare it.
  if (memory.owner != nullptr) options.release_threshold_bytes = ~Bytes{0};
  absl::Status status = TimedCall(context_.emitter, DriverCall::kSetDriverPoolOptions, 0,
                                  [&] { return driver.SetDriverPoolOptions(handle, options); });
  for (const DeviceIndex peer : peers_) {
    if (!status.ok()) break;
    status = TimedCall(context_.emitter, DriverCall::kOpenDriverPoolTo, 0,
                       [&] { return driver.OpenDriverPoolTo(handle, peer); });
  }
  if (status.ok()) {
    memory.handle = handle;
  } else {
    // Nothing is in it; a handle that the driver keeps costs no memory.
    driver.DestroyDriverPool(handle).IgnoreError();
  }
  return status;
}

bool AsyncLayout::Measure(DriverMemory& memory) {
  const absl::StatusOr<Bytes> told = context_.driver.GetDriverPoolReserved(memory.handle);
  memory.heard_of_late = !told.ok();
  const Bytes before = memory.reserved_bytes;
  SetReserved(memory, std::max(told.value_or(before), memory.taken_bytes));
  return memory.reserved_bytes != before;
}

void AsyncLayout::SetReserved(DriverMemory& memory, Bytes bytes) {
  const bool grown = bytes > memory.reserved_bytes;
  const Bytes change = grown ? bytes - memory.reserved_bytes : memory.reserved_bytes - bytes;
  if (change == 0) return;
  memory.reserved_bytes = bytes;
  reserved_bytes_ += grown ? change : -change;
  context_.emitter.Emit(
      {.bytes = change,
       .extra = memory.number,
       .kind = grown ? EventKind::kDriverPoolGrown : EventKind::kDriverPoolShrunk});
}

Bytes AsyncLayout::Trim(DriverMemory& memory) {
  if (memory.handle == nullptr) return 0;
  const Bytes before = memory.reserved_bytes;
  TimedCall(context_.emitter, DriverCall::kTrimDriverPool, 0, [&] {
    return context_.driver.TrimDriverPool(memory.handle, /*keep_bytes=*/0);
  }).IgnoreError();
  Measure(memory);
  return before - std::min(before, memory.reserved_bytes);
}

Bytes AsyncLayout::TrimAll() {
  Bytes released = 0;
  for (const std::unique_ptr<DriverMemory>& memory : memories_) {
    // A private pool gives nothing while in use: a graph may use what was freed in it.
    if (memory->owner == nullptr || !memory->owner->in_use()) released += Trim(*memory);
  }
  return released;
}

void AsyncLayout::DestroyIfGone(DriverMemory& memory) {
  if (memory.owner == nullptr || memory.handle == nullptr || memory.allocations > 0) return;
  for (const Pool* const pool : memory.owner->pools) {
    if (!pool->IsIdle(/*epoch=*/0)) return;
  }
  const absl::Status destroyed =
      TimedCall(context_.emitter, DriverCall::kDestroyDriverPool, 0,
                [&] { return context_.driver.DestroyDriverPool(memory.handle); });
  if (!destroyed.ok()) return;
  SetReserved(memory, 0);
  for (Pool* const pool : memory.owner->pools) Cast(*pool).memory = nullptr;
  memory.handle = nullptr;
}

// --- Giving back to the driver -------------------------------------------------------------------

void AsyncLayout::GiveBack(Block* block, uint64_t epoch) {
  AsyncPool& pool = Cast(*block->pool);
  const uint64_t capture = block->capture;
  const Return back = Leave(block, epoch);
  if (capture == 0) {
    if (!HandBack(back)) returns_.push_back(back);
  } else if (!FreeInCapture(back.address, pool, capture)) {
    left_to_graphs_.push_back({.address = back.address, .pool = &pool, .epoch = epoch});
  }
}

bool AsyncLayout::HandBack(const Return& back) {
  StreamHandle stream = back.stream->handle;
  switch (context_.streams.Ask(*back.stream)) {
    case StreamLedger::Standing::kRuns:
      break;
    case StreamLedger::Standing::kCapturing:
      return false;
    case StreamLedger::Standing::kUnknown:
      // Any stream will do once the whole device is past the free.
      if (back.epoch > back.stream->device_idle_epoch || !LegacyStreamRuns()) return false;
      stream = nullptr;
      break;
  }
  const uint64_t start_ns = context_.emitter.clock().NowNs();
  const absl::Status freed = context_.driver.FreeAsync(back.address, context_.device, stream);
  if (!freed.ok()) {
    EmitDriverCall(context_.emitter, DriverCall::kFreeAsync, back.address, start_ns, freed);
    return false;
  }
  --back.memory->allocations;
  freed_since_retry_ = true;
  return true;
}

bool AsyncLayout::RetryFrees() {
  HandBackAll();
  FreeLeftToGraphs();
  return std::exchange(freed_since_retry_, false);
}

void AsyncLayout::HandBackAll() {
  std::erase_if(returns_, [this](const Return& back) { return HandBack(back); });
}

bool AsyncLayout::LegacyStreamRuns() const {
  return !context_.driver.IsCapturing(context_.device, /*stream=*/nullptr).value_or(true);
}

// --- Memory of graphs ----------------------------------------------------------------------------

bool AsyncLayout::FreeInCapture(DevicePtr address, const AsyncPool& pool, uint64_t capture) {
  const StreamHandle stream = pool.stream.handle;
  // On any other stream of the capture, nobody may join what is submitted to it now.
  if (!context_.private_pools.IsRouteBegunOn(stream)) return false;
  const absl::StatusOr<uint64_t> now = context_.driver.GetCaptureId(context_.device, stream);
  return now.ok() && *now == capture &&
         context_.driver.FreeAsync(address, context_.device, stream).ok();
}

bool AsyncLayout::FreeLaunched(DevicePtr address, StreamHandle stream) {
  // Of a graph that is gone, the address may be another block's by now.
  if (context_.taken.Find(address) != nullptr) return true;
  const absl::Status freed = context_.driver.FreeAsync(address, context_.device, stream);
  freed_since_retry_ |= freed.ok();
  // Without a launch since, there is nothing to free.
  return freed.ok() || absl::IsInvalidArgument(freed);
}

void AsyncLayout::BeforeRelease(const PrivatePool& pool) {
  const auto is_of_pool = [&pool](const LeftToGraph& left) {
    return left.pool->private_pool == &pool;
  };
  if (std::none_of(left_to_graphs_.begin(), left_to_graphs_.end(), is_of_pool)) return;
  const EventHandle event = RecordDeviceEvent();
  if (event == nullptr) return;  // a wait for the device will do it
  const bool is_last = pool.uses == 1 && pool.routes == 0;
  std::erase_if(left_to_graphs_, [&](const LeftToGraph& left) {
    StreamLedger::Stream& stream = left.pool->stream;
    // Other graphs of the pool stay, and allocate it again.
    return is_of_pool(left) && context_.streams.Ask(stream) == StreamLedger::Standing::kRuns &&
           context_.driver.WaitForEvent(context_.device, stream.handle, event).ok() &&
           FreeLaunched(left.address, stream.handle) && is_last;
  });
  context_.driver.DestroyEvent(context_.device, event).IgnoreError();
}

EventHandle AsyncLayout::RecordDeviceEvent() {
  if (context_.streams.AnyCapturing()) return nullptr;  // which that would end
  const absl::StatusOr<EventHandle> event = context_.driver.CreateEvent(context_.device);
  if (!event.ok()) return nullptr;
  if (context_.driver.RecordDeviceEvent(context_.device, *event).ok()) return *event;
  context_.driver.DestroyEvent(context_.device, *event).IgnoreError();
  return nullptr;
}

void AsyncLayout::FreeLeftToGraphs() {
  if (left_to_graphs_.empty() || !LegacyStreamRuns()) return;
  std::erase_if(left_to_graphs_, [this](const LeftToGraph& left) {
    const Pool& pool = *left.pool;
    const bool is_idle = pool.private_pool != nullptr ? pool.IsIdle(left.epoch)
                                                      : left.epoch <= pool.stream.device_idle_epoch;
    return is_idle && FreeLaunched(left.address, /*stream=*/nullptr);
  });
}

// --- Questions -----------------------------------------------------------------------------------

bool AsyncLayout::HoldsMemory(const Pool& pool) const {
  return Cast(pool).first != nullptr || Cast(pool).memory != nullptr ||
         std::any_of(left_to_graphs_.begin(), left_to_graphs_.end(),
                     [&pool](const LeftToGraph& left) { return left.pool == &pool; });
}

Bytes AsyncLayout::LargestFree(const Pool& pool) const {
  const DriverMemory* const memory = Cast(pool).memory;
  return memory == nullptr ? 0 : memory->reserved_bytes - memory->taken_bytes;
}

Layout::Range AsyncLayout::RangeOf(const Block& block) const {
  return {.address = block.address, .bytes = block.size};
}

void AsyncLayout::AddTo(StateView& view) const {
  const auto add = [&view](const DriverMemory& memory) {
    if (memory.reserved_bytes == 0) return;
    view.driver_pools.push_back({.number = memory.number,
                                 .reserved_bytes = memory.reserved_bytes,
                                 .heard_of_late = memory.heard_of_late});
  };
  for (const std::unique_ptr<DriverMemory>& memory : memories_) add(*memory);
  for (const DriverMemory& memory : graphs_) add(memory);
  view.reserved_bytes += reserved_bytes_;
  for (const AsyncPool* pool : pools_) {
    for (const Block* block = pool->first; block != nullptr; block = block->next) {
      view.driver_blocks.push_back({.address = block->address,
                                    .size = block->size,
                                    .requested = block->requested,
                                    .state = block->state,
                                    .pool = pool->index});
    }
  }
}

}  // namespace offcut
