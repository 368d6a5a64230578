// PoolModel: the driver's pools of stream-ordered memory (cuMemPoolCreate, cuMemAllocAsync).
//
// A pool is address space that chunks of 32 MiB are mapped into as needed, as on an H100. What is
// freed in a stream may be used again by that stream at once; by another stream once the host
// knows it is done, or as the pool's reuse options allow: after events that the stream waited for,
// when the device happens to have passed the free, or, if there is no more memory to be had, by
// making the stream wait. Whenever the host has waited for something, chunks beyond the release
// threshold go back to the device; memory that is short takes idle chunks of all pools (Reclaim).
//
// Of a stream that is being captured, an allocation is a node of its graph: memory of the graph's
// own, in use from the capture on (hardware: from the first launch) until the graph and its
// executable are gone. Such memory is reused only within the graph, in its nodes' order.
//
// Stricter than hardware: an allocation of nothing, and work that still uses memory that was freed
// without order, are errors. Errors are DriverErrors (see driver.h) named after the CUDA function.
// Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_POOL_MODEL_H_
#define OFFCUT_ALLOCATOR_SIM_POOL_MODEL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/memory_model.h"
#include "allocator/sim/slot_table.h"
#include "allocator/sim/stream_model.h"

namespace offcut::sim {

// An allocation of a pool.
struct PoolAllocation {
  DevicePtr base;
  Bytes bytes;
  DeviceIndex device;
  uint64_t buffer_id;  // unique among all pools' allocations
};

class PoolModel {
 public:
  static constexpr Bytes kChunkBytes = 32 * kMiB;

  // The models must outlive this one.
  PoolModel(const SimOptions& machine, MemoryModel* memory, StreamModel* streams);
  ~PoolModel();

  // --- Pools: unsafe calls during captures (see StreamModel) ---
  // `bytes_max`: of memory held; 0: no limit.
  absl::StatusOr<DriverPool> CreatePool(DeviceIndex device, Bytes bytes_max = 0);
  // What was allocated in it lives on until it is freed.
  absl::Status DestroyPool(DriverPool pool);
  // The one that every device has, and the one that Allocate takes without a pool.
  absl::StatusOr<DriverPool> GetDefaultPool(DeviceIndex device);
  absl::StatusOr<DriverPool> GetCurrentPool(DeviceIndex device);
  absl::Status SetCurrentPool(DeviceIndex device, DriverPool pool);
  absl::StatusOr<DriverPoolOptions> GetOptions(DriverPool pool);
  absl::Status SetOptions(DriverPool pool, const DriverPoolOptions& options);
  absl::StatusOr<DriverPoolUsage> GetUsage(DriverPool pool);
  // The maxima become the current values.
  absl::Status ResetReservedMax(DriverPool pool);
  absl::Status ResetUsedMax(DriverPool pool);
  absl::Status Trim(DriverPool pool, Bytes keep_bytes);
  // Of the whole pool, now and later. Its own device always has access.
  absl::Status SetAccess(DriverPool pool, DeviceIndex device, Access access);
  absl::StatusOr<Access> GetAccess(DriverPool pool, DeviceIndex device);

  // --- Memory, in the order of `stream` ---
  // `pool` nullptr: the current pool of `device`.
  absl::StatusOr<DevicePtr> Allocate(DriverPool pool, Bytes bytes, DeviceIndex device,
                                     StreamHandle stream);
  absl::Status Free(DevicePtr address, DeviceIndex device, StreamHandle stream);
  // cuMemFree, after the wait for the device.
  absl::Status FreeAfterWait(DevicePtr address);

  // --- Questions, and what others ask of it ---
  std::optional<PoolAllocation> Find(DevicePtr address) const;
  // Whether the address lies in a pool's address space, allocated or not.
  bool IsPoolAddress(DevicePtr address) const;
  // What all graphs hold.
  Bytes GraphBytes() const;
  // Gives back what the device's pools can spare; whether that was anything.
  bool Reclaim(DeviceIndex device);
  // Gives back the memory of graphs that are gone; happens by itself at the next call too.
  void TrimGraphs();

 private:
  struct FreeRange {
    Bytes bytes;
    StreamPoint point;  // after which it may be used
  };
  struct Pool {
    DeviceIndex device;
    Bytes bytes_max = 0;
    DriverPoolOptions options = {};
    bool is_default = false;
    bool is_destroyed = false;
    uint64_t allocations = 0;
    DriverPoolUsage usage = {};
    std::vector<std::pair<DevicePtr, Bytes>> arenas = {};  // reserved
    absl::btree_map<DevicePtr, FreeRange> free = {};       // with allocations, tiles the arenas
    // Mapped chunks, neighbours as one: start and end. The mappings hold the memory.
    absl::btree_map<DevicePtr, DevicePtr> mapped = {};
    std::vector<std::pair<DeviceIndex, Access>> peers = {};
    DriverPool handle = nullptr;
  };
  struct Allocation {
    Pool* pool;
    Bytes bytes;     // as asked for
    uint64_t graph;  // that it belongs to, or 0
    uint64_t buffer_id;
    Bytes span_bytes() const { return RoundUp(bytes, kBlockAlignment); }
  };
  struct Place {
    DevicePtr address;
    uint64_t new_chunks;  // to be mapped for it
    Bytes room_bytes;     // of the mapped run that it is taken from
  };
  using MayUse = absl::FunctionRef<bool(const StreamPoint&)>;

  absl::StatusOr<Pool*> FindPool(DriverPool pool, absl::string_view function)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DriverPool AddPool(Pool pool) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DevicePtr> TakeSpace(Pool& pool, Bytes span_bytes, const StreamOrder& order,
                                      DeviceIndex device, StreamHandle stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the best place that `may_use` allows and maps what it lacks. `points`: gets those of what
  // was taken.
  absl::StatusOr<DevicePtr> TryTake(Pool& pool, Bytes span_bytes, MayUse may_use,
                                    std::vector<StreamPoint>* points = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::optional<Place> FindPlace(const Pool& pool, Bytes span_bytes, MayUse may_use);
  absl::Status ReserveArena(Pool& pool, Bytes bytes_min) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MapChunks(Pool& pool, DevicePtr address, Bytes bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MapChunk(Pool& pool, DevicePtr address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UnmapChunk(Pool& pool, DevicePtr address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void InsertFree(Pool& pool, DevicePtr address, FreeRange range);
  // Free ranges whose point `is_done` may be used by anyone from then on.
  static void Settle(Pool& pool, MayUse is_done);
  // Unmaps chunks that anyone may use, while at least `keep_bytes` are left.
  absl::Status ReleaseChunks(Pool& pool, Bytes keep_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReclaimLocked(DeviceIndex device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnWaited();
  void ForgetDeadGraphs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The end of destroyed pools that nothing is allocated in and whose memory is idle.
  void DissolveDestroyedPools() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it was possible.
  bool Dissolve(Pool& pool) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SimOptions machine_;
  MemoryModel& memory_;
  StreamModel& streams_;

  // Whether there was ever a pool: without, nothing needs the lock.
  std::atomic<bool> is_used_{false};
  mutable absl::Mutex mutex_;
  SlotTable<DriverPool, Pool> pools_ ABSL_GUARDED_BY(mutex_){0x6400'0000'0000};
  std::vector<DriverPool> default_pools_ ABSL_GUARDED_BY(mutex_);  // by device
  std::vector<DriverPool> current_pools_ ABSL_GUARDED_BY(mutex_);
  absl::node_hash_map<uint64_t, Pool> graph_pools_ ABSL_GUARDED_BY(mutex_);  // by graph
  absl::btree_map<DevicePtr, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<DevicePtr, Bytes> arenas_ ABSL_GUARDED_BY(mutex_);  // of all pools
  uint64_t next_buffer_id_ ABSL_GUARDED_BY(mutex_) = uint64_t{1} << 48;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_POOL_MODEL_H_
