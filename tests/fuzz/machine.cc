#include "tests/fuzz/machine.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/policy/sizes.h"

namespace offcut::fuzz {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

// An error of the simulated machine that the harness, not the allocator, ran into.
absl::Status Named(absl::string_view witness, const absl::Status& status) {
  if (status.ok()) return status;
  return Wrong(witness, ": ", status.message());
}

std::string Hex(DevicePtr address) { return absl::StrFormat("0x%x", address); }

sim::SimOptions MachineOf(const Setup& setup) {
  sim::SimOptions machine;
  machine.memory_bytes = setup.memory_bytes;
  machine.lag_ns = setup.lag_ns;
  machine.outside_bytes = 0;
  machine.devices = setup.devices;
  return machine;
}

std::unique_ptr<Driver> ReplacedDriver(const Replacements& replacements, Driver* driver) {
  return replacements.driver ? replacements.driver(driver) : nullptr;
}

}  // namespace

uint64_t Tally::operations() const {
  uint64_t sum = 0;
  for (const std::atomic<uint64_t>& count : played) sum += count.load(std::memory_order_relaxed);
  return sum;
}

// --- Machine ---

Machine::Machine(const Setup& setup, const Replacements& replacements)
    : setup_(setup),
      sim_(MachineOf(setup)),
      replaced_driver_(ReplacedDriver(replacements, &watch_)),
      driver_(replaced_driver_ != nullptr ? replaced_driver_.get() : &watch_),
      claims_(sim_.model().memory(), sim_.model().clock()),
      core_(replacements.core ? replacements.core(sim_, driver_)
                              : std::make_unique<CoreUnderTest>(sim_, driver_)),
      sinks_(replacements.sinks),
      streams_(setup.devices, std::vector<Stream>(setup.streams)),
      limits_(setup.devices) {
  for (std::atomic<Bytes>& limit : limits_) limit = setup.limit;
}

Machine::~Machine() = default;

absl::Status Machine::Open() {
  for (DeviceIndex device = 0; device < setup_.devices; ++device) {
    for (uint8_t stream = 0; stream < setup_.streams; ++stream) {
      OFFCUT_RETURN_IF_ERROR(CreateStream(device, stream));
    }
  }
  OFFCUT_RETURN_IF_ERROR(Named("answer", core_->Open(setup_, sinks_)));
  const sim::MemoryCensus& left = core_->left_by_tests();
  if (driver_.FaultCount() == 0 && left.handles + left.reservations != 0) {
    return Wrong("leak: new allocators hold ", left.handles, " handles and ", left.reservations,
                 " address ranges before the first request");
  }
  return absl::OkStatus();
}

absl::Status Machine::CreateStream(DeviceIndex device, uint8_t stream) {
  sim::StreamModel& model = sim_.model().streams();
  Stream created = {.exists = true, .blocking = stream % 3 == 0};
  if (IsPerThread(stream)) {
    created.handle = sim::PerThreadStream();
    created.blocking = true;
  } else if (stream != 0) {
    OFFCUT_ASSIGN_OR_RETURN(created.handle,
                            model.CreateStream(device, {.non_blocking = !created.blocking}));
  }
  OFFCUT_ASSIGN_OR_RETURN(const sim::StreamInfo info, model.GetStream(device, created.handle));
  created.id = info.id;
  streams_[device][stream] = created;
  return absl::OkStatus();
}

Machine::Stream Machine::StreamAt(DeviceIndex device, uint8_t stream) {
  Stream found = streams_[device][stream];
  if (IsPerThread(stream)) {
    found.id =
        sim_.model().streams().GetStream(device, found.handle).value_or(sim::StreamInfo()).id;
  }
  return found;
}

bool Machine::IsImplicit(DeviceIndex device, uint8_t stream) const {
  if (stream != 0) return false;
  const std::vector<Stream>& streams = streams_[device];
  return std::any_of(streams.begin(), streams.end(),
                     [](const Stream& other) { return other.capturing && other.blocking; });
}

bool Machine::IsOpen(DeviceIndex device, DeviceIndex peer) const {
  if (device == peer) return true;
  absl::MutexLock lock(&mutex_);
  return open_.contains({device, peer});
}

absl::Status Machine::EndCapture(DeviceIndex device, uint8_t stream) {
  Stream& captured = streams_[device][stream];
  captured.capturing = false;
  --captures_;
  sim::StreamModel& model = sim_.model().streams();
  const absl::StatusOr<sim::GraphHandle> graph = model.EndCapture(device, captured.handle);
  OFFCUT_RETURN_IF_ERROR(Named("capture: it did not survive", graph.status()));
  return Named("capture", model.DestroyGraph(*graph));
}

absl::Status Machine::WaitFor(DeviceIndex device, StreamHandle waiting, DeviceIndex awaited_device,
                              StreamHandle awaited) {
  sim::StreamModel& model = sim_.model().streams();
  OFFCUT_ASSIGN_OR_RETURN(EventHandle event, model.CreateEvent(awaited_device, {.timing = false}));
  absl::Status status = model.RecordEvent(awaited_device, event, awaited);
  if (status.ok()) status = model.StreamWaitEvent(device, waiting, event);
  const absl::Status destroyed = model.DestroyEvent(event);
  OFFCUT_RETURN_IF_ERROR(Named("capture: the harness could not wait", status));
  return Named("capture: the harness could not wait", destroyed);
}

absl::Status Machine::WithMisuse(const absl::Status& status) const {
  OFFCUT_RETURN_IF_ERROR(watch_.Verdict());
  return status;
}

absl::Status Machine::Check() {
  OFFCUT_RETURN_IF_ERROR(WithMisuse(core_->Check()));
  OFFCUT_RETURN_IF_ERROR(claims_.CheckPools());
  claims_.Prune();
  return absl::OkStatus();
}

absl::Status Machine::Close() {
  OFFCUT_RETURN_IF_ERROR(WithMisuse(CheckAllGoesBack()));
  OFFCUT_RETURN_IF_ERROR(Check());
  core_->Close();
  return WithMisuse(CheckNothingIsLeft());
}

absl::Status Machine::CloseUnopened() {
  driver_.ClearFaults();
  core_->Close();
  return WithMisuse(CheckNothingIsLeft());
}

absl::Status Machine::CheckAllGoesBack() {
  driver_.ClearFaults();
  for (DeviceIndex device = 0; device < setup_.devices; ++device) {
    for (uint8_t stream = 0; stream < setup_.streams; ++stream) {
      if (StreamAt(device, stream).capturing) OFFCUT_RETURN_IF_ERROR(EndCapture(device, stream));
    }
  }
  OFFCUT_RETURN_IF_ERROR(ReleaseAllPools());
  Player last(*this, /*alone=*/true);
  while (true) {
    OFFCUT_RETURN_IF_ERROR(last.Adopt({.block = 1}));
    if (last.Live(1) == nullptr) break;
    OFFCUT_RETURN_IF_ERROR(last.FreeAll());
  }
  for (DeviceIndex device = 0; device < setup_.devices; ++device) {
    OFFCUT_RETURN_IF_ERROR(
        last.SetLimit({.device = static_cast<uint8_t>(device), .bytes = kNoLimit}));
    OFFCUT_RETURN_IF_ERROR(last.SetOutside({.device = static_cast<uint8_t>(device)}));
    OFFCUT_RETURN_IF_ERROR(last.EmptyCache({.device = static_cast<uint8_t>(device)}));
    const CoreUnderTest::Holdings held = core_->HoldingsOf(device);
    if (held.reserved_bytes != 0) {
      return Wrong("leak: ", held.reserved_bytes, " bytes of device ", device, " stay reserved (",
                   held.live_bytes, " live, ", held.pending_bytes, " pending, ",
                   held.releasable_bytes, " idle) when the program has freed all");
    }
    const Op request = {.device = static_cast<uint8_t>(device), .block = 1, .bytes = kMiB};
    OFFCUT_RETURN_IF_ERROR(last.Allocate(request));
    if (last.Live(1) == nullptr) return Wrong("answer: the next request is not served");
    OFFCUT_RETURN_IF_ERROR(last.FreeAll());
  }
  return absl::OkStatus();
}

absl::Status Machine::ReleaseAllPools() {
  std::vector<Op> releases;
  pools_.ForEach([&](DeviceIndex device, uint32_t number, const PoolBook::Pool& pool) {
    const Op op = {.device = static_cast<uint8_t>(device), .pool = static_cast<uint8_t>(number)};
    for (uint32_t i = 0; i < pool.routes; ++i) {
      releases.push_back(op);
      releases.back().kind = OpKind::kEndRoute;
    }
    for (uint32_t i = 0; i < pool.uses; ++i) {
      releases.push_back(op);
      releases.back().kind = OpKind::kReleasePool;
    }
  });
  Player last(*this, /*alone=*/true);
  for (const Op& op : releases) OFFCUT_RETURN_IF_ERROR(last.Play(op));
  return absl::OkStatus();
}

absl::Status Machine::CheckNothingIsLeft() {
  const sim::MemoryCensus& outside = core_->left_by_tests();
  const sim::MemoryCensus memory = sim_.model().memory().Census();
  const sim::StreamCensus streams = sim_.model().streams().Census();
  if (memory.reservations != outside.reservations || memory.handles != outside.handles ||
      memory.mappings != outside.mappings || memory.allocations != 0 || streams.events != 0) {
    return Wrong("leak: with the allocators gone, the driver holds ", memory.reservations,
                 " address ranges, ", memory.handles, " handles, ", memory.mappings, " mappings, ",
                 memory.allocations, " allocations, ", streams.events, " events");
  }
  return absl::OkStatus();
}

// --- Player ---

Player::Player(Machine& machine, bool alone, Tally* tally)
    : machine_(machine), alone_(alone), index_(alone ? 0 : machine.next_player_++), tally_(tally) {
  if (!alone_) return;
  for (DeviceIndex device = 0; device < machine_.setup_.devices; ++device) {
    machine_.core_->SetFreeMemoryCallback(device, [this] { return FreeOneWhenShort(); });
  }
}

Player::~Player() {
  if (!alone_) return;
  for (DeviceIndex device = 0; device < machine_.setup_.devices; ++device) {
    machine_.core_->SetFreeMemoryCallback(device, nullptr);
  }
}

absl::Status Player::Play(const Op& op) {
  skipped_ = false;
  playing_ = this;
  const absl::Status status = machine_.WithMisuse(PlayOne(op));
  if (tally_ != nullptr) {
    const size_t kind = static_cast<size_t>(op.kind);
    tally_->played[kind].fetch_add(1, std::memory_order_relaxed);
    if (skipped_) tally_->without_effect[kind].fetch_add(1, std::memory_order_relaxed);
  }
  return status;
}

absl::Status Player::PlayOne(const Op& op) {
  if (op.device >= machine_.setup_.devices || op.stream >= machine_.setup_.streams) return Skip();
  switch (op.kind) {
#define FUZZ_OP(name, sentence) \
  case OpKind::k##name:         \
    return name(op);
#include "tests/fuzz/ops.def"
#undef FUZZ_OP
  }
  return Wrong("answer: no such operation");
}

absl::Status Player::FreeAll() {
  for (auto& [name, block] : blocks_) {
    if (block.live) OFFCUT_RETURN_IF_ERROR(Release(block));
  }
  return absl::OkStatus();
}

Player::Block* Player::Live(uint32_t block) {
  const auto it = blocks_.find(block);
  return it == blocks_.end() || !it->second.live ? nullptr : &it->second;
}

bool Player::Undisturbed() const {
  return alone_ && machine_.driver_.FaultCount() == 0 && !machine_.AnyCapture();
}

// --- Player: memory ---

absl::Status Player::Allocate(const Op& op) {
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (!stream.exists || Live(op.block) != nullptr) return Skip();
  // The driver's pools give a captured stream memory of its graph, which no program here launches.
  if (stream.capturing && machine_.core_->UsesDriverPools()) return Skip();
  PoolBook::Pool* const pool =
      machine_.pools_.Find(op.device, machine_.pools_.Lead(op.device, Thread(), stream.handle));
  if (pool != nullptr) pool->served = true;
  const uint64_t faults = machine_.driver_.FaultCount();
  const Bytes reserved_before = alone_ ? machine_.core_->ReservedBytes(op.device) : 0;
  const absl::StatusOr<DevicePtr> address =
      machine_.core_->Allocate(op.device, stream.handle, op.bytes);
  const bool faulted = machine_.driver_.FaultCount() != faults;
  OFFCUT_RETURN_IF_ERROR(std::exchange(callback_status_, absl::OkStatus()));
  // What a driver's pool grew by is undone, unless the driver fails at that.
  if (alone_ && !(faulted && machine_.core_->UsesDriverPools())) {
    const Bytes reserved = machine_.core_->ReservedBytes(op.device);
    if (reserved > reserved_before && reserved > machine_.limits_[op.device]) {
      return Wrong("answer: reserved memory grew to ", reserved, " bytes beyond the limit of ",
                   machine_.limits_[op.device].load());
    }
  }
  if (!address.ok()) return ExplainRefusal(op, address.status(), faulted, pool != nullptr);
  if (op.bytes == 0 || op.bytes > policy::kRequestMax) {
    return Wrong("answer: a request of ", op.bytes, " bytes was served");
  }
  Block block = {.owner = machine_.next_owner_++,
                 .address = *address,
                 .requested = op.bytes,
                 .device = op.device,
                 .stream = op.stream,
                 .handle = stream.handle,
                 .id = stream.id};
  const absl::StatusOr<BlockInfo> info = machine_.core_->FindBlock(op.device, *address);
  if (!info.ok()) {
    return Wrong("answer: the block just served is unknown: ", info.status().message());
  }
  block.bytes = info->size;
  if (pool != nullptr && pool->no_split &&
      (info->range_address != info->address || info->range_bytes != info->size)) {
    return Wrong("answer: a block of a pool that is never split lies in ", info->range_bytes,
                 " bytes at ", Hex(info->range_address));
  }
  return Enter(op.block, std::move(block), pool != nullptr ? pool->name : 0);
}

absl::Status Player::Enter(uint32_t name, Block block, Claims::Pool pool) {
  OFFCUT_RETURN_IF_ERROR(CheckAnswer(block, block.address));
  OFFCUT_ASSIGN_OR_RETURN(
      block.pool, machine_.claims_.Claim(block.owner, block.address, block.bytes, block.id, pool));
  OFFCUT_RETURN_IF_ERROR(
      Named("claims: the block cannot be used",
            machine_.sim_.model().memory().CheckAccess(block.address, block.bytes, block.device,
                                                       sim::Access::kReadWrite)));
  blocks_[name] = std::move(block);
  return absl::OkStatus();
}

bool Player::FreeOneWhenShort() {
  while (!free_when_short_.empty()) {
    Block* const block = Live(free_when_short_.front());
    free_when_short_.pop_front();
    if (block == nullptr) continue;
    callback_status_.Update(Release(*block));
    return true;
  }
  return false;
}

absl::Status Player::FreeWhenShort(const Op& op) {
  if (Live(op.block) == nullptr || !alone_) return Skip();
  free_when_short_.push_back(op.block);
  return absl::OkStatus();
}

absl::Status Player::ExplainRefusal(const Op& op, const absl::Status& refusal, bool faulted,
                                    bool routed) const {
  if (faulted || (!alone_ && machine_.driver_.FaultCount() != 0)) return absl::OkStatus();
  const auto wrong = [&](const auto&... parts) {
    return Wrong("answer: a request of ", op.bytes, " bytes was refused ", parts...,
                 "; the refusal: ", refusal.ToString());
  };
  if (op.bytes == 0 || op.bytes > policy::kRequestMax) {
    return absl::IsInvalidArgument(refusal) ? absl::OkStatus() : wrong("for the wrong reason");
  }
  if (!absl::IsResourceExhausted(refusal)) return wrong("for no reason that there is");
  if (!Undisturbed()) return absl::OkStatus();
  const CoreUnderTest::Holdings held = machine_.core_->HoldingsOf(op.device);
  if (held.releasable_bytes != 0 || held.pending_bytes != 0) {
    return wrong("beside ", held.releasable_bytes, " idle and ", held.pending_bytes,
                 " pending bytes");
  }
  OFFCUT_ASSIGN_OR_RETURN(const sim::MemoryModel::Info info,
                          machine_.sim_.model().memory().GetInfo(op.device));
  const Bytes growth = machine_.core_->GrowthMax(op.bytes, routed);
  const Bytes limit = machine_.limits_[op.device];
  if (RoundUp(growth, sim::kGranularity) <= info.free_bytes && growth <= limit &&
      held.reserved_bytes <= limit - growth) {
    return wrong("with ", held.reserved_bytes, " bytes reserved, ", info.free_bytes, " free and ",
                 growth, " needed");
  }
  return absl::OkStatus();
}

absl::Status Player::CheckAnswer(const Block& block, DevicePtr address) const {
  const absl::StatusOr<BlockInfo> info = machine_.core_->FindBlock(block.device, address);
  if (!info.ok()) {
    return Wrong("answer: no block at ", Hex(address),
                 ", which lies in a live one: ", info.status().message());
  }
  if (info->address != block.address || info->address % kBlockAlignment != 0 ||
      info->requested != block.requested || info->size < block.requested ||
      info->size != block.bytes || info->stream != block.handle ||
      info->range_address > info->address ||
      info->range_address + info->range_bytes < info->address + info->size) {
    return Wrong("answer: the block of ", block.requested, " bytes at ", Hex(block.address),
                 " is told to be one of ", info->requested, " in ", info->size, " bytes at ",
                 Hex(info->address), ", in the range of ", info->range_bytes, " bytes at ",
                 Hex(info->range_address));
  }
  return absl::OkStatus();
}

absl::Status Player::Free(const Op& op) {
  Block* const block = Live(op.block);
  return block == nullptr ? Skip() : Release(*block);
}

absl::Status Player::Release(Block& block) {
  OFFCUT_RETURN_IF_ERROR(SettleUses(block));
  OFFCUT_RETURN_IF_ERROR(machine_.claims_.Free(block.owner));
  block.live = false;
  return Named("answer: a free failed", machine_.core_->Free(block.device, block.address));
}

absl::Status Player::SettleUses(Block& block) {
  for (Block::Use& use : block.uses) {
    if (use.recorded) continue;
    const Machine::Stream stream = machine_.StreamAt(use.device, use.stream);
    // Of a stream that is being captured, the allocator is told what the capture does.
    use.recorded =
        stream.exists && stream.id == use.id && !stream.capturing &&
        machine_.core_->RecordStream(block.device, block.address, use.device, stream.handle).ok();
  }
  AwaitUnrecorded(block);
  block.uses.clear();
  return absl::OkStatus();
}

void Player::AwaitUnrecorded(Block& block) {
  for (const Block::Use& use : block.uses) {
    if (!use.recorded) machine_.sim_.model().clock().WaitUntil(use.done_ns);
  }
}

absl::Status Player::BadFree(const Op& op) {
  if (!alone_) return Skip();
  DeviceIndex device = op.device;
  DevicePtr address = op.bytes;
  if (const auto it = blocks_.find(op.block); it != blocks_.end()) {
    device = it->second.device;
    address += it->second.address;
  }
  const absl::StatusOr<BlockInfo> found = machine_.core_->FindBlock(device, address);
  if (found.ok() && found->address == address) return Skip();
  const uint64_t before = machine_.core_->counters(device).invalid_frees;
  const absl::Status status = machine_.core_->Free(device, address);
  if (!absl::IsInvalidArgument(status)) {
    return Wrong("answer: the free of ", Hex(address), ", no block, ends with ", status.ToString());
  }
  if (machine_.core_->counters(device).invalid_frees != before + 1) {
    return Wrong("answer: the free of ", Hex(address), ", no block, is not counted");
  }
  return absl::OkStatus();
}

absl::Status Player::FindBlock(const Op& op) {
  const Block* const block = Live(op.block);
  if (block == nullptr) return Skip();
  return CheckAnswer(*block, block->address + op.bytes % block->bytes);
}

absl::Status Player::HandOver(const Op& op) {
  Block* const block = Live(op.block);
  if (block == nullptr) return Skip();
  absl::MutexLock lock(&machine_.mutex_);
  machine_.handed_over_.push_back(std::move(*block));
  blocks_.erase(op.block);
  return absl::OkStatus();
}

absl::Status Player::Adopt(const Op& op) {
  if (Live(op.block) != nullptr) return Skip();
  absl::MutexLock lock(&machine_.mutex_);
  if (machine_.handed_over_.empty()) return Skip();
  blocks_[op.block] = std::move(machine_.handed_over_.front());
  machine_.handed_over_.pop_front();
  return absl::OkStatus();
}

// --- Player: work ---

absl::Status Player::Use(const Op& op) {
  Block* const block = Live(op.block);
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (block == nullptr || !stream.exists || machine_.IsImplicit(op.device, op.stream) ||
      !machine_.IsOpen(block->device, op.device)) {
    return Skip();
  }
  const bool own = stream.id == block->id;
  if (!own && !stream.capturing) {
    // The order that a program owes: what the block's own stream did with these bytes comes first.
    const Machine::Stream first = machine_.StreamAt(block->device, block->stream);
    if (first.id != block->id || !first.exists || first.capturing ||
        machine_.IsImplicit(block->device, block->stream)) {
      return Skip();
    }
    OFFCUT_RETURN_IF_ERROR(machine_.WaitFor(op.device, stream.handle, block->device, first.handle));
  }
  sim::DeviceModel& model = machine_.sim_.model();
  OFFCUT_RETURN_IF_ERROR(Named("claims: the block cannot be used",
                               model.memory().CheckAccess(block->address, block->bytes, op.device,
                                                          sim::Access::kReadWrite)));
  const absl::StatusOr<sim::Submission> work =
      model.streams().Submit(op.device, stream.handle, op.ns);
  OFFCUT_RETURN_IF_ERROR(Named("capture: no work can be given to a stream", work.status()));
  if (work->captured) return absl::OkStatus();
  model.memory().MarkUsed(block->address, block->bytes, work->done_ns);
  if (!own) {
    block->uses.push_back({op.device, op.stream, stream.id, work->done_ns, /*recorded=*/false});
  }
  return machine_.claims_.Use(block->owner, stream.id, work->done_ns);
}

absl::Status Player::RecordStream(const Op& op) {
  Block* const block = Live(op.block);
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (block == nullptr || !stream.exists) return Skip();
  const uint64_t faults = machine_.driver_.FaultCount();
  const absl::Status status =
      machine_.core_->RecordStream(block->device, block->address, op.device, stream.handle);
  if (status.ok()) {
    block->maybe_told = true;
    block->told = block->told || op.device != block->device ||
                  (stream.id != block->id && stream.handle != block->handle);
    for (Block::Use& use : block->uses) {
      use.recorded = use.recorded || (use.id == stream.id && !stream.capturing);
    }
    return absl::OkStatus();
  }
  return machine_.driver_.FaultCount() != faults
             ? absl::OkStatus()
             : Named("answer: a stream is not recorded", status);
}

absl::Status Player::Join(const Op& op) {
  Block* const block = Live(op.block);
  if (block == nullptr || machine_.AnyCapture()) return Skip();
  const Machine::Stream own = machine_.StreamAt(block->device, block->stream);
  if (!own.exists || own.id != block->id) return Skip();
  for (const Block::Use& use : block->uses) {
    const Machine::Stream stream = machine_.StreamAt(use.device, use.stream);
    if (!stream.exists || stream.id != use.id) return Skip();
    OFFCUT_RETURN_IF_ERROR(machine_.WaitFor(block->device, own.handle, use.device, stream.handle));
  }
  const absl::StatusOr<sim::Submission> next =
      machine_.sim_.model().streams().Submit(block->device, own.handle, 0);
  OFFCUT_RETURN_IF_ERROR(Named("capture: no work can be given to a stream", next.status()));
  block->uses.clear();
  return machine_.claims_.Join(block->owner, next->done_ns);
}

absl::Status Player::Synchronize(const Op& op) {
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (!stream.exists || machine_.AnyCapture()) return Skip();
  return Named("capture: a stream cannot be waited for",
               machine_.sim_.model().streams().SynchronizeStream(op.device, stream.handle));
}

absl::Status Player::Advance(const Op& op) {
  machine_.sim_.AdvanceNs(op.ns);
  return absl::OkStatus();
}

absl::Status Player::SetLag(const Op& op) {
  machine_.sim_.model().streams().SetLagNs(op.ns);
  return absl::OkStatus();
}

absl::Status Player::DestroyStream(const Op& op) {
  Machine::Stream& stream = machine_.streams_[op.device][op.stream];
  if (!alone_ || op.stream == 0 || machine_.IsPerThread(op.stream) || !stream.exists ||
      machine_.AnyCapture()) {
    return Skip();
  }
  sim::StreamModel& model = machine_.sim_.model().streams();
  // The allocator keeps to handles until it records an event.
  OFFCUT_RETURN_IF_ERROR(Named("capture", model.SynchronizeStream(op.device, stream.handle)));
  stream.exists = false;
  return Named("capture", model.DestroyStream(stream.handle));
}

absl::Status Player::CreateStream(const Op& op) {
  if (!alone_ || machine_.StreamAt(op.device, op.stream).exists) return Skip();
  return machine_.CreateStream(op.device, op.stream);
}

absl::Status Player::BeginCapture(const Op& op) {
  Machine::Stream& stream = machine_.streams_[op.device][op.stream];
  if (!alone_ || op.stream == 0 || !stream.exists || stream.capturing) return Skip();
  // The allocator can ask only the streams that it has heard of whether they are being captured.
  constexpr uint32_t kKnown = ~uint32_t{0};  // no program has so many blocks
  OFFCUT_RETURN_IF_ERROR(
      Allocate({.device = op.device, .stream = op.stream, .block = kKnown, .bytes = 1}));
  Block* const known = Live(kKnown);
  if (known == nullptr) return Skip();
  OFFCUT_RETURN_IF_ERROR(Release(*known));
  OFFCUT_RETURN_IF_ERROR(
      Named("capture", machine_.sim_.model().streams().BeginCapture(
                           op.device, stream.handle, static_cast<sim::CaptureMode>(op.value % 3))));
  stream.capturing = true;
  ++machine_.captures_;
  return absl::OkStatus();
}

absl::Status Player::EndCapture(const Op& op) {
  if (!machine_.StreamAt(op.device, op.stream).capturing) return Skip();
  return machine_.EndCapture(op.device, op.stream);
}

// --- Player: the whole device ---

absl::Status Player::EmptyCache(const Op& op) {
  const int64_t before = machine_.core_->counters(op.device).reserved_bytes[0].current;
  const Bytes released = machine_.core_->EmptyCache(op.device);
  if (!Undisturbed()) return absl::OkStatus();
  const CoreUnderTest::Holdings held = machine_.core_->HoldingsOf(op.device);
  if (static_cast<Bytes>(before) != held.reserved_bytes + released) {
    return Wrong("answer: releasing ", released, " bytes made ", before, " bytes reserved ",
                 held.reserved_bytes);
  }
  if (held.releasable_bytes != 0 || held.pending_bytes != 0) {
    return Wrong("answer: ", held.releasable_bytes, " idle and ", held.pending_bytes,
                 " pending bytes are left in an emptied cache");
  }
  return absl::OkStatus();
}

absl::Status Player::SetLimit(const Op& op) {
  machine_.limits_[op.device] = op.bytes;
  machine_.core_->SetLimit(op.device, op.bytes);
  return absl::OkStatus();
}

absl::Status Player::SetOutside(const Op& op) {
  return machine_.sim_.model().memory().SetOutsideBytes(op.device, op.bytes);
}

absl::Status Player::OpenTo(const Op& op) {
  const DeviceIndex peer = static_cast<DeviceIndex>(op.value);
  if (op.value >= machine_.setup_.devices || peer == op.device) return Skip();
  const uint64_t faults = machine_.driver_.FaultCount();
  const absl::Status status = machine_.core_->OpenTo(op.device, peer);
  if (status.ok()) {
    absl::MutexLock lock(&machine_.mutex_);
    machine_.open_.insert({op.device, peer});
    return absl::OkStatus();
  }
  return machine_.driver_.FaultCount() != faults ? absl::OkStatus()
                                                 : Named("answer: a peer is not let in", status);
}

absl::Status Player::Account(const Op& op) {
  const uint64_t faults = machine_.driver_.FaultCount();
  const Accounting sum = machine_.core_->Account(op.device);
  if (!alone_ || machine_.driver_.FaultCount() != faults) return absl::OkStatus();
  OFFCUT_ASSIGN_OR_RETURN(const sim::MemoryModel::Info info,
                          machine_.sim_.model().memory().GetInfo(op.device));
  const auto outside =
      static_cast<int64_t>(info.total_bytes - info.free_bytes - sum.reserved_bytes);
  if (sum.outside_bytes != outside) {
    return Wrong("answer: ", sum.outside_bytes, " bytes are told to be outside, and ", outside,
                 " are");
  }
  return absl::OkStatus();
}

absl::Status Player::MarkStep(const Op& op) {
  machine_.core_->MarkStep(op.device, op.value);
  return absl::OkStatus();
}

absl::Status Player::ResetCounters(const Op& op) {
  machine_.core_->ResetPeaks(op.device);
  if (op.value != 0) machine_.core_->ResetTotals(op.device);
  return absl::OkStatus();
}

// --- Player: faults ---

absl::Status Player::Fault(const Op& op) {
  FaultyDriver::Fault fault = {
      .nth = std::max<uint64_t>(op.value, 1), .times = op.times, .cu_result = op.result};
  if (op.call != 0) fault.call = static_cast<DriverCall>(op.call);
  machine_.driver_.Inject(fault);
  return absl::OkStatus();
}

}  // namespace offcut::fuzz
