// TimedCall: makes a driver call of the slow path and states it as an event.

#ifndef OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_
#define OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_

#include <utility>

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
inline void EmitDriverCall(Emitter& emitter, DriverCall which, DevicePtr address, uint64_t start_ns,
                           const absl::Status& status) {
  const uint32_t cu_result = static_cast<uint32_t>(DriverErrorCode(status)) & 0xFFFFFF;
  emitter.Emit({.address = address,
                .bytes = emitter.clock().NowNs() - start_ns,
                .extra = static_cast<uint32_t>(which) | cu_result << 8,
                .kind = EventKind::kDriverCalled});
}

// Returns what `call` returns: a Status or a StatusOr.
template <typename Call>
auto TimedCall(Emitter& emitter, DriverCall which, DevicePtr address, Call&& call) {
  const uint64_t start_ns = emitter.clock().NowNs();
  auto result = std::forward<Call>(call)();
  EmitDriverCall(emitter, which, address, start_ns, StatusOf(result));
  return result;
}

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_TIMED_CALL_H_
