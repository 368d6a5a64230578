#include "allocator/core/layout.h"

#include <algorithm>

#include "allocator/core/timed_call.h"

namespace offcut {

Bytes LayoutContext::SampleDeviceUsed() {
  const absl::StatusOr<MemoryInfo> info = TimedCall(emitter, DriverCall::kGetMemoryInfo, 0,
                                                    [&] { return driver.GetMemoryInfo(device); });
  // Without an answer the last sample stands.
  if (info.ok()) {
    emitter.Emit({.address = info->total_bytes,
                  .bytes = info->total_bytes - std::min(info->free_bytes, info->total_bytes),
                  .kind = EventKind::kDeviceUsedSampled});
  }
  return emitter.counters().device_used_bytes;
}

}  // namespace offcut
