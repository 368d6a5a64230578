// MemoryReport: why a request failed, as one structure and as text.
//
// Everything that the reader of an out-of-memory error needs: the request, what stood in its way,
// and where every byte of the device is. A value.

#ifndef OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_
#define OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "allocator/base/units.h"
#include "allocator/core/state_view.h"
#include "allocator/events/accounting.h"
#include "allocator/events/event.h"

namespace offcut {

// The payload of a ResourceExhausted status that holds WholeText(); its message is ToText().
inline constexpr absl::string_view kWholeReportPayload = "offcut/memory-report";

struct MemoryReport {
  // What a pool holds.
  struct PoolFigures {
    uint16_t index = 0;
    uint64_t private_pool_id = 0;  // as encoded in events; 0: a default pool
    Bytes live = 0;                // as requested
    Bytes pending = 0;
    Bytes free = 0;
    Bytes largest_free = 0;
  };
  // A block that is alone in granules or a segment that could be given back, or moved, without it.
  struct PinningBlock {
    DevicePtr address = 0;
    Bytes requested = 0;
    uint16_t pool = 0;
    bool pending = false;
    Bytes pinned = 0;  // free bytes that it alone holds down
  };

  FailureReason reason{};
  DeviceIndex device = 0;
  std::string device_name;
  Bytes device_total_bytes = 0;
  Bytes requested = 0;
  Bytes growth = 0;  // by which reserved memory would have to grow for it, if nothing is moved
  Bytes limit = 0;   // on reserved and foreign memory; kNoLimit: none
  uint32_t stream_index = 0;
  uint16_t pool = 0;
  Accounting accounting;
  // Pinned, idle and the free memory of private pools, once more, by whether it is the pool's that
  // the request is for.
  Bytes own_pinned_bytes = 0;
  Bytes own_idle_bytes = 0;
  Bytes own_private_free_bytes = 0;
  Bytes own_largest_free = 0;
  Bytes other_largest_free = 0;
  std::string cause;          // what the driver, or the limit, said
  bool at_limit = false;      // the limit would not have allowed it either
  bool capturing = false;     // a stream is being captured, so nothing was waited for or given back
  bool wait_refused = false;  // CUDA refused a wait: a capture that we do not know is under way
  bool segments = false;      // the pool lies in segments of fixed sizes, not in an arena
  std::vector<PoolFigures> pools;     // those that hold something
  std::vector<PinningBlock> pinning;  // the worst first, kMostPinning at most

  static constexpr size_t kMostPinning = 10;

  // Fills in what a view tells: accounting, the splits, pools and pinning blocks.
  void AddState(const StateView& view, uint16_t own_pool, Bytes device_used_bytes);

  // For an exception: several lines, each ending in a newline but the last.
  std::string ToText() const;
  // The same and more: what each pool holds, what pins memory, and what would have helped.
  std::string WholeText() const;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_MEMORY_REPORT_H_
