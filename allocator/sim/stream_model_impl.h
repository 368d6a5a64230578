// What StreamModel is made of, shared by stream_model.cc (streams and events) and stream_capture.cc
// (captures and graphs). Nobody else includes it.

#ifndef OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_IMPL_H_
#define OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "allocator/sim/slot_table.h"
#include "allocator/sim/stream_model.h"

namespace offcut::sim {

// The later of both, stream by stream.
inline void Extend(StreamReach& reach, const StreamReach& by) {
  for (const auto& [id, position] : by) {
    uint64_t& reached = reach[id];
    reached = std::max(reached, position);
  }
}

struct StreamModel::Impl {
  struct Stream {
    StreamId id;
    DeviceIndex device;
    StreamOptions options = {};
    uint64_t done_ns = 0;     // when all of its work is done
    uint64_t position = 0;    // of its last submission
    StreamReach order = {};   // what it waited for, if the order is tracked
    uint64_t capture_id = 0;  // that it takes part in, or 0
    uint64_t capture_nodes = 0;
    StreamReach reach = {};  // in the capture

    bool is_blocking() const { return !options.non_blocking; }
  };

  struct Event {
    DeviceIndex device;
    EventOptions options = {};
    std::optional<uint64_t> done_ns = std::nullopt;  // of the last record
    StreamReach order = {};                          // what that came after, if tracked
    uint64_t capture_id = 0;                         // if that was captured
    StreamReach reach = {};
  };

  // Of one graph and its executable graph.
  struct GraphMemory {
    absl::flat_hash_set<DevicePtr> kept;      // allocated by its nodes and not freed by them
    absl::flat_hash_set<DevicePtr> launched;  // of those, what the last launch left to free
    bool is_instantiated = false;
  };

  struct Graph {
    uint64_t id;
    uint64_t nodes = 0;
    std::shared_ptr<GraphMemory> memory = nullptr;  // none without memory nodes
    bool auto_free = false;
  };

  struct Capture {
    CaptureMode mode;
    uint64_t thread;
    StreamId origin;
    DeviceIndex device;
    GraphHandle graph;
    bool owns_graph;
    bool valid = true;
  };

  struct Device {
    Stream legacy;
    uint64_t blocking_done_ns = 0;  // the latest of all blocking streams, destroyed ones too
    uint64_t done_ns = 0;           // the latest of all
    uint64_t known_position = 0;    // the last submission when the host waited for all
  };

  explicit Impl(SimClock* clock) : clock(clock) {}

  // Identifies the calling thread; never reused.
  static uint64_t ThisThread();

  absl::StatusOr<Stream*> Find(DeviceIndex device, StreamHandle stream, absl::string_view function);
  absl::StatusOr<Event*> FindEvent(EventHandle event, absl::string_view function);

  // --- Order ---
  // When work submitted to the stream now could start.
  uint64_t StartNs(const Stream& stream) const;
  // When all that a wait for the stream waits for is done.
  uint64_t WaitNs(const Stream& stream) const;
  void SetDone(Stream& stream, uint64_t done_ns);

  // What the host learns when it has waited for the stream.
  void Learn(const Stream& stream);
  // The end of a wait, without the lock.
  absl::Status EndWait() const { return wait_observer ? wait_observer() : absl::OkStatus(); }

  // --- Captures (stream_capture.cc) ---
  // Whether `stream` is a legacy stream beside a capture of a blocking stream.
  bool IsImplicit(const Stream& stream);
  // An error 906 if so, and the captures concerned are invalid from then on.
  absl::Status CheckImplicit(const Stream& stream, absl::string_view function);
  // The capture that `stream` takes part in, nullptr if none; an error if that is invalid.
  absl::StatusOr<Capture*> FindCapture(const Stream& stream, absl::string_view function);
  // CheckImplicit, then FindCapture: for everything that submits to a stream.
  absl::StatusOr<Capture*> CheckSubmit(const Stream& stream, absl::string_view function);
  absl::Status CheckUnsafe(absl::string_view function);
  // For calls that make no sense for captured work, and end its capture.
  absl::Status CheckNotCaptured(const Stream& stream, absl::string_view function);
  absl::Status CheckNotCaptured(const Event& event, absl::string_view function);
  // For calls that concern the whole device, and end every capture on it.
  absl::Status CheckNoCapture(DeviceIndex device, absl::string_view function);
  void AddNode(Stream& stream, Capture& capture);
  absl::Status WaitInCapture(Stream& stream, const Event& event);
  template <typename Visit>
  void ForEachImplicit(const Stream& legacy, Visit visit);
  // No stream takes part in it from then on.
  void Forget(uint64_t capture_id);
  template <typename Visit>
  void ForEachStream(Visit visit) {
    for (Device& device : devices) visit(device.legacy);
    for (auto& [key, stream] : per_thread) visit(stream);
    streams.ForEach(visit);
  }

  SimClock* const clock;
  mutable absl::Mutex mutex;
  uint64_t lag_ns = 0;
  std::vector<Device> devices;
  absl::node_hash_map<std::pair<DeviceIndex, uint64_t>, Stream> per_thread;
  SlotTable<StreamHandle, Stream> streams{0x6000'0000'0000};
  SlotTable<EventHandle, Event> events{0x6100'0000'0000};
  SlotTable<GraphHandle, Graph> graphs{0x6200'0000'0000};
  SlotTable<GraphExecHandle, Graph> graph_execs{0x6300'0000'0000};
  absl::flat_hash_map<uint64_t, Capture> captures;
  // By graph id; those of graphs that are gone until TakeDeadGraphs.
  absl::flat_hash_map<uint64_t, std::shared_ptr<GraphMemory>> graph_memory;
  std::function<absl::Status()> wait_observer;
  // Whether reaches are kept: from the first point on, for nobody asks about earlier ones.
  bool tracks_order = false;
  StreamReach known;  // to the host
  StreamId next_stream_id = 1;
  uint64_t next_capture_id = 1;
  uint64_t next_graph_id = 1;
  uint64_t submissions = 0;  // ever; the last one's position
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_IMPL_H_
