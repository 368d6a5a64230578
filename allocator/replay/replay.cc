#include "allocator/replay/replay.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/clock.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/replay/driver_costs.h"
#include "allocator/replay/metered_driver.h"
#include "allocator/sim/sim_driver.h"

namespace offcut {
namespace {

constexpr DeviceIndex kDevice = 0;

Bytes LimitOf(const ReplayOptions& options) {
  const Bytes limit = std::min(options.cap, options.config.memory_limit_mb().bytes());
  const double fraction = options.config.per_process_memory_fraction();
  if (fraction >= 1) return limit;
  return std::min(limit,
                  static_cast<Bytes>(fraction * static_cast<double>(options.machine.TotalBytes())));
}

ReplayFigures Difference(const ReplayFigures& later, const ReplayFigures& earlier) {
  return {.events = later.events - earlier.events,
          .driver_calls = later.driver_calls - earlier.driver_calls,
          .driver_ns = later.driver_ns - earlier.driver_ns,
          .remap_ns = later.remap_ns - earlier.remap_ns,
          .growth_ns = later.growth_ns - earlier.growth_ns,
          .moves = later.moves - earlier.moves,
          .remapped_bytes = later.remapped_bytes - earlier.remapped_bytes,
          .move_batches = later.move_batches - earlier.move_batches,
          .waits = later.waits - earlier.waits,
          .wait_ns = later.wait_ns - earlier.wait_ns};
}

uint64_t ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// One simulated machine with an allocator, and the state of playing a program into it.
class Player {
 public:
  static absl::StatusOr<std::unique_ptr<Player>> Create(const Program& program,
                                                        const ReplayOptions& options);

  // Plays operations [begin, end) of the program; stops at a request that fails.
  absl::Status Play(size_t begin, size_t end);

  bool failed() const { return !failure_.ok(); }
  ReplayFigures Figures() const;
  ReplayResult Result() const;

 private:
  Player(const Program& program, const ReplayOptions& options)
      : program_(program),
        driver_(sim::SimOptions{.card = options.machine.card,
                                .memory_bytes = options.machine.memory_bytes,
                                .lag_ns = options.lag_ns,
                                .outside_bytes = options.machine.outside_bytes}),
        metered_(driver_, program.segments),
        clock_(driver_.clock()) {}

  absl::Status CreateStreams();
  // Other streams use the block of `operation`, a free, until its done_ns.
  absl::Status UseUntilDoneSlow(const Operation& operation);

  const Program& program_;
  SimDriver driver_;
  MeteredDriver metered_;
  const Clock clock_;
  AddressMap address_map_;
  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<StreamHandle> streams_;
  std::vector<StreamHandle> use_streams_;
  std::vector<uint64_t> use_stream_done_ns_;
  std::vector<DevicePtr> addresses_;  // by slot
  uint64_t time_ns_ = 0;              // of the program
  uint64_t events_ = 0;
  absl::Status failure_;
};

absl::StatusOr<std::unique_ptr<Player>> Player::Create(const Program& program,
                                                       const ReplayOptions& options) {
  std::unique_ptr<Player> player(new Player(program, options));
  OFFCUT_ASSIGN_OR_RETURN(
      player->allocator_,
      DeviceAllocator::Create(player->metered_, kDevice, player->clock_, player->address_map_,
                              options.config, options.sinks, LimitOf(options)));
  OFFCUT_RETURN_IF_ERROR(player->CreateStreams());
  player->addresses_.resize(program.slots);
  return player;
}

absl::Status Player::CreateStreams() {
  // As PyTorch's: they do not wait for the legacy default stream.
  const auto create = [this](std::vector<StreamHandle>& streams) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const StreamHandle stream, driver_.model().streams().CreateStream(
                                                           kDevice, {.non_blocking = true}));
    streams.push_back(stream);
    return absl::OkStatus();
  };
  for (const bool is_default : program_.stream_is_default) {
    if (is_default) {
      streams_.push_back(nullptr);
    } else {
      OFFCUT_RETURN_IF_ERROR(create(streams_));
    }
  }
  for (uint16_t i = 0; i < program_.use_streams; ++i) OFFCUT_RETURN_IF_ERROR(create(use_streams_));
  use_stream_done_ns_.resize(program_.use_streams);
  return absl::OkStatus();
}

absl::Status Player::Play(size_t begin, size_t end) {
  DeviceAllocator& allocator = *allocator_;
  for (size_t i = begin; i < end; ++i) {
    const Operation& operation = program_.operations[i];
    if (operation.time_ns != time_ns_) {
      driver_.AdvanceNs(operation.time_ns - time_ns_);
      time_ns_ = operation.time_ns;
    }
    switch (operation.kind) {
      case OperationKind::kAllocate: {
        absl::StatusOr<DevicePtr> address =
            allocator.Allocate(streams_[operation.stream], operation.bytes);
        if (ABSL_PREDICT_FALSE(!address.ok())) {
          failure_ = std::move(address).status();
          return absl::OkStatus();
        }
        addresses_[operation.slot] = *address;
        ++events_;
        break;
      }
      case OperationKind::kFree:
        if (operation.done_ns != 0) OFFCUT_RETURN_IF_ERROR(UseUntilDoneSlow(operation));
        OFFCUT_RETURN_IF_ERROR(allocator.Free(addresses_[operation.slot]));
        ++events_;
        break;
      case OperationKind::kUse:
        OFFCUT_RETURN_IF_ERROR(allocator.RecordStream(addresses_[operation.slot], kDevice,
                                                      streams_[operation.stream]));
        break;
      case OperationKind::kEmptyCache:
        allocator.EmptyCache();
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status Player::UseUntilDoneSlow(const Operation& operation) {
  sim::DeviceModel& model = driver_.model();
  const StreamHandle stream = use_streams_[operation.stream];
  uint64_t& stream_done_ns = use_stream_done_ns_[operation.stream];
  // What made the host late made the other stream's work late too.
  const uint64_t done_ns = operation.done_ns + model.clock().WaitedNs();
  const uint64_t start_ns =
      std::max(model.clock().NowNs() + model.streams().lag_ns(), stream_done_ns);
  OFFCUT_ASSIGN_OR_RETURN(
      const sim::Submission submitted,
      model.streams().Submit(kDevice, stream, done_ns > start_ns ? done_ns - start_ns : 0));
  stream_done_ns = submitted.done_ns;
  return allocator_->RecordStream(addresses_[operation.slot], kDevice, stream);
}

ReplayFigures Player::Figures() const {
  const Counters counters = allocator_->counters();
  const DriverMeter& meter = metered_.meter();
  return {.events = events_,
          .driver_calls = meter.calls,
          .driver_ns = meter.ns,
          .remap_ns = counters.moves * kMoveNs,
          .growth_ns = meter.growth_ns,
          .moves = counters.moves,
          .remapped_bytes = counters.moved_bytes,
          .move_batches = counters.move_batches,
          .waits = meter.waits,
          .wait_ns = meter.wait_ns};
}

ReplayResult Player::Result() const {
  ReplayResult result = {
      .whole = Figures(), .span_ns = program_.span_ns, .counters = allocator_->counters()};
  result.peak_live_bytes = static_cast<Bytes>(result.counters.live_bytes[0].peak);
  result.largest_batch = result.counters.largest_move_batch;
  result.address_bytes_peak = static_cast<Bytes>(result.counters.address_bytes[0].peak);
  result.peak_reserved_bytes = static_cast<Bytes>(result.counters.reserved_bytes[0].peak);
  result.segments = metered_.allocations();
  if (failed()) {
    result.failed_at_event = events_;
    result.failure = std::string(failure_.message());
  }
  return result;
}

}  // namespace

double ReplayResult::live_over_reserved() const {
  if (peak_reserved_bytes == 0) return 0;
  return static_cast<double>(peak_live_bytes) / static_cast<double>(peak_reserved_bytes);
}

absl::Status CheckSegments(const Program& program, const ReplayResult& result) {
  const std::vector<RecordedSegment>& recorded = program.segments;
  Bytes reserved = 0;
  for (size_t i = 0; i < std::max(recorded.size(), result.segments.size()); ++i) {
    if (i >= recorded.size() || i >= result.segments.size() ||
        recorded[i].bytes != result.segments[i]) {
      const auto show = [i](const auto& segments, auto bytes_of) {
        return i < segments.size() ? absl::StrCat(bytes_of(segments[i]), " bytes")
                                   : absl::StrCat("not there, of ", segments.size());
      };
      return absl::FailedPreconditionError(
          absl::StrCat("segment ", i, ": recorded ",
                       show(recorded, [](const RecordedSegment& segment) { return segment.bytes; }),
                       ", replayed ", show(result.segments, [](Bytes bytes) { return bytes; })));
    }
    reserved += recorded[i].bytes;
  }
  if (result.peak_reserved_bytes == reserved) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the segments add up to ", reserved,
                                                    " bytes, and the peak reserved is ",
                                                    result.peak_reserved_bytes));
}

absl::StatusOr<ReplayResult> Replay(const Program& program, const ReplayOptions& options) {
  OFFCUT_ASSIGN_OR_RETURN(const std::unique_ptr<Player> player, Player::Create(program, options));
  const std::vector<Operation>& operations = program.operations;
  const auto half = std::partition_point(
      operations.begin(), operations.end(),
      [&program](const Operation& operation) { return operation.time_ns < program.span_ns / 2; });
  const size_t half_index = half - operations.begin();
  const Clock& wall = Clock::Real();
  const uint64_t begin_ns = wall.NowNs();
  const uint64_t begin_cpu_ns = ThreadCpuNs();
  OFFCUT_RETURN_IF_ERROR(player->Play(0, half_index));
  const ReplayFigures first_half = player->Figures();
  if (!player->failed()) OFFCUT_RETURN_IF_ERROR(player->Play(half_index, operations.size()));
  const uint64_t end_ns = wall.NowNs();
  const uint64_t end_cpu_ns = ThreadCpuNs();
  ReplayResult result = player->Result();
  result.second_half = Difference(result.whole, first_half);
  result.seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
  result.cpu_seconds = static_cast<double>(end_cpu_ns - begin_cpu_ns) * 1e-9;
  return result;
}

}  // namespace offcut
