// Accounting: where every byte that the device reports as used belongs, at one instant.
//
// A pure computation over plain lists, shared by the allocator's own report and by readers of
// recordings. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_EVENTS_ACCOUNTING_H_
#define OFFCUT_ALLOCATOR_EVENTS_ACCOUNTING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "allocator/base/units.h"

namespace offcut {

// Each byte counts for the first term that fits, so they add up exactly:
//   live + rounding + pending + private_pools_free + pinned + idle + driver_pool_free == reserved
//   reserved + outside == device_used
// Beside the sum: memory that private pools got from allocators of somebody else's. No term holds
// the blocks in it.
struct Accounting {
  Bytes live_bytes = 0;                // requested bytes of blocks that the program has not freed
  Bytes rounding_bytes = 0;            // the same blocks' size, minus live
  Bytes pending_bytes = 0;             // freed by the program, still used by a stream
  Bytes private_pools_free_bytes = 0;  // free bytes of private pools
  Bytes pinned_bytes = 0;              // free, in a granule that also holds a live or pending block
  Bytes idle_bytes = 0;                // the rest that we hold
  Bytes driver_pool_free_bytes = 0;    // held by the driver's own pools (async layout)
  // Device used minus reserved: context, other libraries, processes. Negative only when the sample
  // of device used is older than a growth, or for memory of graphs that have not been launched.
  int64_t outside_bytes = 0;
  Bytes reserved_bytes = 0;
  Bytes device_used_bytes = 0;  // as last sampled
  Bytes foreign_bytes = 0;      // beside the sum: the segments, whatever lies in them

  bool operator==(const Accounting&) const = default;
};

struct AccountedBlock {
  DevicePtr address = 0;
  Bytes size = 0;
  Bytes requested = 0;
  bool pending = false;
  bool in_private_pool = false;
};

struct AccountedGranule {
  DevicePtr address = 0;  // where it is mapped; 0: nowhere, so idle
  Bytes size = 0;
  bool in_private_pool = false;
};

// What pools of the driver hold for us. Whatever part of a block lies in no granule lies there.
struct AccountedDriverPools {
  Bytes reserved_bytes = 0;          // of those that serve default pools
  Bytes private_reserved_bytes = 0;  // of those that serve private pools

  void Add(Bytes bytes, bool in_private_pool) {
    (in_private_pool ? private_reserved_bytes : reserved_bytes) += bytes;
  }
};

// Both lists are sorted by address; blocks do not overlap, nor do mapped granules. Blocks in
// foreign memory are not among them, and the result's foreign_bytes are its caller's to fill in. A
// block that nothing stands behind (a recording with dropped events) counts as live or pending all
// the same, and breaks the sum.
Accounting ComputeAccounting(absl::Span<const AccountedBlock> blocks,
                             absl::Span<const AccountedGranule> granules,
                             const AccountedDriverPools& driver_pools, Bytes device_used_bytes);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_ACCOUNTING_H_
