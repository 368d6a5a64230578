#include "allocator/replay/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

// `done_ns` of a free that was not finished yet.
constexpr uint64_t kUnfinished = UINT64_MAX;

std::string Hex(DevicePtr address) { return absl::StrCat("0x", absl::Hex(address)); }

}  // namespace

absl::Status ProgramBuilder::Add(uint64_t time_ns, const Operation& operation) {
  if (program_.operations.size() >= kOperationsMax) {
    return absl::OutOfRangeError(absl::StrCat("more than ", kOperationsMax, " operations"));
  }
  program_.operations.push_back(operation);
  program_.operations.back().time_ns = time_ns;
  program_.span_ns = time_ns;
  return absl::OkStatus();
}

absl::Status ProgramBuilder::FindStream(uint64_t stream, bool default_stream, uint16_t* index) {
  const auto next = static_cast<uint16_t>(program_.stream_is_default.size());
  const auto [it, is_new] = streams_.try_emplace(stream, next);
  *index = it->second;
  if (!is_new) return absl::OkStatus();
  if (next >= kStreamsMax) {
    return absl::OutOfRangeError(absl::StrCat("more than ", kStreamsMax, " streams"));
  }
  program_.stream_is_default.push_back(default_stream);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::Allocate(uint64_t time_ns, DevicePtr address, Bytes bytes,
                                      uint64_t stream, bool default_stream) {
  Operation operation{.bytes = bytes, .kind = OperationKind::kAllocate};
  OFFCUT_RETURN_IF_ERROR(FindStream(stream, default_stream, &operation.stream));
  const auto [it, is_new] = blocks_.try_emplace(address);
  if (!is_new) {
    return absl::InvalidArgumentError(absl::StrCat(
        Hex(address), it->second.live ? " is allocated and was not freed since"
                                      : " was freed, and its free was not completed since"));
  }
  if (free_slots_.empty()) {
    operation.slot = program_.slots++;
  } else {
    operation.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  it->second = {.slot = operation.slot, .bytes = bytes};
  live_bytes_ += bytes;
  program_.peak_live_bytes = std::max(program_.peak_live_bytes, live_bytes_);
  ++program_.events;
  return Add(time_ns, operation);
}

absl::Status ProgramBuilder::Free(uint64_t time_ns, DevicePtr address) {
  program_.span_ns = time_ns;
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) {
    ++unknown_frees_;
    return absl::OkStatus();
  }
  Block& block = it->second;
  if (!block.live) return absl::InvalidArgumentError(Hex(address) + " was freed before");
  block.live = false;
  block.freed_index = program_.operations.size();
  live_bytes_ -= block.bytes;
  free_slots_.push_back(block.slot);
  ++program_.events;
  return Add(time_ns, {.done_ns = kUnfinished, .slot = block.slot, .kind = OperationKind::kFree});
}

absl::Status ProgramBuilder::FinishFree(uint64_t time_ns, DevicePtr address) {
  program_.span_ns = time_ns;
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return absl::OkStatus();  // nor was its free known
  if (it->second.live) return absl::InvalidArgumentError(Hex(address) + " was not freed before");
  const uint64_t index = it->second.freed_index;
  const bool at_once = index + 1 == program_.operations.size();
  program_.operations[index].done_ns = at_once ? 0 : time_ns;
  blocks_.erase(it);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::Use(uint64_t time_ns, DevicePtr address, uint64_t stream,
                                 bool default_stream) {
  program_.span_ns = time_ns;
  const auto it = blocks_.find(address);
  if (it == blocks_.end() || !it->second.live) return absl::OkStatus();
  Operation operation{.slot = it->second.slot, .kind = OperationKind::kUse};
  OFFCUT_RETURN_IF_ERROR(FindStream(stream, default_stream, &operation.stream));
  return Add(time_ns, operation);
}

absl::Status ProgramBuilder::EmptyCache(uint64_t time_ns) {
  return Add(time_ns, {.kind = OperationKind::kEmptyCache});
}

absl::Status ProgramBuilder::AddSegment(const RecordedSegment& segment) {
  program_.span_ns = segment.time_ns;
  if (program_.segments.size() >= kOperationsMax) {
    return absl::OutOfRangeError(absl::StrCat("more than ", kOperationsMax, " segments"));
  }
  program_.segments.push_back(segment);
  return absl::OkStatus();
}

bool ProgramBuilder::IsLive(DevicePtr address) const {
  const auto it = blocks_.find(address);
  return it != blocks_.end() && it->second.live;
}

Program ProgramBuilder::Finish() && {
  AssignUseStreams();
  if (unknown_frees_ > 0) {
    AddCaveat(absl::StrCat(unknown_frees_,
                           " frees of blocks that were allocated before the recording began are "
                           "left out"));
  }
  return std::move(program_);
}

void ProgramBuilder::AssignUseStreams() {
  std::vector<uint64_t> last_done_ns;  // of each use stream
  for (Operation& operation : program_.operations) {
    if (operation.kind != OperationKind::kFree || operation.done_ns == 0) continue;
    if (operation.done_ns == kUnfinished) operation.done_ns = program_.span_ns + 1;
    // The stream whose last use is done latest, but not after this one.
    size_t chosen = last_done_ns.size();
    for (size_t i = 0; i < last_done_ns.size(); ++i) {
      if (last_done_ns[i] > operation.done_ns) continue;
      if (chosen == last_done_ns.size() || last_done_ns[i] > last_done_ns[chosen]) chosen = i;
    }
    if (chosen == kUseStreamsMax) {
      chosen = std::min_element(last_done_ns.begin(), last_done_ns.end()) - last_done_ns.begin();
    }
    if (chosen == last_done_ns.size()) last_done_ns.push_back(0);
    last_done_ns[chosen] = std::max(last_done_ns[chosen], operation.done_ns);
    operation.stream = static_cast<uint16_t>(chosen);
  }
  program_.use_streams = static_cast<uint16_t>(last_done_ns.size());
}

}  // namespace offcut
