// TimedCall: makes a driver call of the slow path and states it as an event. CallLog: the same for
// calls that are made without the device's lock, and stated once it is held again.

#ifndef OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_
#define OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/driver.h"
#include "allocator/events/emitter.h"

namespace offcut {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

// A call that began at `start_ns` has returned `status`. `address`: what it was about, or 0.
inline Event DriverCallEvent(const Clock& clock, DriverCall which, DevicePtr address,
                             uint64_t start_ns, const absl::Status& status) {
  const uint32_t cu_result = static_cast<uint32_t>(DriverErrorCode(status)) & 0xFFFFFF;
  return {.address = address,
          .bytes = clock.NowNs() - start_ns,
          .extra = static_cast<uint32_t>(which) | cu_result << 8,
          .kind = EventKind::kDriverCalled};
}
inline void EmitDriverCall(Emitter& emitter, DriverCall which, DevicePtr address, uint64_t start_ns,
                           const absl::Status& status) {
  emitter.Emit(DriverCallEvent(emitter.clock(), which, address, start_ns, status));
}

// Returns what `call` returns: a Status or a StatusOr.
template <typename Call>
auto TimedCall(Emitter& emitter, DriverCall which, DevicePtr address, Call&& call) {
  const uint64_t start_ns = emitter.clock().NowNs();
  auto result = std::forward<Call>(call)();
  EmitDriverCall(emitter, which, address, start_ns, StatusOf(result));
  return result;
}

class CallLog {
 public:
  // `clock` outlives the log.
  explicit CallLog(const Clock& clock) : clock_(clock) {}

  // As TimedCall, but for the event. Needs no lock.
  template <typename Call>
  auto Time(DriverCall which, DevicePtr address, Call&& call) {
    const uint64_t start_ns = clock_.NowNs();
    auto result = std::forward<Call>(call)();
    events_.push_back(DriverCallEvent(clock_, which, address, start_ns, StatusOf(result)));
    return result;
  }
  // States the calls, in order.
  void EmitTo(Emitter& emitter) {
    for (const Event& event : events_) emitter.Emit(event);
    events_.clear();
  }

 private:
  const Clock& clock_;
  std::vector<Event> events_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_
