#include "allocator/replay/recorded_run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

// Turns events, in order, into operations.
class Converter {
 public:
  absl::Status Add(const Event& event);
  Program Finish() &&;

 private:
  absl::Status Allocate(const Event& event);
  bool IsDefault(uint64_t stream) const {
    const auto it = stream_is_default_.find(stream);
    return it == stream_is_default_.end() ? stream == 0 : it->second;
  }

  ProgramBuilder builder_;
  std::optional<uint64_t> begin_ns_;
  uint64_t now_ns_ = 0;                                    // since begin_ns_
  absl::flat_hash_map<uint64_t, bool> stream_is_default_;  // by stream index
  absl::flat_hash_map<uint16_t, uint64_t> stream_of_pool_;
  bool default_seen_ = false;
  uint64_t dropped_ = 0;
  uint64_t failed_requests_ = 0;
  uint64_t private_pools_ = 0;
};

absl::Status Converter::Add(const Event& event) {
  if (!begin_ns_.has_value()) begin_ns_ = event.time_ns;
  // Times do not decrease; a damaged file's may.
  const uint64_t since_ns = event.time_ns - std::min(*begin_ns_, event.time_ns);
  now_ns_ = std::max(now_ns_, std::min(since_ns, ProgramBuilder::kTimeMaxNs));
  switch (event.kind) {
    case EventKind::kStreamSeen: {
      // The handles 0 and CU_STREAM_LEGACY.
      const bool is_default = event.bytes <= 1 && !default_seen_;
      default_seen_ |= is_default;
      stream_is_default_.emplace(event.extra, is_default);
      return absl::OkStatus();
    }
    case EventKind::kPoolCreated:
      stream_of_pool_[event.pool] = event.extra;
      private_pools_ += event.bytes != 0 ? 1 : 0;
      return absl::OkStatus();
    case EventKind::kBlockAllocated:
      return Allocate(event);
    case EventKind::kBlockFreed:
      OFFCUT_RETURN_IF_ERROR(builder_.Free(now_ns_, event.address));
      return builder_.FinishFree(now_ns_, event.address);
    case EventKind::kBlockFreePended:
      return builder_.Free(now_ns_, event.address);
    case EventKind::kPendingFreeFinished:
      return builder_.FinishFree(now_ns_, event.address);
    case EventKind::kStreamUseRecorded:
      return builder_.Use(now_ns_, event.address, event.extra, IsDefault(event.extra));
    case EventKind::kCacheEmptied:
      return builder_.EmptyCache(now_ns_);
    case EventKind::kEventsDropped:
      dropped_ += event.bytes;
      return absl::OkStatus();
    case EventKind::kRequestFailed:
      ++failed_requests_;
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status Converter::Allocate(const Event& event) {
  if (event.bytes == 0 || event.bytes > ProgramBuilder::kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("an allocation of ", event.bytes,
                                                   " bytes; it must be from 1 to ",
                                                   ProgramBuilder::kBytesMax));
  }
  if (dropped_ > 0 && builder_.Contains(event.address)) {
    // Its free is among the events that were lost.
    if (builder_.IsLive(event.address)) {
      OFFCUT_RETURN_IF_ERROR(builder_.Free(now_ns_, event.address));
    }
    OFFCUT_RETURN_IF_ERROR(builder_.FinishFree(now_ns_, event.address));
  }
  const auto stream = stream_of_pool_.find(event.pool);
  const uint64_t index = stream == stream_of_pool_.end() ? 0 : stream->second;
  return builder_.Allocate(now_ns_, event.address, event.bytes, index, IsDefault(index));
}

Program Converter::Finish() && {
  if (dropped_ > 0) {
    builder_.AddCaveat(
        absl::StrCat(dropped_,
                     " events were lost when this was recorded: blocks whose free is "
                     "among them stay live until their address is allocated again"));
  }
  if (private_pools_ > 0) {
    builder_.AddCaveat(absl::StrCat(private_pools_,
                                    " private pools were in use when this was recorded; their "
                                    "blocks are played as those of their streams' default pools"));
  }
  if (failed_requests_ > 0) {
    builder_.AddCaveat(absl::StrCat(failed_requests_,
                                    " requests failed when this was recorded, and are left out"));
  }
  return std::move(builder_).Finish();
}

}  // namespace

absl::StatusOr<Program> LoadRecordedRun(TraceReader& reader) {
  Converter converter;
  uint64_t index = 0;
  absl::Status wrong;
  OFFCUT_ASSIGN_OR_RETURN(const TraceSummary summary,
                          reader.ForEach([&](absl::Span<const Event> events) {
                            for (const Event& event : events) {
                              if (!wrong.ok()) return;
                              wrong = converter.Add(event);
                              ++index;
                            }
                          }));
  if (!wrong.ok()) {
    return absl::Status(wrong.code(),
                        absl::StrCat(reader.path(), ": event ", index - 1, ": ", wrong.message()));
  }
  Program program = std::move(converter).Finish();
  if (!summary.problem.empty()) {
    program.caveats.push_back(absl::StrCat("reading ended early: ", summary.problem));
  }
  return program;
}

}  // namespace offcut
