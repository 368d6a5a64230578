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
// Knows nothing of memory. Errors are DriverErrors (see driver.h) named after the CUDA function.
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_
#define OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_

#include <cstdint>
#include <memory>

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
  void WaitForDevice(DeviceIndex device);

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
  absl::StatusOr<GraphExecHandle> InstantiateGraph(GraphHandle graph);
  absl::Status LaunchGraph(DeviceIndex device, GraphExecHandle exec, StreamHandle stream);
  absl::Status DestroyGraphExec(GraphExecHandle exec);

  StreamCensus Census() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_STREAM_MODEL_H_
