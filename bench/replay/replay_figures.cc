// replay_figures [--rounds N] [--conf OPTIONS] TRACE...: what the allocator makes of recorded runs,
// as JSON on standard output: a list with one object per trace. replay_traces.py says what the
// figures are held against.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "allocator/base/status_macros.h"
#include "allocator/base/units.h"
#include "allocator/replay/driver_costs.h"
#include "allocator/replay/load_program.h"
#include "allocator/replay/replay.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kLagsMs[] = {0, 5, 50};
constexpr Bytes kCapStep = 2 * kMiB;

double Ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / kNsPerMs; }

Json WholeJson(const ReplayResult& result) {
  return {{"completed", result.completed()},
          {"peak_reserved_bytes", result.peak_reserved_bytes},
          {"live_over_reserved", result.live_over_reserved()},
          {"moves", result.whole.moves},
          {"move_batches", result.whole.move_batches},
          {"largest_batch", result.largest_batch},
          {"remap_ms", Milliseconds(result.whole.remap_ns)},
          {"remap_over_span", Ratio(result.whole.remap_ns, result.span_ns)},
          {"driver_ms", Milliseconds(result.whole.driver_ns)},
          {"waits", result.whole.waits},
          {"wait_ms", Milliseconds(result.whole.wait_ns)}};
}

// The least that any allocator reserves that never waits, however it moves granules: a byte that a
// stream uses, or used less than `lag_ns` ago, serves no other stream. Rounding is left out.
Bytes LeastReservedWithoutWaits(const Program& program, uint64_t lag_ns) {
  struct Change {
    uint64_t time_ns;
    size_t stream;
    int64_t bytes;
  };
  struct Use {  // what a stream held at a time before, until that no longer binds it
    uint64_t until_ns;
    int64_t bytes;
  };
  struct Stream {
    int64_t active = 0;
    std::deque<Use> uses;  // bytes descending

    int64_t Bound(uint64_t now_ns) {
      while (!uses.empty() && uses.front().until_ns <= now_ns) uses.pop_front();
      return uses.empty() ? active : std::max(active, uses.front().bytes);
    }
  };
  std::vector<Change> changes;
  std::vector<std::pair<size_t, int64_t>> blocks(program.slots);  // by slot: stream, bytes
  for (const Operation& operation : program.operations) {
    auto& [stream, bytes] = blocks[operation.slot];
    if (operation.kind == OperationKind::kAllocate) {
      stream = operation.stream;
      bytes = static_cast<int64_t>(operation.bytes);
      changes.push_back({operation.time_ns, stream, bytes});
    } else if (operation.kind == OperationKind::kFree) {
      const uint64_t done_ns = operation.done_ns == 0
                                   ? operation.time_ns
                                   : std::max(operation.time_ns + lag_ns, operation.done_ns);
      changes.push_back({done_ns, stream, -bytes});
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
  std::vector<Stream> streams(program.stream_is_default.size());
  int64_t least = 0;
  for (const Change& change : changes) {
    Stream& changed = streams[change.stream];
    while (!changed.uses.empty() && changed.uses.back().bytes <= changed.active) {
      changed.uses.pop_back();
    }
    changed.uses.push_back({change.time_ns + lag_ns, changed.active});
    changed.active += change.bytes;
    int64_t bound = 0;
    for (Stream& stream : streams) bound += stream.Bound(change.time_ns);
    least = std::max(least, bound);
  }
  return static_cast<Bytes>(least);
}

// One trace, and the replays of it.
class Subject {
 public:
  Subject(Program program, Config config)
      : program_(std::move(program)), config_(std::move(config)) {}

  absl::StatusOr<Json> Figures(int rounds) const {
    Json json = {{"events", program_.events},
                 {"span_ms", Milliseconds(program_.span_ns)},
                 {"peak_live_bytes", program_.peak_live_bytes},
                 {"native_segments", program_.segments.size()}};
    Json by_lag = Json::object();
    for (const uint64_t lag_ms : kLagsMs) {
      OFFCUT_ASSIGN_OR_RETURN(by_lag[absl::StrCat(lag_ms)], AtLag(lag_ms * kNsPerMs));
    }
    json["by_lag_ms"] = std::move(by_lag);
    OFFCUT_ASSIGN_OR_RETURN(json["first_growth"], FirstGrowth());
    OFFCUT_ASSIGN_OR_RETURN(json["speed"], Speed(rounds));
    return json;
  }

 private:
  absl::StatusOr<ReplayResult> Play(uint64_t lag_ns, Bytes cap = kNoLimit) const {
    return Replay(program_, {.config = config_, .cap = cap, .lag_ns = lag_ns});
  }

  absl::StatusOr<Json> AtLag(uint64_t lag_ns) const {
    OFFCUT_ASSIGN_OR_RETURN(const ReplayResult uncapped, Play(lag_ns));
    const Bytes least = LeastReservedWithoutWaits(program_, lag_ns);
    Json json = {{"least_reserved_without_waits_bytes", least},
                 {"live_over_least_reserved", 1 / OverLive(least)},
                 {"uncapped", WholeJson(uncapped)}};
    const uint64_t half_ns = program_.span_ns / 2;
    json["uncapped"]["second_half_remap_ms"] = Milliseconds(uncapped.second_half.remap_ns);
    json["uncapped"]["second_half_remap_over_its_span"] =
        Ratio(uncapped.second_half.remap_ns, half_ns);

    OFFCUT_ASSIGN_OR_RETURN(const Bytes no_waits, SmallestCap(lag_ns, /*waits_allowed=*/false));
    OFFCUT_ASSIGN_OR_RETURN(const Bytes completes, SmallestCap(lag_ns, /*waits_allowed=*/true));
    OFFCUT_ASSIGN_OR_RETURN(const ReplayResult smallest, Play(lag_ns, no_waits));
    json["smallest_cap"] = {{"bytes", no_waits},
                            {"over_live", OverLive(no_waits)},
                            {"over_live_with_waits", OverLive(completes)}};
    json["smallest_cap"].update(WholeJson(smallest));

    const auto cap = static_cast<Bytes>(1.02 * static_cast<double>(program_.peak_live_bytes));
    OFFCUT_ASSIGN_OR_RETURN(const ReplayResult capped, Play(lag_ns, cap));
    json["cap_1_02"] = WholeJson(capped);
    return json;
  }

  double OverLive(Bytes bytes) const {
    return Ratio(static_cast<double>(bytes), static_cast<double>(program_.peak_live_bytes));
  }

  // To kCapStep, by bisection between the peak of live, where it was not tried, and a cap that was.
  absl::StatusOr<Bytes> SmallestCap(uint64_t lag_ns, bool waits_allowed) const {
    Bytes below = RoundDown(program_.peak_live_bytes - 1, kCapStep);
    Bytes step = std::max<Bytes>(RoundUp(below / 128, kCapStep), kCapStep);
    Bytes enough = below;
    bool suffices = false;
    while (!suffices) {
      below = enough;
      enough += step;
      step *= 2;
      OFFCUT_ASSIGN_OR_RETURN(suffices, Suffices(lag_ns, enough, waits_allowed));
    }
    while (enough - below > kCapStep) {
      const Bytes middle = below + RoundDown((enough - below) / 2, kCapStep);
      OFFCUT_ASSIGN_OR_RETURN(suffices, Suffices(lag_ns, middle, waits_allowed));
      (suffices ? enough : below) = middle;
    }
    return enough;
  }

  absl::StatusOr<bool> Suffices(uint64_t lag_ns, Bytes cap, bool waits_allowed) const {
    OFFCUT_ASSIGN_OR_RETURN(const ReplayResult result, Play(lag_ns, cap));
    return result.completed() && (waits_allowed || result.whole.waits == 0);
  }

  // Creating, mapping and opening all granules, beside the cudaMalloc calls of the recorded run.
  absl::StatusOr<Json> FirstGrowth() const {
    OFFCUT_ASSIGN_OR_RETURN(const ReplayResult result, Play(0));
    uint64_t native_ns = 0;
    for (const RecordedSegment& segment : program_.segments) {
      native_ns += CudaMallocCostNs(segment.bytes);
    }
    return Json{{"ms", Milliseconds(result.whole.growth_ns)},
                {"over_span", Ratio(result.whole.growth_ns, result.span_ns)},
                {"native_cudamalloc_ms", Milliseconds(native_ns)}};
  }

  absl::StatusOr<Json> Speed(int rounds) const {
    std::vector<double> rates;
    for (int i = 0; i < rounds; ++i) {
      OFFCUT_ASSIGN_OR_RETURN(const ReplayResult result, Play(0));
      rates.push_back(Ratio(result.whole.events, result.cpu_seconds));
    }
    std::sort(rates.begin(), rates.end());
    return Json{{"rounds", rounds},
                {"events_per_second_median", rates[rates.size() / 2]},
                {"events_per_second_best", rates.back()}};
  }

  const Program program_;
  const Config config_;
};

absl::StatusOr<Json> FiguresOf(const std::string& path, const Config& config, int rounds) {
  OFFCUT_ASSIGN_OR_RETURN(Program program, LoadProgram(path));
  std::string name = std::filesystem::path(path).filename();
  Json json = {{"trace", name.substr(0, name.find('.'))}};
  OFFCUT_ASSIGN_OR_RETURN(const Json figures, Subject(std::move(program), config).Figures(rounds));
  json.update(figures);
  return json;
}

absl::Status Run(const std::vector<std::string>& arguments) {
  int rounds = 7;
  std::string conf;
  Json all = Json::array();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_option = arguments[i] == "--rounds" || arguments[i] == "--conf";
    if (is_option && ++i == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(arguments[i - 1], " has no value"));
    }
    if (is_option && arguments[i - 1] == "--conf") {
      conf = arguments[i];
    } else if (is_option) {
      if (!absl::SimpleAtoi(arguments[i], &rounds) || rounds < 1) {
        return absl::InvalidArgumentError("--rounds must be a number from 1");
      }
    } else {
      OFFCUT_ASSIGN_OR_RETURN(const Config config, Config::Parse({.offcut_conf = conf}));
      OFFCUT_ASSIGN_OR_RETURN(Json figures, FiguresOf(arguments[i], config, rounds));
      std::fprintf(stderr, "  %s\n", arguments[i].c_str());
      all.push_back(std::move(figures));
    }
  }
  std::printf("%s\n", all.dump(1).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace offcut

int main(int argc, char** argv) {
  const absl::Status status = offcut::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "replay_figures: %s\n", std::string(status.message()).c_str());
  return 1;
}
