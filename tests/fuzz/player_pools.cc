// What Player does with private pools, and what it expects of the allocator's answers.

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "tests/fuzz/machine.h"

namespace offcut::fuzz {

thread_local const Player* Player::playing_ = nullptr;

namespace {

// Pools that one of several players may name, 0 included: 64 players fit into Op::pool.
constexpr uint32_t kPoolsOfAPlayer = 4;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("answer: ", parts...));
}

}  // namespace

uint32_t Player::PoolNumber(const Op& op) const {
  return alone_ ? op.pool : op.pool % kPoolsOfAPlayer + index_ * kPoolsOfAPlayer;
}

PoolBook::Pool* Player::FindPool(const Op& op) {
  return op.pool == 0 ? nullptr : machine_.pools_.Find(op.device, PoolNumber(op));
}

absl::Status Player::ExpectAnswer(const Op& op, const absl::Status& answer,
                                  absl::StatusCode expected) {
  if (answer.code() == expected) return absl::OkStatus();
  return Wrong(OpName(op.kind), " of pool ", op.pool, " ends with \"", answer.ToString(),
               "\", not with ", absl::StatusCodeToString(expected));
}

absl::Status Player::CheckUseCount(const Op& op) {
  const PoolBook::Pool* const pool = FindPool(op);
  const uint32_t expected = pool != nullptr ? pool->uses : 0;
  const uint32_t told = machine_.core_->PoolUseCount(op.device, PoolBook::IdOf(PoolNumber(op)));
  if (told == expected) return absl::OkStatus();
  return Wrong("pool ", op.pool, " is told to have ", told, " uses, not ", expected);
}

void Player::Forget(std::optional<Claims::Pool> released) {
  if (released.has_value()) machine_.claims_.ReleasePool(*released);
}

// --- Uses and routes ---

absl::Status Player::RetainPool(const Op& op) {
  if (op.pool == 0) return Skip();
  const absl::Status status = machine_.core_->RetainPool(op.device, PoolBook::IdOf(PoolNumber(op)));
  OFFCUT_RETURN_IF_ERROR(ExpectAnswer(op, status, absl::StatusCode::kOk));
  machine_.pools_.Retain(op.device, PoolNumber(op));
  return CheckUseCount(op);
}

absl::Status Player::ReleasePool(const Op& op) {
  if (op.pool == 0) return Skip();
  const PoolBook::Pool* const pool = FindPool(op);
  const bool has_use = pool != nullptr && pool->uses > 0;
  const absl::Status status =
      machine_.core_->ReleasePool(op.device, PoolBook::IdOf(PoolNumber(op)));
  OFFCUT_RETURN_IF_ERROR(
      ExpectAnswer(op, status, has_use ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
  if (has_use) Forget(machine_.pools_.Release(op.device, PoolNumber(op)));
  return CheckUseCount(op);
}

absl::Status Player::BeginRoute(const Op& op) {
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (op.pool == 0 || !stream.exists) return Skip();
  const PoolBook::Pool* const pool = FindPool(op);
  PoolBook::Route route = {.device = op.device, .number = PoolNumber(op), .thread = Thread()};
  if (alone_ && op.value != 1) route.stream = stream.handle;
  const uint64_t faults = machine_.driver_.FaultCount();
  const absl::Status status = machine_.core_->BeginAllocateToPool(
      op.device, PoolBook::IdOf(PoolNumber(op)), stream.handle,
      [route](StreamHandle requested) { return route.Leads(playing_, requested); });
  if (!status.ok() && machine_.driver_.FaultCount() != faults) return absl::OkStatus();
  const bool twice = pool != nullptr && pool->routes > 0;
  OFFCUT_RETURN_IF_ERROR(ExpectAnswer(
      op, status, twice ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk));
  if (!twice) machine_.pools_.Begin(route);
  return CheckUseCount(op);
}

absl::Status Player::EndRoute(const Op& op) {
  if (op.pool == 0) return Skip();
  const PoolBook::Pool* const pool = FindPool(op);
  const bool routed = pool != nullptr && pool->routes > 0;
  const absl::Status status =
      machine_.core_->EndAllocateToPool(op.device, PoolBook::IdOf(PoolNumber(op)));
  OFFCUT_RETURN_IF_ERROR(ExpectAnswer(
      op, status, routed ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition));
  if (routed) Forget(machine_.pools_.End(op.device, PoolNumber(op)));
  return CheckUseCount(op);
}

absl::Status Player::SetNoSplit(const Op& op) {
  if (op.pool == 0) return Skip();
  PoolBook::Pool* const pool = FindPool(op);
  const absl::Status status = machine_.core_->SetNoSplit(op.device, PoolBook::IdOf(PoolNumber(op)));
  if (pool != nullptr && !pool->served) pool->no_split = true;
  return ExpectAnswer(op, status,
                      pool != nullptr ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
}

absl::Status Player::SetUseOnOom(const Op& op) {
  PoolBook::Pool* const pool = FindPool(op);
  if (op.pool == 0 || (pool != nullptr && pool->launched)) return Skip();
  const absl::Status status =
      machine_.core_->SetUseOnOom(op.device, PoolBook::IdOf(PoolNumber(op)), op.value != 0);
  if (pool != nullptr) {
    pool->lends = op.value != 0;
    pool->has_lent = pool->has_lent || pool->lends;
    machine_.claims_.SetLends(pool->name, pool->lends);
  }
  return ExpectAnswer(op, status,
                      pool != nullptr ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
}

absl::Status Player::EmptyCacheOfPool(const Op& op) {
  if (op.pool == 0) return Skip();
  const Bytes before = alone_ ? machine_.core_->ReservedBytes(op.device) : 0;
  const Bytes released = machine_.core_->EmptyCacheOf(op.device, PoolBook::IdOf(PoolNumber(op)));
  if (!Undisturbed()) return absl::OkStatus();
  const Bytes after = machine_.core_->ReservedBytes(op.device);
  if (before == after + released) return absl::OkStatus();
  return Wrong("releasing ", released, " bytes of a pool made ", before, " bytes reserved ", after);
}

// --- What is in a pool ---

// Those of the player, and those that were handed over; of no other player.
std::vector<Player::Block*> Player::BlocksOf(Claims::Pool pool) {
  std::vector<Block*> found;
  for (auto& [name, block] : blocks_) {
    if (block.live && block.pool == pool) found.push_back(&block);
  }
  absl::MutexLock lock(&machine_.mutex_);
  for (Block& block : machine_.handed_over_) {
    if (block.pool == pool) found.push_back(&block);
  }
  return found;
}

absl::Status Player::CheckPoolBlocks(const Op& op) {
  const PoolBook::Pool* const pool = FindPool(op);
  if (pool == nullptr || !alone_) return Skip();
  std::vector<DevicePtr> addresses;
  for (const Block* const block : BlocksOf(pool->name)) addresses.push_back(block->address);
  const auto expect = [&](bool expected) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(
        const bool told,
        machine_.core_->HasLiveBlocks(op.device, PoolBook::IdOf(PoolNumber(op)), addresses));
    if (told == expected) return absl::OkStatus();
    return Wrong("pool ", op.pool, told ? " is" : " is not", " told to have just ",
                 addresses.size(), " certain blocks");
  };
  OFFCUT_RETURN_IF_ERROR(expect(true));
  if (addresses.empty()) {
    addresses.push_back(kBlockAlignment);
  } else {
    addresses.pop_back();
  }
  return expect(false);
}

absl::Status Player::LaunchGraph(const Op& op) {
  PoolBook::Pool* const pool = FindPool(op);
  const Machine::Stream stream = machine_.StreamAt(op.device, op.stream);
  if (pool == nullptr || pool->has_lent || !stream.exists || stream.capturing ||
      machine_.IsImplicit(op.device, op.stream)) {
    return Skip();
  }
  const absl::StatusOr<sim::Submission> work =
      machine_.sim_.model().streams().Submit(op.device, stream.handle, op.ns);
  if (!work.ok()) return absl::InternalError(absl::StrCat("capture: ", work.status().message()));
  pool->launched = true;
  for (const Claims::Place& place : machine_.claims_.MemoryOf(pool->name)) {
    machine_.sim_.model().memory().MarkUsed(place.address, place.bytes, work->done_ns);
  }
  return absl::OkStatus();
}

// --- Checkpoints ---

absl::Status Player::TakeCheckpoint(const Op& op) {
  PoolBook::Pool* const pool = FindPool(op);
  if (pool == nullptr || !alone_) return Skip();
  absl::StatusOr<PoolCheckpoint> taken =
      machine_.core_->TakeCheckpoint(op.device, PoolBook::IdOf(PoolNumber(op)));
  if (!taken.ok()) {
    return machine_.core_->HoldingsOf(op.device).pending_bytes > 0
               ? ExpectAnswer(op, taken.status(), absl::StatusCode::kFailedPrecondition)
               : ExpectAnswer(op, taken.status(), absl::StatusCode::kOk);
  }
  PoolBook::Checkpoint checkpoint;
  std::vector<DevicePtr> due, told;
  for (const auto& [name, block] : blocks_) {
    if (!block.live || block.pool != pool->name) continue;
    checkpoint.blocks.push_back({.name = name,
                                 .address = block.address,
                                 .bytes = block.bytes,
                                 .requested = block.requested,
                                 .stream = block.stream,
                                 .handle = block.handle,
                                 .id = block.id});
  }
  for (const Block* const block : BlocksOf(pool->name)) due.push_back(block->address);
  for (const PoolCheckpoint::Segment& segment : taken->segments) {
    DevicePtr address = segment.address;
    for (const PoolCheckpoint::Block& block : segment.blocks) {
      if (block.live) told.push_back(address);
      address += block.size;
    }
  }
  std::sort(due.begin(), due.end());
  std::sort(told.begin(), told.end());
  if (due != told) {
    return Wrong("a checkpoint of ", told.size(), " live blocks of a pool that has ", due.size());
  }
  // A block that was handed over comes back under no name.
  if (due.size() != checkpoint.blocks.size()) return absl::OkStatus();
  checkpoint.taken = *std::move(taken);
  pool->checkpoint = std::move(checkpoint);
  return absl::OkStatus();
}

absl::Status Player::RestoreCheckpoint(const Op& op) {
  PoolBook::Pool* const pool = FindPool(op);
  if (pool == nullptr || !alone_ || !pool->checkpoint.has_value()) return Skip();
  const PoolBook::Checkpoint& checkpoint = *pool->checkpoint;
  bool used_elsewhere = false, maybe_used_elsewhere = false;
  std::vector<DevicePtr> freed;
  for (Block* const block : BlocksOf(pool->name)) {
    AwaitUnrecorded(*block);
    used_elsewhere |= block->told;
    maybe_used_elsewhere |= block->maybe_told;
    freed.push_back(block->address);
  }
  absl::StatusOr<RestoredBlocks> restored =
      machine_.core_->RestoreCheckpoint(op.device, checkpoint.taken);
  if (!restored.ok()) {
    const bool busy =
        maybe_used_elsewhere || machine_.core_->HoldingsOf(op.device).pending_bytes > 0;
    return ExpectAnswer(op, restored.status(),
                        busy ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk);
  }
  if (used_elsewhere) return Wrong("a checkpoint is restored over blocks that other streams use");

  std::vector<DevicePtr> allocated;
  for (const PoolBook::CheckpointedBlock& block : checkpoint.blocks) {
    allocated.push_back(block.address);
  }
  for (std::vector<DevicePtr>* list :
       {&freed, &allocated, &restored->freed, &restored->allocated}) {
    std::sort(list->begin(), list->end());
  }
  if (restored->freed != freed || restored->allocated != allocated) {
    return Wrong("restoring is told to free ", restored->freed.size(), " and bring back ",
                 restored->allocated.size(), " blocks of ", freed.size(), " and ",
                 allocated.size());
  }
  for (Block* const block : BlocksOf(pool->name)) {
    OFFCUT_RETURN_IF_ERROR(machine_.claims_.Free(block->owner));
    block->live = false;
  }
  {
    absl::MutexLock lock(&machine_.mutex_);
    std::erase_if(machine_.handed_over_, [](const Block& block) { return !block.live; });
  }
  for (const PoolBook::CheckpointedBlock& block : checkpoint.blocks) {
    // The name may be another block's by now.
    const uint32_t other_name = 0x8000'0000u + static_cast<uint32_t>(machine_.next_owner_);
    OFFCUT_RETURN_IF_ERROR(Enter(Live(block.name) == nullptr ? block.name : other_name,
                                 {.owner = machine_.next_owner_++,
                                  .address = block.address,
                                  .bytes = block.bytes,
                                  .requested = block.requested,
                                  .device = op.device,
                                  .stream = block.stream,
                                  .handle = block.handle,
                                  .id = block.id},
                                 pool->name));
  }
  return absl::OkStatus();
}

}  // namespace offcut::fuzz
