#include "allocator/sim/stream_model.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/stream_model_impl.h"

namespace offcut::sim {

// --- Impl: finding, order ---

uint64_t StreamModel::Impl::ThisThread() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t id = next.fetch_add(1, std::memory_order_relaxed);
  return id;
}

absl::StatusOr<StreamModel::Impl::Stream*> StreamModel::Impl::Find(DeviceIndex device,
                                                                   StreamHandle stream,
                                                                   absl::string_view function) {
  if (device < 0 || device >= static_cast<int>(devices.size())) {
    return DriverError(CudaResult::kInvalidDevice,
                       absl::StrCat(function, ": device ", device, " of ", devices.size()));
  }
  if (stream == nullptr || stream == LegacyStream()) return &devices[device].legacy;
  if (stream == PerThreadStream()) {
    const auto [it, is_new] = per_thread.try_emplace({device, ThisThread()});
    if (is_new) it->second = Stream{.id = next_stream_id++, .device = device};
    return &it->second;
  }
  Stream* found = streams.Find(stream);
  if (found == nullptr) {
    return DriverError(CudaResult::kInvalidHandle,
                       absl::StrFormat("%s(stream %p): no such stream; never created, or destroyed",
                                       function, stream));
  }
  return found;
}

absl::StatusOr<StreamModel::Impl::Event*> StreamModel::Impl::FindEvent(EventHandle event,
                                                                       absl::string_view function) {
  Event* found = events.Find(event);
  if (found == nullptr) {
    return DriverError(CudaResult::kInvalidHandle,
                       absl::StrFormat("%s(event %p): no such event; never created, or destroyed",
                                       function, event));
  }
  return found;
}

uint64_t StreamModel::Impl::StartNs(const Stream& stream) const {
  const Device& device = devices[stream.device];
  uint64_t start_ns = std::max(clock->NowNs() + lag_ns, stream.done_ns);
  if (&stream == &device.legacy) {
    start_ns = std::max(start_ns, device.blocking_done_ns);
  } else if (stream.is_blocking()) {
    start_ns = std::max(start_ns, device.legacy.done_ns);
  }
  return start_ns;
}

uint64_t StreamModel::Impl::WaitNs(const Stream& stream) const {
  const Device& device = devices[stream.device];
  return &stream == &device.legacy ? std::max(stream.done_ns, device.blocking_done_ns)
                                   : stream.done_ns;
}

void StreamModel::Impl::SetDone(Stream& stream, uint64_t done_ns) {
  Device& device = devices[stream.device];
  stream.done_ns = done_ns;
  device.done_ns = std::max(device.done_ns, done_ns);
  if (stream.is_blocking() && &stream != &device.legacy) {
    device.blocking_done_ns = std::max(device.blocking_done_ns, done_ns);
  }
}

void StreamModel::Impl::Learn(const Stream& stream) {
  if (!tracks_order) return;
  const auto learn = [this](const Stream& of) {
    Extend(known, of.order);
    Extend(known, {{of.id, of.position}});
  };
  learn(stream);
  if (&stream != &devices[stream.device].legacy) return;
  ForEachStream([&](const Stream& other) {
    if (other.device == stream.device && other.is_blocking()) learn(other);
  });
}

// --- Streams ---

StreamModel::StreamModel(int devices, uint64_t lag_ns, SimClock* clock)
    : impl_(std::make_unique<Impl>(clock)) {
  impl_->lag_ns = lag_ns;
  impl_->devices.resize(devices);
  for (DeviceIndex d = 0; d < devices; ++d) {
    impl_->devices[d].legacy = Impl::Stream{.id = impl_->next_stream_id++, .device = d};
  }
}

StreamModel::~StreamModel() = default;

void StreamModel::SetLagNs(uint64_t lag_ns) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->lag_ns = lag_ns;
}

uint64_t StreamModel::lag_ns() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->lag_ns;
}

absl::StatusOr<StreamHandle> StreamModel::CreateStream(DeviceIndex device,
                                                       const StreamOptions& options) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_RETURN_IF_ERROR(impl_->Find(device, nullptr, "cuStreamCreate").status());
  return impl_->streams.Create(
      Impl::Stream{.id = impl_->next_stream_id++, .device = device, .options = options});
}

absl::Status StreamModel::DestroyStream(StreamHandle stream) {
  absl::MutexLock lock(&impl_->mutex);
  const Impl::Stream* found = impl_->streams.Find(stream);
  if (found == nullptr) {
    return DriverError(CudaResult::kInvalidHandle,
                       absl::StrFormat("cuStreamDestroy(stream %p): no stream that was created, or "
                                       "destroyed before",
                                       stream));
  }
  if (const auto capture = impl_->captures.find(found->capture_id);
      capture != impl_->captures.end()) {
    capture->second.valid = false;
    if (capture->second.origin == found->id) impl_->Forget(found->capture_id);
  }
  impl_->streams.Destroy(stream);
  return absl::OkStatus();
}

absl::StatusOr<StreamInfo> StreamModel::GetStream(DeviceIndex device, StreamHandle stream) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Stream* found, impl_->Find(device, stream, "cuStreamGetId"));
  return StreamInfo{.id = found->id, .device = found->device, .options = found->options};
}

absl::StatusOr<Submission> StreamModel::Submit(DeviceIndex device, StreamHandle stream,
                                               uint64_t duration_ns) {
  constexpr absl::string_view kFunction = "submission";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Capture * capture, impl_->CheckSubmit(*found, kFunction));
  found->position = ++impl_->submissions;
  if (capture != nullptr) {
    impl_->AddNode(*found, *capture);
    return Submission{.captured = true};
  }
  impl_->SetDone(*found, impl_->StartNs(*found) + duration_ns);
  return Submission{.done_ns = found->done_ns};
}

absl::StatusOr<bool> StreamModel::QueryStream(DeviceIndex device, StreamHandle stream) {
  constexpr absl::string_view kFunction = "cuStreamQuery";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Stream* found, impl_->Find(device, stream, kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckImplicit(*found, kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckNotCaptured(*found, kFunction));
  return impl_->WaitNs(*found) <= impl_->clock->NowNs();
}

absl::Status StreamModel::SynchronizeStream(DeviceIndex device, StreamHandle stream) {
  constexpr absl::string_view kFunction = "cuStreamSynchronize";
  {
    absl::MutexLock lock(&impl_->mutex);
    OFFCUT_ASSIGN_OR_RETURN(const Impl::Stream* found, impl_->Find(device, stream, kFunction));
    OFFCUT_RETURN_IF_ERROR(impl_->CheckImplicit(*found, kFunction));
    OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(kFunction));
    OFFCUT_RETURN_IF_ERROR(impl_->CheckNotCaptured(*found, kFunction));
    impl_->clock->WaitUntil(impl_->WaitNs(*found));
    impl_->Learn(*found);
  }
  return impl_->EndWait();
}

absl::Status StreamModel::SynchronizeDevice(DeviceIndex device) {
  constexpr absl::string_view kFunction = "cuCtxSynchronize";
  {
    absl::MutexLock lock(&impl_->mutex);
    OFFCUT_RETURN_IF_ERROR(impl_->Find(device, nullptr, kFunction).status());
    OFFCUT_RETURN_IF_ERROR(impl_->CheckNoCapture(device, kFunction));
  }
  return WaitForDevice(device);
}

absl::Status StreamModel::WaitForDevice(DeviceIndex device) {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->clock->WaitUntil(impl_->devices[device].done_ns);
    impl_->devices[device].known_position = impl_->submissions;
  }
  return impl_->EndWait();
}

void StreamModel::SetWaitObserver(std::function<absl::Status()> observer) {
  impl_->wait_observer = std::move(observer);
}

// --- Events ---

absl::StatusOr<EventHandle> StreamModel::CreateEvent(DeviceIndex device,
                                                     const EventOptions& options) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_RETURN_IF_ERROR(impl_->Find(device, nullptr, "cuEventCreate").status());
  return impl_->events.Create(Impl::Event{.device = device, .options = options});
}

absl::Status StreamModel::DestroyEvent(EventHandle event) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_RETURN_IF_ERROR(impl_->FindEvent(event, "cuEventDestroy").status());
  impl_->events.Destroy(event);
  return absl::OkStatus();
}

absl::Status StreamModel::RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) {
  constexpr absl::string_view kFunction = "cuEventRecord";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Event * found, impl_->FindEvent(event, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * on, impl_->Find(device, stream, kFunction));
  if (found->device != on->device) {
    return DriverError(CudaResult::kInvalidHandle,
                       absl::StrCat(kFunction, ": an event of device ", found->device,
                                    " on a stream of device ", on->device));
  }
  OFFCUT_ASSIGN_OR_RETURN(Impl::Capture * capture, impl_->CheckSubmit(*on, kFunction));
  on->position = ++impl_->submissions;
  if (capture != nullptr) {
    found->done_ns.reset();
    found->capture_id = on->capture_id;
    found->reach = on->reach;
    return absl::OkStatus();
  }
  impl_->SetDone(*on, impl_->StartNs(*on));
  found->done_ns = on->done_ns;
  found->capture_id = 0;
  if (impl_->tracks_order) {
    found->order = on->order;
    found->order[on->id] = on->position;
  }
  return absl::OkStatus();
}

absl::Status StreamModel::RecordEventOnDevice(DeviceIndex device, EventHandle event) {
  constexpr absl::string_view kFunction = "cuCtxRecordEvent";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_RETURN_IF_ERROR(impl_->Find(device, nullptr, kFunction).status());
  OFFCUT_ASSIGN_OR_RETURN(Impl::Event * found, impl_->FindEvent(event, kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckNoCapture(device, kFunction));
  found->done_ns = std::max(impl_->devices[device].done_ns, impl_->clock->NowNs() + impl_->lag_ns);
  found->capture_id = 0;
  if (impl_->tracks_order) {
    found->order.clear();
    impl_->ForEachStream([&](const Impl::Stream& stream) {
      if (stream.device == device) found->order[stream.id] = stream.position;
    });
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StreamModel::QueryEvent(EventHandle event) {
  constexpr absl::string_view kFunction = "cuEventQuery";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* found, impl_->FindEvent(event, kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckNotCaptured(*found, kFunction));
  return found->done_ns.value_or(0) <= impl_->clock->NowNs();
}

absl::Status StreamModel::SynchronizeEvent(EventHandle event) {
  constexpr absl::string_view kFunction = "cuEventSynchronize";
  {
    absl::MutexLock lock(&impl_->mutex);
    OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* found, impl_->FindEvent(event, kFunction));
    OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(kFunction));
    OFFCUT_RETURN_IF_ERROR(impl_->CheckNotCaptured(*found, kFunction));
    impl_->clock->WaitUntil(found->done_ns.value_or(0));
    Extend(impl_->known, found->order);
  }
  return impl_->EndWait();
}

absl::StatusOr<bool> StreamModel::AwaitEvent(EventHandle event, uint64_t max_ns) {
  constexpr char kFunction[] = "cuEventQuery";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* found, impl_->FindEvent(event, kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(kFunction));
  OFFCUT_RETURN_IF_ERROR(impl_->CheckNotCaptured(*found, kFunction));
  const uint64_t now_ns = impl_->clock->NowNs();
  const uint64_t done_ns = found->done_ns.value_or(0);
  const bool done = done_ns <= now_ns || done_ns - now_ns <= max_ns;
  impl_->clock->WaitUntil(done ? done_ns : now_ns + max_ns);
  return done;
}

absl::Status StreamModel::StreamWaitEvent(DeviceIndex device, StreamHandle stream,
                                          EventHandle event) {
  constexpr absl::string_view kFunction = "cuStreamWaitEvent";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* found, impl_->FindEvent(event, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * on, impl_->Find(device, stream, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(Impl::Capture * capture, impl_->CheckSubmit(*on, kFunction));
  if (capture != nullptr || found->capture_id != 0) return impl_->WaitInCapture(*on, *found);
  if (!found->done_ns.has_value()) return absl::OkStatus();
  impl_->SetDone(*on, std::max(on->done_ns, *found->done_ns));
  Extend(on->order, found->order);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StreamModel::ElapsedNs(EventHandle start, EventHandle end) {
  constexpr absl::string_view kFunction = "cuEventElapsedTime";
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* first, impl_->FindEvent(start, kFunction));
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Event* second, impl_->FindEvent(end, kFunction));
  for (const Impl::Event* event : {first, second}) {
    if (!event->done_ns.has_value() || !event->options.timing) {
      return DriverError(
          CudaResult::kInvalidHandle,
          absl::StrCat(kFunction, ": an event that was not recorded, or has no timing"));
    }
    if (*event->done_ns > impl_->clock->NowNs()) {
      return DriverError(CudaResult::kNotReady, absl::StrCat(kFunction, ": an event is not done"));
    }
  }
  return static_cast<int64_t>(*second->done_ns - *first->done_ns);
}

// --- Points ---

absl::StatusOr<StreamOrder> StreamModel::OrderOf(DeviceIndex device, StreamHandle stream,
                                                 absl::string_view function) {
  StreamOrder order = HostOrder();
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Stream* found, impl_->Find(device, stream, function));
  OFFCUT_ASSIGN_OR_RETURN(const Impl::Capture* capture, impl_->CheckSubmit(*found, function));
  if (capture == nullptr) OFFCUT_RETURN_IF_ERROR(impl_->CheckUnsafe(function));
  order.stream_ = found->id;
  order.graph_ = capture != nullptr ? impl_->graphs.Find(capture->graph)->id : 0;
  order.reach_ = capture != nullptr ? found->reach : found->order;
  return order;
}

StreamOrder StreamModel::HostOrder() const {
  absl::MutexLock lock(&impl_->mutex);
  StreamOrder order;
  order.now_ns_ = impl_->clock->NowNs();
  order.known_ = impl_->known;
  for (const Impl::Device& device : impl_->devices) {
    order.device_known_.push_back(device.known_position);
  }
  return order;
}

absl::StatusOr<StreamPoint> StreamModel::MarkPoint(DeviceIndex device, StreamHandle stream) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, "a point"));
  impl_->tracks_order = true;
  found->position = ++impl_->submissions;
  impl_->SetDone(*found, impl_->StartNs(*found));
  return StreamPoint{.stream = found->id,
                     .device = found->device,
                     .position = found->position,
                     .done_ns = found->done_ns};
}

absl::Status StreamModel::WaitForPoint(DeviceIndex device, StreamHandle stream,
                                       const StreamPoint& point) {
  absl::MutexLock lock(&impl_->mutex);
  OFFCUT_ASSIGN_OR_RETURN(Impl::Stream * found, impl_->Find(device, stream, "a point"));
  impl_->SetDone(*found, std::max(found->done_ns, point.done_ns));
  Extend(found->order, {{point.stream, point.position}});
  return absl::OkStatus();
}

StreamCensus StreamModel::Census() const {
  absl::MutexLock lock(&impl_->mutex);
  return StreamCensus{.streams = impl_->streams.size(),
                      .events = impl_->events.size(),
                      .captures = impl_->captures.size(),
                      .graphs = impl_->graphs.size(),
                      .graph_execs = impl_->graph_execs.size(),
                      .submissions = impl_->submissions};
}

}  // namespace offcut::sim
