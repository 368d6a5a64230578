// Pool: the memory of one stream, or of one private pool and stream.
//
// Free memory never passes from one pool to another but by the layout that owns both, with proof
// that no work uses it. Each layout derives its own kind. Guarded by the device's lock; a Pool
// lives as long as its allocator, so a pointer to one outlasts a wait without the lock.
//
// Private pools neither give nor take memory while in use: a graph whose blocks lie in one may be
// launched on any stream, at any time, and nothing tells. Once released, and once the whole device
// was waited for after that, what is free in them goes back to the driver.

#ifndef OFFCUT_ALLOCATOR_CORE_POOL_H_
#define OFFCUT_ALLOCATOR_CORE_POOL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/core/stream_ledger.h"
#include "allocator/events/private_pool_id.h"

namespace offcut {

class Layout;
struct Pool;

// An allocator of somebody else's, that a private pool gets its segments from. Both are called
// without the device's lock; whoever holds it last destroys it, and never under that lock.
struct ForeignAllocator {
  // An address, a multiple of 512, of as many bytes that nobody else uses; 0: there is no memory.
  // An error is the request's own, and fails it.
  std::function<absl::StatusOr<DevicePtr>(Bytes)> allocate;
  // Takes back what `allocate` gave; the device is done with it.
  std::function<void(DevicePtr, Bytes)> free;
};

// What the pools of one private pool have in common. See private_pools.h.
struct PrivatePool {
  PrivatePoolId id;
  uint32_t uses = 0;         // retained and not yet released
  uint32_t routes = 0;       // that lead here now
  bool no_split = false;     // every block is a segment of its own
  bool use_on_oom = false;   // its free blocks serve requests that nothing else can serve
  std::vector<Pool*> pools;  // one for each stream that has asked
  std::shared_ptr<const ForeignAllocator> foreign;  // nullptr: its memory is ours

  bool in_use() const { return uses > 0 || routes > 0; }
};

struct Pool {
  Pool(uint16_t pool_index, StreamLedger::Stream& pool_stream, Layout& pool_layout)
      : index(pool_index), stream(pool_stream), layout(pool_layout) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  virtual ~Pool() = default;

  // Whether the device is done with what was freed here in `epoch` of the stream, so that it may
  // serve others or be unmapped. No event tells that of a private pool, only a wait for the device.
  bool IsIdle(uint64_t epoch) const {
    if (private_pool == nullptr) return epoch <= stream.idle_epoch;
    return !private_pool->in_use() && std::max(epoch, released_epoch) <= stream.device_idle_epoch;
  }

  const uint16_t index;
  StreamLedger::Stream& stream;
  Layout& layout;
  PrivatePool* private_pool = nullptr;  // nullptr: a default pool
  uint64_t released_epoch = 0;          // of the stream, when the private pool was released
  uint32_t climbers = 0;                // requests that climb the reclaim ladder for this pool now
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_POOL_H_
