// The driver's functions on streams, events, captures and graphs. Those whose runtime twin does the
// same forward to it: what they can fail with has the same number in both.

#include <type_traits>

#include "allocator/sim/cuda_abi/simulation.h"

using offcut::DeviceIndex;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

// Calls a function of the runtime, whose last error stays as it was. Needs a context, as the driver
// does.
template <typename... Parameters, typename... Arguments>
CUresult ByRuntime(cudaError_t (*function)(Parameters...), Arguments... arguments) {
  ThreadState& thread = CurrentThread();
  if (thread.context_depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const int before = thread.last_error;
  const cudaError_t error = function(static_cast<Parameters>(arguments)...);
  thread.last_error = before;
  return static_cast<CUresult>(error);
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return ByRuntime(cudaStreamCreateWithPriority, stream, flags, priority);
}
CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
CUresult cuStreamDestroy(CUstream stream) { return ByRuntime(cudaStreamDestroy, stream); }
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return ByRuntime(cudaStreamGetId, stream, id);
}
CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return ByRuntime(cudaStreamGetPriority, stream, priority);
}
CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return ByRuntime(cudaStreamGetFlags, stream, flags);
}
CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return ByRuntime(cudaStreamGetDevice, stream, device);
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex current, s.DriverDevice());
    OFFCUT_ASSIGN_OR_RETURN(const auto info, s.streams().GetStream(current, stream));
    *context = s.ContextOf(info.device);
    return absl::OkStatus();
  });
}
CUresult cuStreamQuery(CUstream stream) { return ByRuntime(cudaStreamQuery, stream); }
CUresult cuStreamSynchronize(CUstream stream) { return ByRuntime(cudaStreamSynchronize, stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return ByRuntime(cudaStreamWaitEvent, stream, event, flags);
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return ByRuntime(cudaLaunchHostFunc, stream, function, data);
}

// --- Events; CU_EVENT_... flags are the runtime's ---

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return ByRuntime(cudaEventCreateWithFlags, event, flags);
}
CUresult cuEventDestroy(CUevent event) { return ByRuntime(cudaEventDestroy, event); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return ByRuntime(cudaEventRecord, event, stream);
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int) {
  return cuEventRecord(event, stream);
}
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DeviceOfContext(context));
    return s.streams().RecordEventOnDevice(device, event);
  });
}
CUresult cuEventQuery(CUevent event) { return ByRuntime(cudaEventQuery, event); }
CUresult cuEventSynchronize(CUevent event) { return ByRuntime(cudaEventSynchronize, event); }
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return ByRuntime(cudaEventElapsedTime, milliseconds, start, end);
}

// --- Capture and graphs ---

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  auto runtime_mode = static_cast<cudaStreamCaptureMode>(*mode);
  cudaThreadExchangeStreamCaptureMode(&runtime_mode);
  *mode = static_cast<CUstreamCaptureMode>(runtime_mode);
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return ByRuntime(cudaStreamBeginCapture, stream, mode);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return ByRuntime(cudaStreamEndCapture, stream, graph);
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* dependency_count) {
  cudaStreamCaptureStatus runtime_status = cudaStreamCaptureStatusNone;
  unsigned long long runtime_id = 0;
  const CUresult result =
      ByRuntime(cudaStreamGetCaptureInfo, stream, &runtime_status, &runtime_id, graph, dependencies,
                static_cast<const cudaGraphEdgeData**>(nullptr), dependency_count);
  *status = static_cast<CUstreamCaptureStatus>(runtime_status);
  if (id != nullptr) *id = runtime_id;
  if (edges != nullptr) *edges = nullptr;
  return result;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return cuStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return ByRuntime(cudaGraphInstantiateWithFlags, exec, graph, flags);
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return ByRuntime(cudaGraphLaunch, exec, stream);
}
CUresult cuGraphDestroy(CUgraph graph) { return ByRuntime(cudaGraphDestroy, graph); }
CUresult cuGraphExecDestroy(CUgraphExec exec) { return ByRuntime(cudaGraphExecDestroy, exec); }

}  // extern "C"
