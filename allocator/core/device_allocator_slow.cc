// What DeviceAllocator does when no free block fits: climbing the reclaim ladder, waiting, failing.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/device_allocator.h"
#include "allocator/core/memory_report.h"
#include "allocator/core/timed_call.h"
#include "allocator/driver/driver.h"
#include "allocator/events/report_text.h"
#include "allocator/policy/sizes.h"

namespace offcut {

namespace {

// Whether the step begins with a wait.
bool Waits(ReclaimStep step) {
  switch (step) {
    case ReclaimStep::kMoveAfterWait:
    case ReclaimStep::kCollectGarbage:
    case ReclaimStep::kReleaseFitting:
    case ReclaimStep::kReleaseIdle:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<Block*> DeviceAllocator::ClimbReclaimLadderSlow(Pool& pool, Bytes requested) {
  absl::Status cause;
  bool wait_refused = false;
  NoteLargestLive();
  ++pool.climbers;
  const absl::Cleanup climbed = [&pool] { --pool.climbers; };
  for (const ReclaimStep step : pool.layout.ladder()) {
    if (!MayTakeStep(step, pool) || !pool.layout.Applies(step, pool, requested)) continue;
    emitter_.Emit({.bytes = requested,
                   .extra = static_cast<uint32_t>(step),
                   .pool = pool.index,
                   .kind = EventKind::kReclaimStepTaken});
    Block* block = nullptr;
    switch (step) {
      case ReclaimStep::kFreeMemoryCallbacks:
        if (CallFreeMemoryCallbackSlow()) block = pool.layout.Take(pool, requested);
        break;
      case ReclaimStep::kUseOnOom:
        block = TakeOnOomSlow(pool, requested);
        break;
      default: {
        const absl::Status taken = TakeStepSlow(step, pool, requested);
        // What is missing is memory still: that a step may not wait is no cause of its own.
        const bool refused = Waits(step) && absl::IsFailedPrecondition(taken);
        wait_refused |= refused;
        if (!refused) cause = taken;
        block = pool.layout.TakeAfterStep(pool, requested);
      }
    }
    if (block != nullptr) return block;
    // Only a lack of memory is mended by the further steps.
    if (!cause.ok() && !absl::IsResourceExhausted(cause)) break;
  }
  if (cause.ok()) cause = absl::ResourceExhaustedError("no step of the reclaim ladder helped");
  return FailSlow(pool, requested, cause, wait_refused);
}

bool DeviceAllocator::MayTakeStep(ReclaimStep step, const Pool& pool) const {
  switch (step) {
    case ReclaimStep::kFreeMemoryCallbacks:
      return free_memory_callback_ != nullptr;
    case ReclaimStep::kUseOnOom:
      return pool.private_pool == nullptr;
    // A wait ends a capture that is under way, and what was not waited for must stay.
    case ReclaimStep::kFinishPending:
      return streams_.has_pending() && !streams_.AnyCapturing();
    default:
      return !Waits(step) || !streams_.AnyCapturing();
  }
}

absl::Status DeviceAllocator::TakeStepSlow(ReclaimStep step, Pool& pool, Bytes requested) {
  switch (step) {
    case ReclaimStep::kFinishPending:
      WaitForPendingSlow();
      break;
    case ReclaimStep::kMoveAfterWait:
      return MoveAfterWaitSlow(pool, requested);
    case ReclaimStep::kCollectGarbage:
    case ReclaimStep::kReleaseFitting:
      if (!pool.layout.ReleaseWaits()) OFFCUT_RETURN_IF_ERROR(WaitForDeviceSlow());
      break;
    case ReclaimStep::kReleaseIdle:
      OFFCUT_RETURN_IF_ERROR(WaitToReleaseSlow());
      ReleaseAllIdle();
      ReturnForeignSlow();
      break;
    default:
      break;
  }
  if (&pool.layout == foreign_layout_) return GrowForeignSlow(pool, requested);
  return pool.layout.TakeStep(step, pool, requested);
}

bool DeviceAllocator::CallFreeMemoryCallbackSlow() {
  const std::function<bool()> callback = free_memory_callback_;
  mutex_.Unlock();
  const bool freed = callback();
  mutex_.Lock();
  return freed;
}

// Peaks may be reset by the program; what the soft target goes by may not.
void DeviceAllocator::NoteLargestLive() {
  const Counters& counters = emitter_.counters();
  Bytes live = static_cast<Bytes>(counters.live_bytes[0].peak);
  // What lies in foreign memory needs none of ours; how much of it there was at the peak is not
  // known, so there what lives now is what counts.
  if (counters.foreign_bytes[0].peak > 0) {
    live = static_cast<Bytes>(counters.live_bytes[0].current) - foreign_layout_->LiveBytes();
  }
  context_.largest_live = std::max(context_.largest_live, live);
}

// --- Waiting -------------------------------------------------------------------------------------

absl::Status DeviceAllocator::CheckNothingIsCaptured() const {
  if (!streams_.AnyCapturing()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a stream is being captured into a CUDA graph, which a wait for the device would end");
}

absl::Status DeviceAllocator::WaitToReleaseSlow() {
  for (const std::unique_ptr<Layout>& layout : layouts_) layout->RetryFrees();
  OFFCUT_RETURN_IF_ERROR(WaitForDeviceSlow());
  bool any = false;
  for (const std::unique_ptr<Layout>& layout : layouts_) any |= layout->RetryFrees();
  return any ? WaitForDeviceSlow() : absl::OkStatus();
}

absl::Status DeviceAllocator::WaitForDeviceSlow() {
  OFFCUT_RETURN_IF_ERROR(CheckNothingIsCaptured());
  // Records what a capture put off.
  streams_.Poll([this](Block* block) { FinishPendingFree(block); });
  for (const DeviceIndex peer : streams_.PeersToWaitFor()) WaitForOneDeviceSlow(peer).IgnoreError();
  for (const StreamLedger::RecordedEvent recorded : streams_.EventsOfPending()) {
    if (recorded.device != device_) WaitForEventSlow(recorded);
  }
  // Unmapping waits for nobody, and a free block may still be in use by its own stream: only an
  // idle device proves that no kernel touches what goes. What is freed during the wait is not
  // proven.
  return WaitForOneDeviceSlow(device_);
}

absl::Status DeviceAllocator::WaitForOneDeviceSlow(DeviceIndex device) {
  const auto finish = [this](Block* block) { FinishPendingFree(block); };
  StreamLedger::DeviceWait wait = streams_.BeginDeviceWait(device, finish);
  const WaitForPeer wait_for_peer = device != device_ ? wait_for_peer_ : nullptr;
  const uint64_t start_ns = emitter_.clock().NowNs();
  mutex_.Unlock();
  const absl::Status waited =
      wait_for_peer ? wait_for_peer(device) : driver_.SynchronizeDevice(device);
  mutex_.Lock();
  EmitDriverCall(emitter_, DriverCall::kSynchronizeDevice, 0, start_ns, waited);
  if (waited.ok() && device == device_) {
    emitter_.Emit({.bytes = emitter_.clock().NowNs() - start_ns, .kind = EventKind::kDeviceWaited});
  }
  streams_.EndDeviceWait(std::move(wait), waited.ok(), finish);
  return waited;
}

absl::Status DeviceAllocator::WaitForDevice() {
  DeviceMutexLock lock(&mutex_);
  OFFCUT_RETURN_IF_ERROR(CheckNothingIsCaptured());
  return WaitForOneDeviceSlow(device_);
}

void DeviceAllocator::SetWaitForPeer(WaitForPeer wait) {
  DeviceMutexLock lock(&mutex_);
  wait_for_peer_ = std::move(wait);
}

void DeviceAllocator::WaitForPendingSlow() {
  const auto poll = [this] { streams_.Poll([this](Block* block) { FinishPendingFree(block); }); };
  poll();
  for (const StreamLedger::RecordedEvent recorded : streams_.EventsOfPending()) {
    WaitForEventSlow(recorded);
  }
  poll();
}

void DeviceAllocator::WaitForEventSlow(StreamLedger::RecordedEvent recorded) {
  const uint64_t start_ns = emitter_.clock().NowNs();
  mutex_.Unlock();
  const absl::Status waited = driver_.SynchronizeEvent(recorded.device, recorded.event);
  mutex_.Lock();
  EmitDriverCall(emitter_, DriverCall::kSynchronizeEvent, 0, start_ns, waited);
}

absl::Status DeviceAllocator::MoveAfterWaitSlow(Pool& pool, Bytes requested) {
  // What one request may stall for. Longer than a device runs behind its host; and bounded, since
  // what an event waits for may wait for the host's next call (a send for its receive).
  constexpr uint64_t kMostNs = 200'000'000;
  absl::Status status = absl::ResourceExhaustedError("nothing to wait for");
  const Layout::WaitPlan plan = pool.layout.PlanWait(pool, requested);
  if (!plan.worthwhile) return status;
  const uint64_t start_ns = emitter_.clock().NowNs();
  for (uint64_t passed_ns = 0; passed_ns < kMostNs;
       passed_ns = emitter_.clock().NowNs() - start_ns) {
    const StreamLedger::RecordedEvent oldest = streams_.OldestEvent(plan.streams);
    if (oldest.event == nullptr) break;
    if (!AwaitEventSlow(oldest, kMostNs - passed_ns)) break;
    streams_.Poll([this](Block* block) { FinishPendingFree(block); });
    for (StreamLedger::Stream* stream : plan.streams) streams_.PollEpochs(*stream);
    status = pool.layout.TakeStep(ReclaimStep::kMoveAfterWait, pool, requested);
    if (!absl::IsResourceExhausted(status)) break;
  }
  return status;
}

bool DeviceAllocator::AwaitEventSlow(StreamLedger::RecordedEvent recorded, uint64_t max_ns) {
  const uint64_t start_ns = emitter_.clock().NowNs();
  mutex_.Unlock();
  const absl::StatusOr<bool> done = driver_.AwaitEvent(recorded.device, recorded.event, max_ns);
  mutex_.Lock();
  EmitDriverCall(emitter_, DriverCall::kAwaitEvent, 0, start_ns, done.status());
  return done.ok() && *done;
}

// --- Failing -------------------------------------------------------------------------------------

absl::Status DeviceAllocator::FailSlow(const Pool& pool, Bytes requested, const absl::Status& cause,
                                       bool wait_refused) {
  FailureReason reason = FailureReason::kDriverError;
  Bytes device_used = 0;
  const bool servable = requested > 0 && requested <= policy::kRequestMax;
  const Bytes growth = servable ? pool.layout.GrowthFor(requested) : 0;
  const bool at_limit = context_.reserved_bytes() + growth > context_.limit;
  if (absl::IsResourceExhausted(cause)) {
    // Where the driver was asked, it is the device that has no more.
    const bool by_driver = DriverErrorCode(cause) > 0;
    reason = at_limit && !by_driver ? FailureReason::kLimit : FailureReason::kOutOfMemory;
    for (const std::unique_ptr<Layout>& layout : layouts_) layout->Refresh();
    device_used = context_.SampleDeviceUsed();
  } else if (absl::IsOutOfRange(cause)) {
    reason = FailureReason::kTooLarge;
  } else if (&pool.layout == foreign_layout_) {
    reason = FailureReason::kForeignAllocator;
  }
  emitter_.Emit({.bytes = requested,
                 .extra = static_cast<uint32_t>(reason),
                 .pool = pool.index,
                 .kind = EventKind::kRequestFailed});
  switch (reason) {
    case FailureReason::kOutOfMemory:
    case FailureReason::kLimit: {
      MemoryReport report = {.reason = reason,
                             .device = device_,
                             .device_name = properties_.name,
                             .device_total_bytes = properties_.total_bytes,
                             .requested = requested,
                             .growth = growth,
                             .limit = limit_,
                             .stream_index = pool.stream.index,
                             .cause = std::string(cause.message()),
                             .at_limit = at_limit && reason != FailureReason::kLimit,
                             .capturing = streams_.AnyCapturing(),
                             .wait_refused = wait_refused,
                             .segments = &default_layout() == private_layout_};
      report.AddState(ViewLocked(), pool.index, device_used);
      const std::string whole = report.WholeText();
      if (MayRecordReport()) {
        EmitReportText(whole, [this](const Event& part) { emitter_.Emit(part); });
      }
      absl::Status failed = absl::ResourceExhaustedError(report.ToText());
      failed.SetPayload(kWholeReportPayload, absl::Cord(whole));
      return failed;
    }
    case FailureReason::kTooLarge:
      return absl::InvalidArgumentError(
          absl::StrCat("a request of ", requested, " bytes cannot be served by any device"));
    case FailureReason::kDriverError:
    case FailureReason::kForeignAllocator:
      return absl::Status(cause.code(),
                          absl::StrCat("a request of ", requested, " bytes on device ", device_,
                                       " failed: ", cause.message()));
  }
  return cause;
}

// A program that catches such errors and goes on may have thousands of them a second.
bool DeviceAllocator::MayRecordReport() {
  constexpr uint32_t kAtOnce = 64;
  constexpr uint64_t kOneMoreEachNs = 1'000'000'000;
  const uint64_t now_ns = emitter_.clock().NowNs();
  const uint64_t more = (now_ns - reports_counted_ns_) / kOneMoreEachNs;
  reports_counted_ns_ += more * kOneMoreEachNs;
  reports_recorded_ -= static_cast<uint32_t>(std::min<uint64_t>(more, reports_recorded_));
  if (reports_recorded_ == kAtOnce) return false;
  ++reports_recorded_;
  return true;
}

}  // namespace offcut
