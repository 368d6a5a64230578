// Private pools: CUDA graphs, torch.cuda.MemPool, use_mem_pool.

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include "pytorch_plugin/shim/history.h"
#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using Filter = std::function<bool(cudaStream_t)>;

offcut_pool_id ToC(MempoolId_t pool) { return {pool.first, pool.second}; }

// What a filter, or the allocator of a pool, threw on this thread, until the request that it failed
// has come back here.
thread_local std::exception_ptr callback_error;

int AskFilter(void* filter, cudaStream_t stream) noexcept {
  try {
    return (*static_cast<Filter*>(filter))(stream) ? 1 : 0;
  } catch (...) {
    callback_error = std::current_exception();
    return -1;
  }
}

void DestroyFilter(void* filter) { delete static_cast<Filter*>(filter); }

// --- Allocators of pools -------------------------------------------------------------------------

using PoolAllocator = std::shared_ptr<cca::CUDAAllocator>;

// As native calls them: on the pool's device, and so that cudaMalloc does not end a capture.
int AllocateSegment(void* allocator, size_t size, int device, void** out) noexcept {
  try {
    const c10::cuda::CUDAGuard on(static_cast<DeviceIndex>(device));
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    *out = (*static_cast<PoolAllocator*>(allocator))->raw_alloc(size);
    return 0;
  } catch (...) {
    callback_error = std::current_exception();
    return -1;
  }
}

void ReleaseSegment(void* allocator, void* pointer, size_t /*size*/, int device) noexcept {
  try {
    const c10::cuda::CUDAGuard on(static_cast<DeviceIndex>(device));
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    (*static_cast<PoolAllocator*>(allocator))->raw_delete(pointer);
  } catch (const std::exception& error) {
    // Nobody who could mend it waits for this: a destructor may be the caller.
    try {
      TORCH_WARN("The allocator of a torch.cuda.MemPool failed to take back ", pointer, ": ",
                 error.what());
    } catch (...) {  // a warning that the user has made an error
    }
  } catch (...) {
  }
}

void DestroyAllocator(void* allocator) { delete static_cast<PoolAllocator*>(allocator); }

}  // namespace

void RethrowCallbackError() { std::rethrow_exception(std::exchange(callback_error, nullptr)); }

void TorchAllocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool, Filter filter) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
  CheckStatus(offcut_begin_allocate_to_pool(device, ToC(pool), stream, &AskFilter, &DestroyFilter,
                                            new Filter(std::move(filter))),
              "beginAllocateToPool");
}

void TorchAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  CheckStatus(offcut_end_allocate_to_pool(device, ToC(pool)), "endAllocateToPool");
}

void TorchAllocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  CheckStatus(offcut_release_pool(device, ToC(pool)), "releasePool");
}

int TorchAllocator::getPoolUseCount(DeviceIndex device, MempoolId_t pool) {
  unsigned uses = 0;
  CheckStatus(offcut_pool_use_count(device, ToC(pool), &uses), "getPoolUseCount");
  return static_cast<int>(uses);
}

void TorchAllocator::createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                                        std::shared_ptr<cca::CUDAAllocator> allocator) {
  if (allocator == nullptr) {
    CheckStatus(offcut_retain_pool(device, ToC(pool)), "createOrIncrefPool");
    return;
  }
  const offcut_foreign_allocator foreign = {.allocate = &AllocateSegment,
                                            .release = &ReleaseSegment,
                                            .destroy = &DestroyAllocator,
                                            .context = new PoolAllocator(std::move(allocator))};
  CheckStatus(offcut_retain_foreign_pool(device, ToC(pool), &foreign), "createOrIncrefPool");
}

void TorchAllocator::setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) {
  const offcut_status status = offcut_set_use_on_oom(device, ToC(pool), use ? 1 : 0);
  // A destructor asks for the opposite of what was never asked for.
  if (!use && status == OFFCUT_INVALID_ARGUMENT) return;
  CheckStatus(status, "setUseOnOOM");
}

void TorchAllocator::setNoSplit(DeviceIndex device, MempoolId_t pool) {
  CheckStatus(offcut_set_no_split(device, ToC(pool)), "setNoSplit");
}

void TorchAllocator::emptyCache(MempoolId_t pool) {
  if (!initialized()) return;
  const ContextScope scope(History::Gather(cda::RecordContext::ALL));
  if (pool == MempoolId_t{0, 0}) {
    CheckStatus(offcut_empty_cache(-1), "empty_cache");
    return;
  }
  for (int device = 0; device < device_count_.load(); ++device) {
    CheckStatus(offcut_empty_cache_of_pool(device, ToC(pool)), "empty_cache");
  }
}

bool TorchAllocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                              const std::unordered_set<void*>& expected) {
  const std::vector<void*> addresses(expected.begin(), expected.end());
  int equal = 0;
  CheckStatus(offcut_check_pool_live_allocations(device, ToC(pool), addresses.data(),
                                                 addresses.size(), &equal),
              "checkPoolLiveAllocations");
  return equal != 0;
}

// --- Checkpoints ---------------------------------------------------------------------------------

namespace {

struct Checkpoint final : cca::AllocatorState {
  Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  ~Checkpoint() override { offcut_destroy_checkpoint(state); }
  offcut_checkpoint* state = nullptr;
};

}  // namespace

std::shared_ptr<cca::AllocatorState> TorchAllocator::getCheckpointState(DeviceIndex device,
                                                                        MempoolId_t pool) {
  auto checkpoint = std::make_shared<Checkpoint>();
  CheckStatus(offcut_take_checkpoint(device, ToC(pool), &checkpoint->state), "getCheckpointState");
  return checkpoint;
}

cca::CheckpointDelta TorchAllocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) {
  const auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
  TORCH_CHECK(checkpoint != nullptr, "this checkpoint was taken of another allocator");
  struct Blocks {
    std::vector<void*> freed, allocated;
  } blocks;
  CheckStatus(
      offcut_restore_checkpoint(
          device, checkpoint->state,
          [](void* to, void* address) { static_cast<Blocks*>(to)->freed.push_back(address); },
          [](void* to, void* address) { static_cast<Blocks*>(to)->allocated.push_back(address); },
          &blocks),
      "setCheckpointPoolState");
  cca::CheckpointDelta delta;
  delta.ptrs_freed = std::move(blocks.freed);
  for (void* const address : blocks.allocated) {
    delta.dataptrs_allocd.emplace_back(address, address, raw_deleter(),
                                       c10::Device(c10::kCUDA, device));
  }
  return delta;
}

}  // namespace offcut::torch_shim
