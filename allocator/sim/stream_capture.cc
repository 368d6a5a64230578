// The part of StreamModel that captures streams into graphs.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/stream_model_impl.h"

namespace offcut::sim {
namespace {

thread_local CaptureMode thread_capture_mode = CaptureMode::kGlobal;

}  // namespace

// --- Impl ---

template <typename Visit>
void StreamModel::Impl::ForEachImplicit(const Stream& legacy, Visit visit) {
  if (captures.empty() || &legacy != &devices[legacy.device].legacy) return;
  ForEachStream([&](const Stream& other) {
    const bool captured = other.capture_id != 0 && other.device == legacy.device;
    if (captured && other.is_blocking()) visit(captures.find(other.capture_id)->second);
  });
}

bool StreamModel::Impl::IsImplicit(const Stream& stream) {
  bool found = false;
  ForEachImplicit(stream, [&](Capture&) { found = true; });
  return found;
}

absl::Status StreamModel::Impl::CheckImplicit(const Stream& stream, absl::string_view function) {
  if (!IsImplicit(stream)) return absl::OkStatus();
  ForEachImplicit(stream, [](Capture& capture) { capture.valid = false; });
  return DriverError(CudaResult::kStreamCaptureImplicit,
                     absl::StrCat(function,
                                  ": the legacy stream beside a blocking stream that is being "
                                  "captured; that capture is now invalid"));
}

absl::StatusOr<StreamModel::Impl::Capture*> StreamModel::Impl::FindCapture(
    const Stream& stream, absl::string_view function) {
  if (stream.capture_id == 0) return nullptr;
  Capture& capture = captures.find(stream.capture_id)->second;
  if (!capture.valid) {
    return DriverError(CudaResult::kStreamCaptureInvalidated,
                       absl::StrCat(function, ": the stream's capture was made invalid before"));
  }
  return &capture;
}

absl::StatusOr<StreamModel::Impl::Capture*> StreamModel::Impl::CheckSubmit(
    const Stream& stream, absl::string_view function) {
  if (captures.empty()) return nullptr;
  OFFCUT_RETURN_IF_ERROR(CheckImplicit(stream, function));
  return FindCapture(stream, function);
}

absl::Status StreamModel::Impl::CheckUnsafe(absl::string_view function) {
  if (captures.empty() || thread_capture_mode == CaptureMode::kRelaxed) return absl::OkStatus();
  const uint64_t thread = ThisThread();
  bool forbidden = false;
  for (auto& [id, capture] : captures) {
    const bool own = capture.thread == thread && capture.mode != CaptureMode::kRelaxed;
    const bool other = capture.thread != thread && capture.mode == CaptureMode::kGlobal &&
                       thread_capture_mode == CaptureMode::kGlobal;
    if (!own && !other) continue;
    capture.valid = false;
    forbidden = true;
  }
  if (!forbidden) return absl::OkStatus();
  return DriverError(CudaResult::kStreamCaptureUnsupported,
                     absl::StrCat(function,
                                  ": not allowed while a stream is being captured, in this "
                                  "thread's capture mode; that capture is now invalid"));
}

absl::Status StreamModel::Impl::CheckNotCaptured(const Stream& stream, absl::string_view function) {
  OFFCUT_ASSIGN_OR_RETURN(Capture * capture, FindCapture(stream, function));
  if (capture == nullptr) return absl::OkStatus();
  capture->valid = false;
  return DriverError(CudaResult::kStreamCaptureUnsupported,
                     absl::StrCat(function, ": the stream is being captured; not any more"));
}

absl::Status StreamModel::Impl::CheckNotCaptured(const Event& event, absl::string_view function) {
  if (event.capture_id == 0) return absl::OkStatus();
  if (const auto capture = captures.find(event.capture_id); capture != captures.end()) {
    capture->second.valid = false;
  }
  return DriverError(CudaResult::kCapturedEvent,
                     absl::StrCat(function, ": the event was last recorded in a capture"));
}

absl::Status StreamModel::Impl::CheckNoCapture(DeviceIndex device, absl::string_view function) {
  bool forbidden = false;
  for (auto& [id, capture] : captures) {
    if (capture.device != device) continue;
    capture.valid = false;
    forbidden = true;
  }
  if (!forbidden) return absl::OkStatus();
  return DriverError(CudaResult::kStreamCaptureUnsupported,
                     absl::StrCat(function, ": device ", device,
                                  " has a stream that is being captured; not any more"));
}

void StreamModel::Impl::AddNode(Stream& stream, Capture& capture) {
  ++graphs.Find(capture.graph)->nodes;
  stream.reach[stream.id] = ++stream.capture_nodes;
}

absl::Status StreamModel::Impl::WaitInCapture(Stream& stream, const Event& event) {
  constexpr absl::string_view kFunction = "cuStreamWaitEvent";
  if (event.capture_id == 0 || captures.find(event.capture_id) == captures.end()) {
    if (event.capture_id == 0 && !event.done_ns.has_value()) return absl::OkStatus();
    if (stream.capture_id == 0) return absl::OkStatus();  // of a capture that has ended
    captures.find(stream.capture_id)->second.valid = false;
    return DriverError(CudaResult::kStreamCaptureIsolation,
                       absl::StrCat(kFunction,
                                    ": the captured stream would wait for an event "
                                    "recorded outside of the capture"));
  }
  if (stream.capture_id == 0) {
    if (&stream == &devices[stream.device].legacy) {
      captures.find(event.capture_id)->second.valid = false;
      return DriverError(CudaResult::kStreamCaptureImplicit,
                         absl::StrCat(kFunction, ": the legacy stream cannot join a capture"));
    }
    stream.capture_id = event.capture_id;
    stream.capture_nodes = 0;
    stream.reach.clear();
  } else if (stream.capture_id != event.capture_id) {
    captures.find(stream.capture_id)->second.valid = false;
    captures.find(event.capture_id)->second.valid = false;
    return DriverError(CudaResult::kStreamCaptureMerge,
                       absl::StrCat(kFunction, ": would merge two captures"));
  }
  Extend(stream.reach, event.reach);
  return absl::OkStatus();
}

void StreamModel::Impl::Forget(uint64_t capture_id) {
  const auto it = captures.find(capture_id);
  if (!it->second.valid && it->second.owns_graph) graphs.Destroy(it->second.graph);
  captures.erase(it);
  ForEachStream([&](Stream& stream) {
    if (stream.capture_id == capture_id) stream.capture_id = 0;
  });
}

// --- Capture ---

CaptureMode StreamModel::ExchangeThreadCaptureMode(CaptureMode mode) {
  return std::exchange(thread_capture_mode, mode);
}

absl::Status StreamModel::BeginCapture(DeviceIndex device, StreamHandle stream, CaptureMode mode,
                                       GraphHandle graph) {
  constexpr absl::string_view kFunction = "cuStreamBeginCapture";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, kFunction));
  if (found == &impl_->devices[found->device].legacy) {
    return DriverError(CudaResult::kStreamCaptureUnsupported,
                       absl::StrCat(kFunction, ": the legacy stream cannot be captured"));
  }
  if (found->capture_id != 0) {
    return DriverError(CudaResult::kIllegalState,
                       absl::StrCat(kFunction, ": the stream is being captured already"));
  }
  if (graph != nullptr && impl_->graphs.Find(graph) == nullptr) {
    return DriverError(CudaResult::kInvalidValue, absl::StrCat(kFunction, ": no such graph"));
  }
  const bool owns_graph = graph == nullptr;
  if (owns_graph) graph = impl_->graphs.Create({.id = impl_->next_graph_id++});
  found->capture_id = impl_->next_capture_id++;
  found->capture_nodes = 0;
  found->reach.clear();
  impl_->captures.emplace(found->capture_id, Impl::Capture{.mode = mode,
                                                           .thread = Impl::ThisThread(),
                                                           .origin = found->id,
                                                           .device = found->device,
                                                           .graph = graph,
                                                           .owns_graph = owns_graph});
  return absl::OkStatus();
}

absl::StatusOr<GraphHandle> StreamModel::EndCapture(DeviceIndex device, StreamHandle stream) {
  constexpr absl::string_view kFunction = "cuStreamEndCapture";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * origin, impl_->Find(device, stream, kFunction));
  const auto it = impl_->captures.find(origin->capture_id);
  if (it == impl_->captures.end()) {
    return DriverError(CudaResult::kIllegalState,
                       absl::StrCat(kFunction, ": the stream is not being captured"));
  }
  Impl::Capture& capture = it->second;
  if (capture.origin != origin->id) {
    capture.valid = false;
    return DriverError(CudaResult::kStreamCaptureUnmatched,
                       absl::StrCat(kFunction, ": the capture began on another stream"));
  }
  if (capture.thread != Impl::ThisThread() && capture.mode != CaptureMode::kRelaxed) {
    return DriverError(CudaResult::kStreamCaptureWrongThread,
                       absl::StrCat(kFunction, ": the capture began on another thread"));
  }
  int error = capture.valid ? CudaResult::kSuccess : CudaResult::kStreamCaptureInvalidated;
  impl_->ForEachStream([&](const Impl::Stream& member) {
    if (member.capture_id != origin->capture_id || &member == origin || !capture.valid) return;
    const auto reach = origin->reach.find(member.id);
    const uint64_t joined_nodes = reach == origin->reach.end() ? 0 : reach->second;
    if (joined_nodes < member.capture_nodes) error = CudaResult::kStreamCaptureUnjoined;
  });
  const GraphHandle graph = capture.graph;
  capture.valid = error == CudaResult::kSuccess;
  impl_->Forget(origin->capture_id);
  if (error == CudaResult::kSuccess) return graph;
  return DriverError(error, absl::StrCat(kFunction, error == CudaResult::kStreamCaptureUnjoined
                                                        ? ": forked work was not joined"
                                                        : ": the capture was made invalid before"));
}

absl::StatusOr<CaptureInfo> StreamModel::GetCapture(DeviceIndex device, StreamHandle stream) {
  constexpr absl::string_view kFunction = "cuStreamIsCapturing";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Stream* found, impl_->Find(device, stream, kFunction));
  if (impl_->IsImplicit(*found)) {
    return DriverError(CudaResult::kStreamCaptureImplicit,
                       absl::StrCat(kFunction,
                                    ": the legacy stream beside a blocking stream that is being "
                                    "captured"));
  }
  const auto it = impl_->captures.find(found->capture_id);
  if (it == impl_->captures.end()) return CaptureInfo{};
  if (!it->second.valid) return CaptureInfo{.status = CaptureStatus::kInvalidated};
  return CaptureInfo{.status = CaptureStatus::kActive, .id = it->first, .graph = it->second.graph};
}

absl::Status StreamModel::CheckUnsafeCall(absl::string_view what) {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->CheckUnsafe(what);
}

// --- Graphs ---

absl::StatusOr<GraphHandle> StreamModel::CreateGraph() {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->graphs.Create({.id = impl_->next_graph_id++});
}

absl::StatusOr<uint64_t> StreamModel::GraphNodeCount(GraphHandle graph) {
  absl::MutexLock lock(&impl_->mutex);
  const Impl::Graph* found = impl_->graphs.Find(graph);
  if (found == nullptr) {
    return DriverError(CudaResult::kInvalidValue, "cuGraphGetNodes: no such graph");
  }
  return found->nodes;
}

absl::Status StreamModel::DestroyGraph(GraphHandle graph) {
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->graphs.Find(graph) == nullptr) {
    return DriverError(CudaResult::kInvalidValue,
                       "cuGraphDestroy: no such graph; never created, or destroyed before");
  }
  impl_->graphs.Destroy(graph);
  return absl::OkStatus();
}

absl::StatusOr<GraphExecHandle> StreamModel::InstantiateGraph(GraphHandle graph, bool auto_free) {
  absl::MutexLock lock(&impl_->mutex);
  const Impl::Graph* found = impl_->graphs.Find(graph);
  if (found == nullptr) {
    return DriverError(CudaResult::kInvalidValue, "cuGraphInstantiate: no such graph");
  }
  if (found->memory != nullptr && std::exchange(found->memory->is_instantiated, true)) {
    return DriverError(CudaResult::kNotSupported,
                       "cuGraphInstantiate: a graph with memory nodes has one executable graph");
  }
  Impl::Graph exec = *found;
  exec.auto_free = auto_free;
  return impl_->graph_execs.Create(std::move(exec));
}

absl::Status StreamModel::LaunchGraph(DeviceIndex device, GraphExecHandle exec,
                                      StreamHandle stream) {
  {
    absl::MutexLock lock(&impl_->mutex);
    const Impl::Graph* const found = impl_->graph_execs.Find(exec);
    if (found == nullptr) {
      return DriverError(CudaResult::kInvalidValue,
                         "cuGraphLaunch: no such executable graph; never made, or destroyed");
    }
    if (found->memory != nullptr) {
      if (!found->memory->launched.empty() && !found->auto_free) {
        return DriverError(CudaResult::kInvalidValue,
                           absl::StrCat("cuGraphLaunch: ", found->memory->launched.size(),
                                        " allocations of an earlier launch were not freed"));
      }
      found->memory->launched = found->memory->kept;
    }
  }
  return Submit(device, stream).status();
}

absl::Status StreamModel::DestroyGraphExec(GraphExecHandle exec) {
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->graph_execs.Find(exec) == nullptr) {
    return DriverError(CudaResult::kInvalidValue,
                       "cuGraphExecDestroy: no such executable graph; destroyed before?");
  }
  if (const auto& memory = impl_->graph_execs.Find(exec)->memory; memory != nullptr) {
    memory->is_instantiated = false;
  }
  impl_->graph_execs.Destroy(exec);
  return absl::OkStatus();
}

absl::Status StreamModel::AddAllocationNode(DeviceIndex device, StreamHandle stream,
                                            DevicePtr address) {
  constexpr char kFunction[] = "cuMemAllocAsync";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Capture * capture, impl_->FindCapture(*found, kFunction));
  if (capture == nullptr) {
    return DriverError(CudaResult::kIllegalState,
                       absl::StrCat(kFunction, ": the stream's capture has ended"));
  }
  impl_->AddNode(*found, *capture);
  Impl::Graph& graph = *impl_->graphs.Find(capture->graph);
  if (graph.memory == nullptr) {
    graph.memory = std::make_shared<Impl::GraphMemory>();
    impl_->graph_memory.emplace(graph.id, graph.memory);
  }
  graph.memory->kept.insert(address);
  return absl::OkStatus();
}

absl::StatusOr<StreamPoint> StreamModel::AddFreeNode(DeviceIndex device, StreamHandle stream,
                                                     DevicePtr address) {
  constexpr char kFunction[] = "cuMemFreeAsync";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Capture * capture, impl_->FindCapture(*found, kFunction));
  const Impl::Graph* const graph =
      capture != nullptr ? impl_->graphs.Find(capture->graph) : nullptr;
  if (graph == nullptr || graph->memory == nullptr || graph->memory->kept.erase(address) == 0) {
    return DriverError(CudaResult::kInvalidValue,
                       absl::StrCat(kFunction, ": not allocated in the graph of this capture"));
  }
  impl_->AddNode(*found, *capture);
  return StreamPoint{.stream = found->id,
                     .device = found->device,
                     .position = found->capture_nodes,
                     .graph = graph->id};
}

bool StreamModel::FreeLaunched(uint64_t graph, DevicePtr address) {
  absl::MutexLock lock(&impl_->mutex);
  const auto it = impl_->graph_memory.find(graph);
  return it != impl_->graph_memory.end() && it->second->launched.erase(address) != 0;
}

std::vector<uint64_t> StreamModel::TakeDeadGraphs() {
  absl::MutexLock lock(&impl_->mutex);
  std::vector<uint64_t> dead;
  for (const auto& [id, memory] : impl_->graph_memory) {
    if (memory.use_count() == 1 && memory->launched.empty()) dead.push_back(id);
  }
  for (const uint64_t id : dead) impl_->graph_memory.erase(id);
  return dead;
}

}  // namespace offcut::sim
