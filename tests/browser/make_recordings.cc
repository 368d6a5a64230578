// make_recordings DIR [TRACE.csv...]: writes the recordings that the browser tests look at.
//
// All are made by the real Recorder, and read by `offcut report` as any other:
//   DIR/empty    a device that never allocated anything
//   DIR/small    a few events of each kind, a step, a failure, two streams
//   DIR/three    one process on three devices, of which the second reserves most; several chunks
//   DIR/torn     killed while recording: neither closed nor flushed
//   DIR/hostile  a device whose name is markup
//   DIR/<NAME>   from each TRACE.csv (see csv_trace.h)

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "allocator/base/status_macros.h"
#include "allocator/trace/recorder.h"
#include "tests/cli/csv_trace.h"

namespace offcut {
namespace {

constexpr Bytes kCard = 8 * kGiB;
constexpr DevicePtr kBase = DevicePtr{0x7f0000000000};

// A device's run, event by event, one millisecond apart.
class Script {
 public:
  Script& Add(Event event) {
    event.time_ns = 1'000'000 * ++ticks_;
    events_.push_back(event);
    return *this;
  }
  Script& Pool(uint16_t pool, uint32_t stream, uint64_t private_pool_id) {
    Add({.address = stream + 1, .extra = stream, .kind = EventKind::kStreamSeen});
    return Add(
        {.bytes = private_pool_id, .extra = stream, .pool = pool, .kind = EventKind::kPoolCreated});
  }
  Script& Grow(uint32_t id, Bytes bytes) {
    reserved_ += bytes;
    Add({.bytes = bytes, .extra = id, .kind = EventKind::kGranuleCreated});
    Add({.address = kBase + mapped_,
         .bytes = bytes,
         .extra = id,
         .kind = EventKind::kGranuleMapped});
    mapped_ += bytes;
    return Add(
        {.address = kCard, .bytes = reserved_ + 300 * kMiB, .kind = EventKind::kDeviceUsedSampled});
  }
  Script& Block(EventKind kind, Bytes offset, Bytes requested, uint16_t pool = 0) {
    return Add(
        {.address = kBase + offset,
         .bytes = requested,
         .extra = static_cast<uint32_t>(RoundUp(requested, kBlockAlignment) / kBlockAlignment),
         .pool = pool,
         .kind = kind});
  }
  Script& Step(uint64_t number) { return Add({.bytes = number, .kind = EventKind::kStepMarked}); }
  // `count` pairs of an allocation and its free, under a ceiling that rises and falls.
  Script& Churn(int count) {
    for (int i = 0; i < count; ++i) {
      const Bytes requested = 1000 + static_cast<Bytes>(i % 997) * 20'000;
      Block(EventKind::kBlockAllocated, 64 * kMiB, requested);
      Block(EventKind::kBlockFreed, 64 * kMiB, requested);
    }
    return *this;
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  std::vector<Event> events_;
  uint64_t ticks_ = 0;
  Bytes reserved_ = 0;
  Bytes mapped_ = 0;
};

Script SmallScript() {
  Script script;
  script.Pool(0, 0, 0).Pool(1, 1, 0).Grow(1, 64 * kMiB).Step(0);
  script.Block(EventKind::kBlockAllocated, 0, 10'000'001);
  script.Block(EventKind::kBlockAllocated, 16 * kMiB, 20'000'000);
  script.Block(EventKind::kBlockFreePended, 0, 10'000'001);
  script.Step(1).Grow(2, 32 * kMiB);
  script.Block(EventKind::kBlockAllocated, 64 * kMiB, 7'000'000, 1);
  script.Add({.bytes = kGiB, .kind = EventKind::kRequestFailed});
  script.Block(EventKind::kPendingFreeFinished, 0, 10'000'001);
  script.Block(EventKind::kBlockFreed, 16 * kMiB, 20'000'000).Step(2);
  return script;
}

absl::Status Emit(Recorder& recorder, DeviceIndex device, absl::string_view name,
                  const std::vector<Event>& events) {
  OFFCUT_ASSIGN_OR_RETURN(EventSink * sink, recorder.SinkFor(device, name, kCard));
  uint64_t since_flush = 0;
  for (Event event : events) {
    event.device = static_cast<uint8_t>(device);
    sink->OnEvent(event);
    // The writer is given time: a test that drops events would not know what to expect.
    if (++since_flush % (1 << 16) == 0) recorder.Flush();
  }
  return absl::OkStatus();
}

// One process's recording, whose devices run `runs`.
absl::Status Record(const std::filesystem::path& folder,
                    const std::vector<std::pair<std::string, std::vector<Event>>>& runs) {
  OFFCUT_ASSIGN_OR_RETURN(std::unique_ptr<Recorder> recorder,
                          Recorder::Start(folder.string(), "{}", Clock::Real()));
  DeviceIndex device = 0;
  for (const auto& [name, events] : runs) {
    OFFCUT_RETURN_IF_ERROR(Emit(*recorder, device++, name, events));
  }
  return absl::OkStatus();
}

absl::Status RecordTorn(const std::filesystem::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<Recorder>> recorder =
        Recorder::Start(folder.string(), "{}", Clock::Real());
    if (!recorder.ok() || !Emit(**recorder, 0, "Torn card", SmallScript().events()).ok()) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) {
    return absl::InternalError("the process that was to be killed ended in another way");
  }
  return absl::OkStatus();
}

absl::Status MakeAll(const std::filesystem::path& parent, const std::vector<std::string>& traces) {
  Script busy, idle;
  busy.Pool(0, 0, 0).Grow(1, 64 * kMiB).Grow(2, 64 * kMiB).Churn(100'000);
  busy.Block(EventKind::kBlockAllocated, 0, 5'000'000);
  idle.Pool(0, 0, 0).Grow(1, 2 * kMiB);
  OFFCUT_RETURN_IF_ERROR(Record(parent / "empty", {{"Empty card", {}}}));
  OFFCUT_RETURN_IF_ERROR(Record(parent / "small", {{"Small card", SmallScript().events()}}));
  OFFCUT_RETURN_IF_ERROR(Record(parent / "three", {{"Idle card", idle.events()},
                                                   {"Busy card", busy.events()},
                                                   {"Small card", SmallScript().events()}}));
  OFFCUT_RETURN_IF_ERROR(RecordTorn(parent / "torn"));
  OFFCUT_RETURN_IF_ERROR(Record(
      parent / "hostile", {{"</script><img src=x onerror=\"document.title='owned'\">\xff\u2028",
                            SmallScript().events()}}));
  for (const std::string& trace : traces) {
    OFFCUT_ASSIGN_OR_RETURN(const std::vector<Event> events, ReadCsvTrace(trace, {.steps = 16}));
    OFFCUT_RETURN_IF_ERROR(
        Record(parent / std::filesystem::path(trace).stem(), {{"NVIDIA H200", events}}));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace offcut

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_recordings DIR [TRACE.csv...]\n");
    return 2;
  }
  const absl::Status status =
      offcut::MakeAll(argv[1], std::vector<std::string>(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "make_recordings: %s\n", status.ToString().c_str());
  return 1;
}
