// MemoryReport: why a request failed, as one structure and as text.
//
// Everything that the reader of an out-of-memory error needs: the request, what stood in its way,
// and where every byte of the device is. A value.

#ifndef OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_
#define OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_

#include <string>

#include "allocator/base/units.h"
#include "allocator/core/state_view.h"
#include "allocator/events/accounting.h"
#include "allocator/events/event.h"

namespace offcut {

struct MemoryReport {
  FailureReason reason{};
  DeviceIndex device = 0;
  std::string device_name;
  Bytes device_total_bytes = 0;
  Bytes requested = 0;
  Bytes limit = 0;  // kNoLimit: none
  uint32_t stream_index = 0;
  Accounting accounting;
  // Pinned and idle, once more, by whether this request's stream could use them.
  Bytes own_pinned_bytes = 0;
  Bytes own_idle_bytes = 0;
  Bytes own_largest_free = 0;
  Bytes other_largest_free = 0;
  std::string cause;       // what the driver said
  bool capturing = false;  // a stream is being captured, so nothing was waited for or given back

  // Fills in what a view tells: accounting and the split by pool.
  void AddState(const StateView& view, uint16_t own_pool, Bytes device_used_bytes);

  // Several lines, each ending in a newline but the last.
  std::string ToText() const;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_
