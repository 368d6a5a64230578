// StreamModel: streams, events, stream captures and graphs of the simulated devices: handles with
// an order in time.
//
// Work submitted to a stream at host time t is done at t + lag, plus its own duration, and not
// before the work ahead of it in the stream, nor before what the stream was told to wait for. The
// legacy default stream and blocking streams wait for each other as in CUDA. Nothing ever sleeps: a
// host that waits skips the clock forward. Handles are reused after destruction, stream ids never.
//
// A `stream` argument is a created handle, or nullptr / LegacyStream() / PerThreadStream(), which
// mean `device`'s; a created handle belongs to its own device, whatever `device` says.
//
// Of memory it knows only what is part of an order: points after which memory that was freed in a
// stream may be used again (StreamPoint, StreamOrder), and which addresses the nodes of a graph
// allocate and free. Errors are DriverErrors (see driver.h) named after the CUDA function.
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_
#define OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/base/units.h"
#include "allocator/sim/sim_clock.h"

// CUDA's tag types, declared and never defined here.
struct CUgraph_st;
struct CUgraphExec_st;

namespace offcut::sim {

using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;

// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
inline StreamHandle LegacyStream() { return reinterpret_cast<StreamHandle>(1); }
inline StreamHandle PerThreadStream() { return reinterpret_cast<StreamHandle>(2); }

// Numbers as CUstreamCaptureMode and CUstreamCaptureStatus.
enum class CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum class CaptureStatus { kNone = 0, kActive = 1, kInvalidated = 2 };

struct StreamOptions {
  bool non_blocking = false;  // does not wait for the legacy stream, nor it for this
  int priority = 0;
};

struct StreamInfo {
  StreamId id;
  DeviceIndex device;
  StreamOptions options;
};

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  uint64_t id = 0;  // of the capture, unique; 0 unless active
  GraphHandle graph = nullptr;
};

struct EventOptions {
  bool timing = true;
};

struct Submission {
  uint64_t done_ns = 0;   // when the work will be done
  bool captured = false;  // it became a node of a graph and never runs
};

// A point in a stream's order: after all that was submitted to it before. Of a stream that is being
// captured: in the order of its graph's nodes, not in time.
struct StreamPoint {
  StreamId stream = 0;  // 0: before everything
  DeviceIndex device = 0;
  uint64_t position = 0;  // rises with every submission
  uint64_t done_ns = 0;   // when all before it is done; not if captured
  uint64_t graph = 0;     // if captured: a number that no other graph gets

  bool is_always() const { return stream == 0; }
};

// How far into each stream something reaches: what it comes after. By stream id.
using StreamReach = absl::flat_hash_map<StreamId, uint64_t>;

// What is known at one moment of the order between points and what comes next: in one stream, or on
// the host.
class StreamOrder {
 public:
  // The graph that the stream is being captured into, or 0.
  uint64_t graph() const { return graph_; }
  bool IsOwn(const StreamPoint& point) const {
    return point.stream == stream_ && point.graph == graph_;
  }
  // Whether what is submitted to the stream now comes after `point`: that is of the same stream, or
  // the program made the stream wait for it by events.
  bool ComesAfter(const StreamPoint& point) const {
    if (point.is_always() || IsOwn(point)) return true;
    if (point.graph != graph_) return false;
    const auto it = reach_.find(point.stream);
    return it != reach_.end() && it->second >= point.position;
  }
  // Whether the host waited for it.
  bool HostKnowsDone(const StreamPoint& point) const {
    if (point.is_always()) return true;
    if (point.graph != 0) return false;
    if (device_known_[point.device] >= point.position) return true;
    const auto it = known_.find(point.stream);
    return it != known_.end() && it->second >= point.position;
  }
  // Whether the device has passed it, known to the host or not.
  bool IsDone(const StreamPoint& point) const {
    return point.is_always() || (point.graph == 0 && point.done_ns <= now_ns_);
  }

 private:
  friend class StreamModel;

  StreamId stream_ = 0;
  uint64_t graph_ = 0;
  uint64_t now_ns_ = 0;
  StreamReach reach_;                   // of the stream
  StreamReach known_;                   // to the host
  std::vector<uint64_t> device_known_;  // positions up to which the host waited for a whole device
};

struct StreamCensus {
  uint64_t streams = 0, events = 0, captures = 0, graphs = 0, graph_execs = 0;
  uint64_t submissions = 0;  // ever
};

class StreamModel {
 public:
  // `clock` must outlive the model.
  StreamModel(int devices, uint64_t lag_ns, SimClock* clock);
  ~StreamModel();

  void SetLagNs(uint64_t lag_ns);
  uint64_t lag_ns() const;

  // --- Streams ---
  absl::StatusOr<StreamHandle> CreateStream(DeviceIndex device, const StreamOptions& options);
  // The stream's work still gets done.
  absl::Status DestroyStream(StreamHandle stream);
  absl::StatusOr<StreamInfo> GetStream(DeviceIndex device, StreamHandle stream);
  // Work (a kernel, a copy, a graph) that runs for `duration_ns`.
  absl::StatusOr<Submission> Submit(DeviceIndex device, StreamHandle stream,
                                    uint64_t duration_ns = 0);
  // Whether all of the stream's work is done.
  absl::StatusOr<bool> QueryStream(DeviceIndex device, StreamHandle stream);
  absl::Status SynchronizeStream(DeviceIndex device, StreamHandle stream);
  absl::Status SynchronizeDevice(DeviceIndex device);
  // Waits for the device without being a CUDA call of its own: cudaFree does.
  absl::Status WaitForDevice(DeviceIndex device);
  // Called at the end of every wait of the host, which returns its error. Set before any other
  // thread uses the model.
  void SetWaitObserver(std::function<absl::Status()> observer);

  // --- Events ---
  absl::StatusOr<EventHandle> CreateEvent(DeviceIndex device, const EventOptions& options);
  absl::Status DestroyEvent(EventHandle event);
  absl::Status RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream);
  // cuCtxRecordEvent: done when all work submitted to the device so far is done.
  absl::Status RecordEventOnDevice(DeviceIndex device, EventHandle event);
  absl::StatusOr<bool> QueryEvent(EventHandle event);
  absl::Status SynchronizeEvent(EventHandle event);
  // Waits for the event or until `max_ns` from now, whichever comes first: whether the event is
  // done.
  absl::StatusOr<bool> AwaitEvent(EventHandle event, uint64_t max_ns);
  absl::Status StreamWaitEvent(DeviceIndex device, StreamHandle stream, EventHandle event);
  // Between two recorded, done events with timing. CUDA_ERROR_NOT_READY if one is not done.
  absl::StatusOr<int64_t> ElapsedNs(EventHandle start, EventHandle end);

  // --- Points, for memory that is freed and used again in stream order ---
  // For `function`, which is part of a stream's order: legal on a stream that is being captured,
  // unsafe elsewhere during captures (CheckUnsafeCall).
  absl::StatusOr<StreamOrder> OrderOf(DeviceIndex device, StreamHandle stream,
                                      absl::string_view function);
  // Of the host alone.
  StreamOrder HostOrder() const;
  // Requires: OrderOf succeeded, and the stream is not being captured.
  absl::StatusOr<StreamPoint> MarkPoint(DeviceIndex device, StreamHandle stream);
  absl::Status WaitForPoint(DeviceIndex device, StreamHandle stream, const StreamPoint& point);

  // --- Capture ---
  // The calling thread's mode for unsafe calls (cuThreadExchangeStreamCaptureMode).
  static CaptureMode ExchangeThreadCaptureMode(CaptureMode mode);
  // `graph`: captured into, or nullptr for a new one.
  absl::Status BeginCapture(DeviceIndex device, StreamHandle stream, CaptureMode mode,
                            GraphHandle graph = nullptr);
  // The graph is the caller's to destroy (unless given to BeginCapture).
  absl::StatusOr<GraphHandle> EndCapture(DeviceIndex device, StreamHandle stream);
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream beside a capture of a blocking stream;
  // the question does that capture no harm.
  absl::StatusOr<CaptureInfo> GetCapture(DeviceIndex device, StreamHandle stream);
  // For calls that CUDA calls potentially unsafe (cudaMalloc, cudaFree, queries, synchronous
  // copies): CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where a capture and the thread's mode forbid
  // them, and the captures concerned are invalid from then on. `what`: "cuMemAlloc".
  absl::Status CheckUnsafeCall(absl::string_view what);

  // --- Graphs ---
  absl::StatusOr<GraphHandle> CreateGraph();
  absl::StatusOr<uint64_t> GraphNodeCount(GraphHandle graph);
  absl::Status DestroyGraph(GraphHandle graph);
  // A graph with memory nodes has at most one executable graph. `auto_free`: a launch first frees
  // what an earlier one allocated and nobody freed.
  absl::StatusOr<GraphExecHandle> InstantiateGraph(GraphHandle graph, bool auto_free = false);
  absl::Status LaunchGraph(DeviceIndex device, GraphExecHandle exec, StreamHandle stream);
  absl::Status DestroyGraphExec(GraphExecHandle exec);
  // Memory nodes on a stream that is being captured; `address` was allocated in the same graph.
  absl::Status AddAllocationNode(DeviceIndex device, StreamHandle stream, DevicePtr address);
  absl::StatusOr<StreamPoint> AddFreeNode(DeviceIndex device, StreamHandle stream,
                                          DevicePtr address);
  // Frees, outside of captures, what the last launch of `graph` allocated and did not free; false
  // if there is no such memory.
  bool FreeLaunched(uint64_t graph, DevicePtr address);
  // Graphs with memory nodes that are gone, executable ones too, with nothing left to free; each
  // told once.
  std::vector<uint64_t> TakeDeadGraphs();

  StreamCensus Census() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_
