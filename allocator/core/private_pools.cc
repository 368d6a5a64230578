#include "allocator/core/private_pools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

std::string Name(PrivatePoolId id) { return absl::StrCat("(", id.first, ", ", id.second, ")"); }

}  // namespace

absl::StatusOr<PrivatePool*> PrivatePools::Retain(PrivatePoolId id,
                                                  std::shared_ptr<const ForeignAllocator> foreign) {
  if (!id.is_valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mempool_id ", Name(id),
                     " names no private pool: exactly one of its numbers "
                     "must be nonzero"));
  }
  std::unique_ptr<PrivatePool>& pool = in_use_[id];
  if (pool == nullptr) {
    pool = std::make_unique<PrivatePool>(PrivatePool{.id = id, .foreign = std::move(foreign)});
    emitter_.Emit({.bytes = id.Encode(), .kind = EventKind::kPrivatePoolCreated});
  }
  ++pool->uses;
  return pool.get();
}

absl::Status PrivatePools::Release(PrivatePoolId id) {
  OFFCUT_ASSIGN_OR_RETURN(PrivatePool* const pool, Find(id));
  if (pool->uses == 0) {
    return absl::NotFoundError(absl::StrCat("mempool_id ", Name(id), " was released before"));
  }
  --pool->uses;
  NoteIfReleased(*pool);
  return absl::OkStatus();
}

absl::StatusOr<PrivatePool*> PrivatePools::Find(PrivatePoolId id) const {
  const auto it = in_use_.find(id);
  if (it == in_use_.end()) {
    return absl::NotFoundError(
        absl::StrCat("Could not find pool of id: nobody uses mempool_id ", Name(id)));
  }
  return it->second.get();
}

void PrivatePools::NoteIfReleased(PrivatePool& pool) {
  if (pool.in_use()) return;
  for (Pool* const part : pool.pools) part->released_epoch = part->stream.epoch;
  const auto it = in_use_.find(pool.id);
  released_.push_back(std::move(it->second));
  in_use_.erase(it);
  emitter_.Emit({.bytes = pool.id.Encode(), .kind = EventKind::kPrivatePoolReleased});
}

// --- Routes --------------------------------------------------------------------------------------

absl::Status PrivatePools::BeginRoute(PrivatePoolId id, StreamHandle stream, Filter&& filter) {
  if (const auto it = in_use_.find(id); it != in_use_.end() && it->second->routes > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("beginAllocateToPool: already recording to mempool_id ", Name(id)));
  }
  OFFCUT_ASSIGN_OR_RETURN(PrivatePool* const pool, Retain(id));
  ++pool->routes;
  routes_.push_back({pool, stream, std::move(filter)});
  ++diversions_;
  return absl::OkStatus();
}

bool PrivatePools::IsRouteBegunOn(StreamHandle stream) const {
  return std::any_of(routes_.begin(), routes_.end(),
                     [stream](const Route& route) { return route.begun_on == stream; });
}

absl::StatusOr<PrivatePools::Filter> PrivatePools::EndRoute(PrivatePoolId id) {
  const auto it = std::find_if(routes_.begin(), routes_.end(),
                               [id](const Route& route) { return route.pool->id == id; });
  if (it == routes_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("endAllocatePool: not currently recording to mempool_id ", Name(id)));
  }
  PrivatePool& pool = *it->pool;
  Filter filter = std::move(it->filter);
  routes_.erase(it);
  --diversions_;
  --pool.routes;
  NoteIfReleased(pool);
  return filter;
}

absl::StatusOr<PrivatePool*> PrivatePools::FindRoute(StreamHandle stream) const {
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    OFFCUT_ASSIGN_OR_RETURN(const bool leads_there, route->filter(stream));
    if (leads_there) return route->pool;
  }
  return nullptr;
}

// --- Released pools ------------------------------------------------------------------------------

std::vector<PrivatePool*> PrivatePools::Released(const PrivatePoolId* id) const {
  std::vector<PrivatePool*> pools;
  for (const std::unique_ptr<PrivatePool>& pool : released_) {
    if (id == nullptr || pool->id == *id) pools.push_back(pool.get());
  }
  return pools;
}

void PrivatePools::RemoveReleased(absl::FunctionRef<bool(PrivatePool&)> gone) {
  released_.erase(std::remove_if(released_.begin(), released_.end(),
                                 [&](const auto& pool) { return gone(*pool); }),
                  released_.end());
}

void PrivatePools::ForEachInUse(absl::FunctionRef<void(PrivatePool&)> visit) const {
  for (const auto& [id, pool] : in_use_) visit(*pool);
}

}  // namespace offcut
