// PrivatePools: which private pools of a device exist, who uses them, and which requests go there.
//
// Owns the records of private pools by id: how often each is retained, its properties, the routes
// that lead to it; states their coming and going as events. Their memory, their blocks and their
// Pools are the DeviceAllocator's. Words and errors are those of PyTorch's graph pools and
// MemPools, whose ids, counts and routes these are. Not thread-safe: guarded by the device's lock.
//
// Beyond PyTorch: an id may be used again after its last release. It names a new private pool then;
// the released one keeps its blocks and memory until they have gone.

#ifndef OFFCUT_ALLOCATOR_CORE_PRIVATE_POOLS_H_
#define OFFCUT_ALLOCATOR_CORE_PRIVATE_POOLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/core/pool.h"
#include "allocator/events/emitter.h"
#include "allocator/events/private_pool_id.h"

namespace offcut {

class PrivatePools {
 public:
  // Whether a request for use on the stream goes to the pool. Called under the device's lock: it
  // must not call the allocator. An error fails the request.
  using Filter = std::function<absl::StatusOr<bool>(StreamHandle)>;

  explicit PrivatePools(Emitter& emitter) : emitter_(emitter) {}
  PrivatePools(const PrivatePools&) = delete;
  PrivatePools& operator=(const PrivatePools&) = delete;

  // --- Uses ---
  // One more use of the pool, which is made if there is none; `foreign`: with its memory from
  // there, for its whole life. InvalidArgument for an id that names no private pool.
  absl::StatusOr<PrivatePool*> Retain(PrivatePoolId id,
                                      std::shared_ptr<const ForeignAllocator> foreign = nullptr);
  // One use less; with the last one the pool is released, unless a route still leads there.
  // NotFound if nobody uses it.
  absl::Status Release(PrivatePoolId id);
  // The pool, if in use; NotFound else.
  absl::StatusOr<PrivatePool*> Find(PrivatePoolId id) const;

  // --- Routes ---
  // From now on requests that `filter` says yes to go to the pool, which is retained once more. The
  // latest route that says yes wins. FailedPrecondition if a route leads there already.
  // On an error the filter is left to the caller.
  // `stream`: where it is begun.
  absl::Status BeginRoute(PrivatePoolId id, StreamHandle stream, Filter&& filter);
  // Returns the filter: destroying it, which is its caller's, may need more than is allowed under
  // the device's lock. The use that BeginRoute counted stays. FailedPrecondition if no route leads
  // there.
  absl::StatusOr<Filter> EndRoute(PrivatePoolId id);
  bool has_routes() const { return !routes_.empty(); }
  // Whether some route that still leads anywhere was begun on the stream.
  bool IsRouteBegunOn(StreamHandle stream) const;
  // A thread begins, or ends, a call of the allocator that a pool has its memory from.
  void BeginForeignCall() { ++diversions_; }
  void EndForeignCall() { --diversions_; }
  // Whether a request may have to go elsewhere than to the default pool of its stream: there are
  // routes, or foreign calls under way.
  bool may_divert() const { return diversions_ > 0; }
  // Where a request for use on the stream goes; nullptr: to a default pool.
  absl::StatusOr<PrivatePool*> FindRoute(StreamHandle stream) const;

  // --- Released pools ---
  // All of this id, or all.
  std::vector<PrivatePool*> Released(const PrivatePoolId* id) const;
  // Forgets those that `gone` says nothing is left of.
  void RemoveReleased(absl::FunctionRef<bool(PrivatePool&)> gone);

  void ForEachInUse(absl::FunctionRef<void(PrivatePool&)> visit) const;

 private:
  struct Route {
    PrivatePool* pool;
    StreamHandle begun_on;
    Filter filter;
  };

  void NoteIfReleased(PrivatePool& pool);

  Emitter& emitter_;
  // In an order of its own, so that runs repeat.
  std::map<PrivatePoolId, std::unique_ptr<PrivatePool>> in_use_;
  std::vector<std::unique_ptr<PrivatePool>> released_;
  std::vector<Route> routes_;  // the latest last
  uint32_t diversions_ = 0;    // routes and foreign calls
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_PRIVATE_POOLS_H_
