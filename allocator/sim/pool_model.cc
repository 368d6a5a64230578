#include "allocator/sim/pool_model.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"

namespace offcut::sim {
namespace {

constexpr Bytes kChunk = PoolModel::kChunkBytes;

absl::Status Error(int cu_result, absl::string_view function, absl::string_view problem) {
  return DriverError(cu_result, absl::StrCat(function, ": ", problem));
}

absl::Status AddressError(absl::string_view function, DevicePtr address,
                          absl::string_view problem) {
  return DriverError(CudaResult::kInvalidValue,
                     absl::StrFormat("%s(%#x): %s", function, address, problem));
}

// Of runs (start and end) in order, the first that ends after `address`: the one that holds it, or
// the next.
template <typename Runs>
auto FirstEndingAfter(Runs& runs, DevicePtr address) {
  auto it = runs.upper_bound(address);
  if (it != runs.begin() && std::prev(it)->second > address) --it;
  return it;
}

}  // namespace

PoolModel::PoolModel(const SimOptions& machine, MemoryModel* memory, StreamModel* streams)
    : machine_(machine),
      memory_(*memory),
      streams_(*streams),
      default_pools_(static_cast<size_t>(machine.devices)),
      current_pools_(static_cast<size_t>(machine.devices)) {
  streams_.SetWaitObserver([this] { return OnWaited(); });
}

PoolModel::~PoolModel() = default;

// --- Pools ---

absl::StatusOr<DriverPool> PoolModel::CreatePool(DeviceIndex device, Bytes bytes_max) {
  constexpr char kFunction[] = "cuMemPoolCreate";
  OFFCUT_RETURN_IF_ERROR(memory_.GetInfo(device).status());
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  is_used_.store(true, std::memory_order_relaxed);
  return AddPool({.device = device, .bytes_max = bytes_max});
}

DriverPool PoolModel::AddPool(Pool pool) {
  const DriverPool handle = pools_.Create(std::move(pool));
  pools_.Find(handle)->handle = handle;
  return handle;
}

absl::StatusOr<PoolModel::Pool*> PoolModel::FindPool(DriverPool pool, absl::string_view function) {
  Pool* const found = pools_.Find(pool);
  if (found == nullptr || found->is_destroyed) {
    return DriverError(
        CudaResult::kInvalidValue,
        absl::StrFormat("%s(pool %p): no such pool; never created, or destroyed", function, pool));
  }
  return found;
}

absl::Status PoolModel::DestroyPool(DriverPool pool) {
  constexpr char kFunction[] = "cuMemPoolDestroy";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  const StreamOrder order = streams_.HostOrder();
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  if (found->is_default) {
    return Error(CudaResult::kInvalidValue, kFunction, "a device keeps its default pool");
  }
  for (size_t device = 0; device < current_pools_.size(); ++device) {
    if (current_pools_[device] == pool) current_pools_[device] = nullptr;
  }
  found->is_destroyed = true;
  found->options.release_threshold_bytes = 0;
  Settle(*found, [&](const StreamPoint& point) { return order.IsDone(point); });
  const absl::Status released = ReleaseChunks(*found, 0);
  DissolveDestroyedPools();
  return released;
}

absl::StatusOr<DriverPool> PoolModel::GetDefaultPool(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(memory_.GetInfo(device).status());
  absl::MutexLock lock(&mutex_);
  is_used_.store(true, std::memory_order_relaxed);
  DriverPool& pool = default_pools_[static_cast<size_t>(device)];
  if (pool == nullptr) pool = AddPool({.device = device, .is_default = true});
  return pool;
}

absl::StatusOr<DriverPool> PoolModel::GetCurrentPool(DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const DriverPool default_pool, GetDefaultPool(device));
  absl::MutexLock lock(&mutex_);
  const DriverPool current = current_pools_[static_cast<size_t>(device)];
  return current != nullptr ? current : default_pool;
}

absl::Status PoolModel::SetCurrentPool(DeviceIndex device, DriverPool pool) {
  constexpr char kFunction[] = "cuDeviceSetMemPool";
  OFFCUT_RETURN_IF_ERROR(memory_.GetInfo(device).status());
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const Pool* found, FindPool(pool, kFunction));
  if (found->device != device) {
    return Error(CudaResult::kInvalidValue, kFunction, "a pool of another device");
  }
  current_pools_[static_cast<size_t>(device)] = pool;
  return absl::OkStatus();
}

absl::StatusOr<DriverPoolOptions> PoolModel::GetOptions(DriverPool pool) {
  constexpr char kFunction[] = "cuMemPoolGetAttribute";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const Pool* found, FindPool(pool, kFunction));
  return found->options;
}

absl::Status PoolModel::SetOptions(DriverPool pool, const DriverPoolOptions& options) {
  constexpr char kFunction[] = "cuMemPoolSetAttribute";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  found->options = options;
  return absl::OkStatus();
}

absl::StatusOr<DriverPoolUsage> PoolModel::GetUsage(DriverPool pool) {
  constexpr char kFunction[] = "cuMemPoolGetAttribute";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const Pool* found, FindPool(pool, kFunction));
  return found->usage;
}

absl::Status PoolModel::ResetReservedMax(DriverPool pool) {
  constexpr char kFunction[] = "cuMemPoolSetAttribute";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  found->usage.reserved_bytes_max = found->usage.reserved_bytes;
  return absl::OkStatus();
}

absl::Status PoolModel::ResetUsedMax(DriverPool pool) {
  constexpr char kFunction[] = "cuMemPoolSetAttribute";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  found->usage.used_bytes_max = found->usage.used_bytes;
  return absl::OkStatus();
}

absl::Status PoolModel::Trim(DriverPool pool, Bytes keep_bytes) {
  constexpr char kFunction[] = "cuMemPoolTrimTo";
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  const StreamOrder order = streams_.HostOrder();
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  Settle(*found, [&](const StreamPoint& point) { return order.IsDone(point); });
  return ReleaseChunks(*found, keep_bytes);
}

absl::Status PoolModel::SetAccess(DriverPool pool, DeviceIndex device, Access access) {
  constexpr char kFunction[] = "cuMemPoolSetAccess";
  OFFCUT_RETURN_IF_ERROR(memory_.GetInfo(device).status());
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  if (device == found->device) {
    if (access == Access::kReadWrite) return absl::OkStatus();
    return Error(CudaResult::kInvalidDevice, kFunction, "a pool's own device keeps its access");
  }
  std::erase_if(found->peers, [&](const auto& peer) { return peer.first == device; });
  found->peers.emplace_back(device, access);
  for (const auto& [start, end] : found->mapped) {
    OFFCUT_RETURN_IF_ERROR(memory_.SetAccess(start, end - start, device, access));
  }
  return absl::OkStatus();
}

absl::StatusOr<Access> PoolModel::GetAccess(DriverPool pool, DeviceIndex device) {
  constexpr char kFunction[] = "cuMemPoolGetAccess";
  OFFCUT_RETURN_IF_ERROR(memory_.GetInfo(device).status());
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall(kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(const Pool* found, FindPool(pool, kFunction));
  if (device == found->device) return Access::kReadWrite;
  for (const auto& [peer, access] : found->peers) {
    if (peer == device) return access;
  }
  return Access::kNone;
}

// --- Memory ---

absl::StatusOr<DevicePtr> PoolModel::Allocate(DriverPool pool, Bytes bytes, DeviceIndex device,
                                              StreamHandle stream) {
  constexpr char kFunction[] = "cuMemAllocAsync";
  if (pool == nullptr) {
    OFFCUT_ASSIGN_OR_RETURN(pool, GetCurrentPool(device));
  }
  OFFCUT_ASSIGN_OR_RETURN(const StreamOrder order, streams_.OrderOf(device, stream, kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Pool * found, FindPool(pool, kFunction));
  if (bytes == 0) return Error(CudaResult::kInvalidValue, kFunction, "the size is zero");
  if (bytes > machine_.TotalBytes()) {
    return Error(CudaResult::kOutOfMemory, kFunction,
                 absl::StrCat(bytes, " bytes are more than the device has"));
  }
  ForgetDeadGraphs();
  DissolveDestroyedPools();
  if (order.graph() != 0) {
    found = &graph_pools_
                 .try_emplace(order.graph(), Pool{.device = found->device, .peers = found->peers})
                 .first->second;
  }
  const Bytes span_bytes = RoundUp(bytes, kBlockAlignment);
  OFFCUT_ASSIGN_OR_RETURN(const DevicePtr address,
                          TakeSpace(*found, span_bytes, order, device, stream));
  if (order.graph() != 0) {
    const absl::Status added = streams_.AddAllocationNode(device, stream, address);
    if (!added.ok()) {
      InsertFree(*found, address, {.bytes = span_bytes});
      found->is_destroyed = found->allocations == 0;
      return added;
    }
  }
  allocations_.emplace(
      address,
      Allocation{
          .pool = found, .bytes = bytes, .graph = order.graph(), .buffer_id = next_buffer_id_++});
  ++found->allocations;
  found->usage.used_bytes += bytes;
  found->usage.used_bytes_max = std::max(found->usage.used_bytes_max, found->usage.used_bytes);
  return address;
}

absl::Status PoolModel::Free(DevicePtr address, DeviceIndex device, StreamHandle stream) {
  constexpr char kFunction[] = "cuMemFreeAsync";
  if (address == 0) return absl::OkStatus();
  OFFCUT_ASSIGN_OR_RETURN(const StreamOrder order, streams_.OrderOf(device, stream, kFunction));
  absl::MutexLock lock(&mutex_);
  const auto it = allocations_.find(address);
  if (it == allocations_.end()) {
    return AddressError(kFunction, address,
                        "no allocation of a pool starts here; never made, or freed before");
  }
  const Allocation allocation = it->second;
  StreamPoint point;
  if (order.graph() != 0) {
    if (allocation.graph != order.graph()) {
      return AddressError(kFunction, address, "a capture frees only what its own graph allocated");
    }
    OFFCUT_ASSIGN_OR_RETURN(point, streams_.AddFreeNode(device, stream, address));
  } else if (allocation.graph != 0) {
    // Stays what it is: the next launch allocates it again.
    if (streams_.FreeLaunched(allocation.graph, address)) return absl::OkStatus();
    return AddressError(kFunction, address,
                        "memory of a graph that was not launched, or freed since");
  } else {
    OFFCUT_ASSIGN_OR_RETURN(point, streams_.MarkPoint(device, stream));
  }
  allocations_.erase(it);
  Pool& pool = *allocation.pool;
  --pool.allocations;
  pool.usage.used_bytes -= allocation.bytes;
  InsertFree(pool, address, {.bytes = allocation.span_bytes(), .point = point});
  return absl::OkStatus();
}

absl::Status PoolModel::FreeAfterWait(DevicePtr address) {
  constexpr char kFunction[] = "cuMemFree";
  absl::MutexLock lock(&mutex_);
  const auto it = allocations_.find(address);
  if (it == allocations_.end()) {
    return AddressError(kFunction, address, "no allocation of a pool starts here");
  }
  const Allocation allocation = it->second;
  if (allocation.graph != 0) {
    if (streams_.FreeLaunched(allocation.graph, address)) return absl::OkStatus();
    return AddressError(kFunction, address,
                        "memory of a graph that was not launched, or freed since");
  }
  allocations_.erase(it);
  Pool& pool = *allocation.pool;
  --pool.allocations;
  pool.usage.used_bytes -= allocation.bytes;
  InsertFree(pool, address, {.bytes = allocation.span_bytes()});
  const absl::Status released = ReleaseChunks(pool, pool.options.release_threshold_bytes);
  DissolveDestroyedPools();
  return released;
}

// --- Space ---

absl::StatusOr<DevicePtr> PoolModel::TakeSpace(Pool& pool, Bytes span_bytes,
                                               const StreamOrder& order, DeviceIndex device,
                                               StreamHandle stream) {
  const DriverPoolOptions& options = pool.options;
  const auto may_use = [&](const StreamPoint& point) {
    if (point.graph != 0) return order.ComesAfter(point);
    return order.HostKnowsDone(point) || (options.reuse_opportunistic && order.IsDone(point)) ||
           (options.reuse_follow_events ? order.ComesAfter(point) : order.IsOwn(point));
  };
  absl::StatusOr<DevicePtr> address = TryTake(pool, span_bytes, may_use);
  if (DriverErrorCode(address.status()) != CudaResult::kOutOfMemory) return address;
  if (ReclaimLocked(pool.device)) {
    address = TryTake(pool, span_bytes, may_use);
    if (DriverErrorCode(address.status()) != CudaResult::kOutOfMemory) return address;
  }
  if (!options.reuse_internal_dependencies || order.graph() != 0) return address;
  std::vector<StreamPoint> waits_for;
  const absl::StatusOr<DevicePtr> pending = TryTake(
      pool, span_bytes, [&](const StreamPoint& point) { return point.graph == 0; }, &waits_for);
  if (!pending.ok()) return address;
  for (const StreamPoint& point : waits_for) {
    if (!may_use(point)) OFFCUT_RETURN_IF_ERROR(streams_.WaitForPoint(device, stream, point));
  }
  return pending;
}

absl::StatusOr<DevicePtr> PoolModel::TryTake(Pool& pool, Bytes span_bytes, MayUse may_use,
                                             std::vector<StreamPoint>* points) {
  std::optional<Place> place = FindPlace(pool, span_bytes, may_use);
  if (!place.has_value()) {
    OFFCUT_RETURN_IF_ERROR(ReserveArena(pool, span_bytes));
    place = FindPlace(pool, span_bytes, may_use);
  }
  if (!place.has_value()) {
    return Error(CudaResult::kOutOfMemory, "cuMemAllocAsync", "no address space is left");
  }
  if (place->new_chunks != 0) {
    OFFCUT_RETURN_IF_ERROR(MapChunks(pool, place->address, span_bytes));
  }
  const DevicePtr end = place->address + span_bytes;
  auto it = std::prev(pool.free.upper_bound(place->address));
  while (it != pool.free.end() && it->first < end) {
    const DevicePtr start = it->first;
    const FreeRange range = it->second;
    it = pool.free.erase(it);
    if (points != nullptr) points->push_back(range.point);
    if (start < place->address) {
      pool.free.emplace(start, FreeRange{.bytes = place->address - start, .point = range.point});
      it = pool.free.upper_bound(start);  // what was known of the tree is void
    }
    if (start + range.bytes > end) {
      pool.free.emplace(end, FreeRange{.bytes = start + range.bytes - end, .point = range.point});
      break;
    }
  }
  return place->address;
}

std::optional<PoolModel::Place> PoolModel::FindPlace(const Pool& pool, Bytes span_bytes,
                                                     MayUse may_use) {
  std::optional<Place> best;
  const auto consider = [&](DevicePtr address, DevicePtr run_end) {
    if (span_bytes > run_end - address) return;
    const DevicePtr first = RoundDown(address, kChunk), end = RoundUp(address + span_bytes, kChunk);
    Place place{.address = address, .new_chunks = (end - first) / kChunk, .room_bytes = 0};
    for (auto it = FirstEndingAfter(pool.mapped, first); it != pool.mapped.end() && it->first < end;
         ++it) {
      place.new_chunks -= (std::min(it->second, end) - std::max(it->first, first)) / kChunk;
      if (it->first <= address) place.room_bytes = std::min(it->second, run_end) - address;
    }
    if (!best.has_value() || place.new_chunks < best->new_chunks ||
        (place.new_chunks == best->new_chunks && place.room_bytes < best->room_bytes)) {
      best = place;
    }
  };
  for (auto range = pool.free.begin(); range != pool.free.end();) {
    if (!may_use(range->second.point)) {
      ++range;
      continue;
    }
    const DevicePtr start = range->first;
    DevicePtr end = start;
    while (range != pool.free.end() && range->first == end && may_use(range->second.point)) {
      end += range->second.bytes;
      ++range;
    }
    if (end - start < span_bytes) continue;
    consider(start, end);
    // Wherever mapped memory begins inside the run.
    for (auto mapped = pool.mapped.upper_bound(start);
         mapped != pool.mapped.end() && mapped->first < end; ++mapped) {
      consider(mapped->first, end);
    }
  }
  return best;
}

absl::Status PoolModel::ReserveArena(Pool& pool, Bytes bytes_min) {
  // Room to move in, as the driver's own pools have.
  const Bytes needed = RoundUp(bytes_min, kChunk);
  for (Bytes bytes = RoundUp(2 * machine_.TotalBytes(), kChunk);; bytes = needed) {
    bytes = std::max(bytes, needed);
    const auto address = memory_.ReserveAddress(pool.device, bytes, kChunk, 0);
    if (!address.ok() && bytes != needed) continue;
    OFFCUT_RETURN_IF_ERROR(address.status());
    pool.arenas.emplace_back(*address, bytes);
    arenas_.emplace(*address, bytes);
    InsertFree(pool, *address, {.bytes = bytes});
    return absl::OkStatus();
  }
}

absl::Status PoolModel::MapChunks(Pool& pool, DevicePtr address, Bytes bytes) {
  std::vector<DevicePtr> made;
  for (DevicePtr chunk = RoundDown(address, kChunk); chunk < address + bytes; chunk += kChunk) {
    const auto it = FirstEndingAfter(pool.mapped, chunk);
    if (it != pool.mapped.end() && it->first <= chunk) continue;
    const absl::Status mapped = MapChunk(pool, chunk);
    if (mapped.ok()) {
      made.push_back(chunk);
      continue;
    }
    for (const DevicePtr undone : made) OFFCUT_RETURN_IF_ERROR(UnmapChunk(pool, undone));
    return mapped;
  }
  pool.usage.reserved_bytes_max =
      std::max(pool.usage.reserved_bytes_max, pool.usage.reserved_bytes);
  return absl::OkStatus();
}

absl::Status PoolModel::MapChunk(Pool& pool, DevicePtr address) {
  if (pool.bytes_max != 0 && pool.usage.reserved_bytes + kChunk > pool.bytes_max) {
    return Error(CudaResult::kOutOfMemory, "cuMemAllocAsync",
                 absl::StrCat("the pool holds no more than ", pool.bytes_max, " bytes"));
  }
  OFFCUT_ASSIGN_OR_RETURN(const PhysicalHandle handle, memory_.CreateMemory(pool.device, kChunk));
  absl::Status status = memory_.Map(address, kChunk, 0, handle);
  // The mapping holds the memory from here on.
  OFFCUT_RETURN_IF_ERROR(memory_.ReleaseMemory(handle));
  OFFCUT_RETURN_IF_ERROR(status);
  status = memory_.SetAccess(address, kChunk, pool.device, Access::kReadWrite);
  for (const auto& [peer, access] : pool.peers) {
    status.Update(memory_.SetAccess(address, kChunk, peer, access));
  }
  if (!status.ok()) {
    (void)memory_.Unmap(address, kChunk);
    return status;
  }
  pool.usage.reserved_bytes += kChunk;
  // One run with its neighbours.
  DevicePtr start = address, end = address + kChunk;
  if (const auto next = pool.mapped.find(end); next != pool.mapped.end()) {
    end = next->second;
    pool.mapped.erase(next);
  }
  if (const auto before = FirstEndingAfter(pool.mapped, address - 1);
      before != pool.mapped.end() && before->second == address) {
    start = before->first;
  }
  pool.mapped[start] = end;
  return absl::OkStatus();
}

absl::Status PoolModel::UnmapChunk(Pool& pool, DevicePtr address) {
  OFFCUT_RETURN_IF_ERROR(memory_.Unmap(address, kChunk));
  pool.usage.reserved_bytes -= kChunk;
  const auto run = FirstEndingAfter(pool.mapped, address);
  const DevicePtr start = run->first, end = run->second;
  pool.mapped.erase(run);
  if (start < address) pool.mapped.emplace(start, address);
  if (address + kChunk < end) pool.mapped.emplace(address + kChunk, end);
  return absl::OkStatus();
}

void PoolModel::InsertFree(Pool& pool, DevicePtr address, FreeRange range) {
  // Of two neighbours of one stream, both may be used after the later one's point.
  const auto merge = [](FreeRange& into, const FreeRange& with) {
    if (into.point.stream != with.point.stream || into.point.graph != with.point.graph) {
      return false;
    }
    into.bytes += with.bytes;
    into.point.position = std::max(into.point.position, with.point.position);
    into.point.done_ns = std::max(into.point.done_ns, with.point.done_ns);
    return true;
  };
  const auto next = pool.free.lower_bound(address);
  if (next != pool.free.end() && next->first == address + range.bytes &&
      merge(range, next->second)) {
    pool.free.erase(next);
  }
  const auto after = pool.free.lower_bound(address);
  if (after != pool.free.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == address && merge(before->second, range)) return;
  }
  pool.free.emplace(address, range);
}

// --- Giving memory back ---

void PoolModel::Settle(Pool& pool, MayUse is_done) {
  std::vector<std::pair<DevicePtr, Bytes>> settled;
  for (const auto& [address, range] : pool.free) {
    if (!range.point.is_always() && is_done(range.point))
      settled.emplace_back(address, range.bytes);
  }
  for (const auto& [address, bytes] : settled) {
    // It may have become part of the one before it, never of one after it.
    pool.free.erase(address);
    InsertFree(pool, address, {.bytes = bytes});
  }
}

absl::Status PoolModel::ReleaseChunks(Pool& pool, Bytes keep_bytes) {
  const auto is_enough = [&] {
    return pool.usage.reserved_bytes < kChunk || pool.usage.reserved_bytes - kChunk < keep_bytes;
  };
  if (is_enough()) return absl::OkStatus();
  std::vector<std::pair<DevicePtr, DevicePtr>> idle;  // whole chunks
  for (const auto& [address, range] : pool.free) {
    if (!range.point.is_always()) continue;
    const DevicePtr end = RoundDown(address + range.bytes, kChunk);
    for (auto it = FirstEndingAfter(pool.mapped, address);
         it != pool.mapped.end() && it->first < end; ++it) {
      idle.emplace_back(RoundUp(std::max(it->first, address), kChunk), std::min(it->second, end));
    }
  }
  for (auto run = idle.rbegin(); run != idle.rend(); ++run) {
    for (DevicePtr chunk = run->second; chunk > run->first; chunk -= kChunk) {
      if (is_enough()) return absl::OkStatus();
      OFFCUT_RETURN_IF_ERROR(UnmapChunk(pool, chunk - kChunk));
    }
  }
  return absl::OkStatus();
}

bool PoolModel::Reclaim(DeviceIndex device) {
  if (!is_used_.load(std::memory_order_relaxed)) return false;
  absl::MutexLock lock(&mutex_);
  return ReclaimLocked(device);
}

bool PoolModel::ReclaimLocked(DeviceIndex device) {
  const StreamOrder order = streams_.HostOrder();
  bool any = false;
  pools_.ForEach([&](Pool& pool) {
    if (pool.device != device) return;
    Settle(pool, [&](const StreamPoint& point) { return order.IsDone(point); });
    const Bytes before = pool.usage.reserved_bytes;
    // What work still uses stays, and the next wait says so.
    ReleaseChunks(pool, 0).IgnoreError();
    any |= pool.usage.reserved_bytes < before;
  });
  ForgetDeadGraphs();
  DissolveDestroyedPools();
  return any;
}

void PoolModel::TrimGraphs() {
  if (!is_used_.load(std::memory_order_relaxed)) return;
  absl::MutexLock lock(&mutex_);
  ForgetDeadGraphs();
  DissolveDestroyedPools();
}

absl::Status PoolModel::OnWaited() {
  if (!is_used_.load(std::memory_order_relaxed)) return absl::OkStatus();
  const StreamOrder order = streams_.HostOrder();
  absl::MutexLock lock(&mutex_);
  absl::Status status = absl::OkStatus();
  pools_.ForEach([&](Pool& pool) {
    Settle(pool, [&](const StreamPoint& point) { return order.HostKnowsDone(point); });
    status.Update(ReleaseChunks(pool, pool.options.release_threshold_bytes));
  });
  ForgetDeadGraphs();
  DissolveDestroyedPools();
  return status;
}

void PoolModel::ForgetDeadGraphs() {
  for (const uint64_t graph : streams_.TakeDeadGraphs()) {
    const auto it = graph_pools_.find(graph);
    if (it == graph_pools_.end()) continue;
    absl::erase_if(allocations_, [&](const auto& entry) { return entry.second.graph == graph; });
    it->second.is_destroyed = true;
    it->second.allocations = 0;
  }
}

void PoolModel::DissolveDestroyedPools() {
  std::vector<DriverPool> gone;
  pools_.ForEach([&](Pool& pool) {
    if (Dissolve(pool)) gone.push_back(pool.handle);
  });
  for (const DriverPool pool : gone) pools_.Destroy(pool);
  absl::erase_if(graph_pools_, [&](auto& entry) { return Dissolve(entry.second); });
}

bool PoolModel::Dissolve(Pool& pool) {
  if (!pool.is_destroyed || pool.allocations != 0) return false;
  const bool is_graph = pool.handle == nullptr;
  while (is_graph && !pool.mapped.empty()) {
    // Work that was launched may still use it.
    if (!UnmapChunk(pool, pool.mapped.begin()->first).ok()) return false;
  }
  if (!pool.mapped.empty()) return false;
  for (const auto& [address, bytes] : pool.arenas) {
    (void)memory_.FreeAddress(address, bytes);
    arenas_.erase(address);
  }
  return true;
}

// --- Questions ---

std::optional<PoolAllocation> PoolModel::Find(DevicePtr address) const {
  if (!is_used_.load(std::memory_order_relaxed)) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return std::nullopt;
  --it;
  const auto& [base, allocation] = *it;
  if (address - base >= allocation.bytes) return std::nullopt;
  return PoolAllocation{base, allocation.bytes, allocation.pool->device, allocation.buffer_id};
}

Bytes PoolModel::GraphBytes() const {
  absl::MutexLock lock(&mutex_);
  Bytes bytes = 0;
  for (const auto& [graph, pool] : graph_pools_) bytes += pool.usage.reserved_bytes;
  return bytes;
}

bool PoolModel::IsPoolAddress(DevicePtr address) const {
  if (!is_used_.load(std::memory_order_relaxed)) return false;
  absl::MutexLock lock(&mutex_);
  const auto it = arenas_.upper_bound(address);
  return it != arenas_.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

}  // namespace offcut::sim
