// The runtime's functions on streams, events, captures and graphs. Translation only.

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/simulation.h"

using offcut::sim::StreamInfo;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

template <typename Read>
cudaError_t ReadStream(cudaStream_t stream, const Read& read) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const StreamInfo info,
                            s.streams().GetStream(s.RuntimeDevice(), stream));
    read(info);
    return absl::OkStatus();
  });
}

absl::Status NotReadyUnless(bool done, const char* what) {
  return done ? absl::OkStatus() : Error(CUDA_ERROR_NOT_READY, what);
}

}  // namespace

extern "C" {

// --- Streams ---

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    if (flags > cudaStreamNonBlocking) {
      return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat("cudaStreamCreate: flags ", flags));
    }
    OFFCUT_ASSIGN_OR_RETURN(
        *stream, s.streams().CreateStream(
                     s.RuntimeDevice(),
                     {.non_blocking = (flags & cudaStreamNonBlocking) != 0, .priority = priority}));
    return absl::OkStatus();
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) { return s.streams().DestroyStream(stream); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return ReadStream(stream, [&](const StreamInfo& info) { *id = info.id; });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return ReadStream(stream, [&](const StreamInfo& info) { *priority = info.options.priority; });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return ReadStream(stream, [&](const StreamInfo& info) { *device = info.device; });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return ReadStream(stream, [&](const StreamInfo& info) {
    *flags = info.options.non_blocking ? cudaStreamNonBlocking : cudaStreamDefault;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const bool done, s.streams().QueryStream(s.RuntimeDevice(), stream));
    return NotReadyUnless(done, "cudaStreamQuery");
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.streams().SynchronizeStream(s.RuntimeDevice(), stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.streams().StreamWaitEvent(s.RuntimeDevice(), stream, event); });
}

// --- Events ---

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    constexpr unsigned int kKnown =
        cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if ((flags & ~kKnown) != 0) {
      return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat("cudaEventCreate: flags ", flags));
    }
    if ((flags & cudaEventInterprocess) != 0) {
      return Error(CUDA_ERROR_NOT_SUPPORTED, "events for other processes are not simulated");
    }
    OFFCUT_ASSIGN_OR_RETURN(
        *event, s.streams().CreateEvent(s.RuntimeDevice(),
                                        {.timing = (flags & cudaEventDisableTiming) == 0}));
    return absl::OkStatus();
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return AnswerRuntime([&](Simulation& s) { return s.streams().DestroyEvent(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.streams().RecordEvent(s.RuntimeDevice(), event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const bool done, s.streams().QueryEvent(event));
    return NotReadyUnless(done, "cudaEventQuery");
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return AnswerRuntime([&](Simulation& s) { return s.streams().SynchronizeEvent(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const int64_t elapsed_ns, s.streams().ElapsedNs(start, end));
    *milliseconds = static_cast<float>(static_cast<double>(elapsed_ns) / 1e6);
    return absl::OkStatus();
  });
}

// --- Capture ---

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return AnswerRuntime([&](Simulation&) {
    using Streams = offcut::sim::StreamModel;
    *mode = static_cast<cudaStreamCaptureMode>(
        Streams::ExchangeThreadCaptureMode(static_cast<offcut::sim::CaptureMode>(*mode)));
    return absl::OkStatus();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return AnswerRuntime([&](Simulation& s) {
    return s.streams().BeginCapture(s.RuntimeDevice(), stream,
                                    static_cast<offcut::sim::CaptureMode>(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    *graph = nullptr;
    OFFCUT_ASSIGN_OR_RETURN(*graph, s.streams().EndCapture(s.RuntimeDevice(), stream));
    return absl::OkStatus();
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* dependency_count) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const offcut::sim::CaptureInfo capture,
                            s.streams().GetCapture(s.RuntimeDevice(), stream));
    *status = static_cast<cudaStreamCaptureStatus>(capture.status);
    if (id != nullptr) *id = capture.id;
    if (graph != nullptr) *graph = capture.graph;
    if (dependencies != nullptr) *dependencies = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (dependency_count != nullptr) *dependency_count = 0;
    return absl::OkStatus();
  });
}

// --- Graphs: consistent, and when launched one piece of work that does nothing ---

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(*exec,
                            s.streams().InstantiateGraph(
                                graph, (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0));
    return absl::OkStatus();
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return AnswerRuntime(
      [&](Simulation& s) { return s.streams().LaunchGraph(s.RuntimeDevice(), exec, stream); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return AnswerRuntime([&](Simulation& s) { return s.streams().DestroyGraph(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return AnswerRuntime([&](Simulation& s) { return s.streams().DestroyGraphExec(exec); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return AnswerRuntime([&](Simulation& s) -> absl::Status {
    if (nodes != nullptr) {
      return Error(CUDA_ERROR_NOT_SUPPORTED, "the nodes of a graph are only counted");
    }
    OFFCUT_ASSIGN_OR_RETURN(*count, s.streams().GraphNodeCount(graph));
    return absl::OkStatus();
  });
}

}  // extern "C"
