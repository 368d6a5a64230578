// TorchAllocator: PyTorch's CUDA allocator, served by offcut.h.
//
// Owns nothing but the observers that PyTorch attaches: blocks, statistics and limits live behind
// offcut.h. Translates types and errors, and decides nothing. One instance per process, never
// destroyed (tensors die in static destructors). Thread-safe as PyTorch's own allocator is.
//
// PyTorch's vtable changes with every minor version, so this is compiled once per version, and the
// Python package checks the version before it loads the result. One source file per concept:
//   allocation.cc   blocks: out, in, used on further streams
//   devices.cc      start, limits, copies
//   uncached.cc     without a cache
//   statistics.cc   torch.cuda.memory_stats and its resets
//   settings.cc     _set_allocator_settings
//   snapshot.cc     torch.cuda.memory._snapshot
//   history.cc      _record_memory_history: traces, stacks, annotations, trackers
//   private_pools.cc  CUDA graphs, MemPool, use_mem_pool, and checkpoints of them
//   out_of_memory.cc  PyTorch's last resorts, and torch.OutOfMemoryError
//   notify.cc       the profiler and torch.cuda's trace, told of blocks
//   not_supported.cc  what is not built yet, by name
//   install.cc      the one function that Python calls

#ifndef OFFCUT_PYTORCH_PLUGIN_SHIM_TORCH_ALLOCATOR_H_
#define OFFCUT_PYTORCH_PLUGIN_SHIM_TORCH_ALLOCATOR_H_

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/offcut.h"

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "This shim is written against the headers of PyTorch 2.11."
#endif

namespace offcut::torch_shim {

namespace cca = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

class TorchAllocator final : public cca::CUDAAllocator {
 public:
  // `backend`: what name() says. PyTorch asserts that it equals the user's `backend:` setting.
  explicit TorchAllocator(std::string backend) : backend_(std::move(backend)) {}

  // allocation.cc
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  void cacheInfo(DeviceIndex device, size_t* largest_block) override;
  void* getBaseAllocation(void* pointer, size_t* size) override;

  // devices.cc
  void init(int device_count) override;
  bool initialized() override;
  std::string name() override { return backend_; }
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool peers_enabled) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;

  // uncached.cc
  void enable(bool value) override;
  bool isEnabled() const override;

  // statistics.cc
  cca::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;

  // private_pools.cc
  void emptyCache(MempoolId_t pool) override;
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void releasePool(DeviceIndex device, MempoolId_t pool) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<cca::CUDAAllocator> allocator) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override;
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex device,
                                                          MempoolId_t pool) override;
  cca::CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                              std::shared_ptr<cca::AllocatorState> state) override;

  // out_of_memory.cc
  void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override;

  // snapshot.cc
  cca::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;
  std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;

  // history.cc
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, cca::CreateContextFn recorder, size_t max_entries,
                     cca::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override;
  void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) override;
  void pushCompileContext(std::string& name) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;

  // not_supported.cc
  cca::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

 private:
  void* AllocateBlock(DeviceIndex device, cudaStream_t stream, size_t bytes);
  // Whether memory comes from cudaMalloc, and goes to cudaFree, each time.
  bool Uncached() const {
    return C10_UNLIKELY(!enabled_.load(std::memory_order_relaxed)) || forced_uncached_;
  }
  static bool ForcedUncached();
  static void* AllocateUncached(size_t bytes);
  static void DeleteUncached(void* pointer);
  [[noreturn]] void ThrowFailed(DeviceIndex device, size_t bytes, offcut_status status);
  [[noreturn]] void ThrowOutOfMemory(DeviceIndex device, size_t bytes);

  const std::string backend_;
  const bool forced_uncached_ = ForcedUncached();
  std::atomic<bool> enabled_{true};
  std::atomic<int> device_count_{0};
  std::mutex observers_mutex_;
  std::vector<cca::OutOfMemoryObserver> out_of_memory_observers_;
};

// Throws what PyTorch would throw: nothing for OFFCUT_OK, NotImplementedError for what is not
// built, else RuntimeError with offcut_last_error(). Not for OFFCUT_OUT_OF_MEMORY of a request.
void CheckStatus(offcut_status status, const char* what);

// From now on, settings that a program changes through PyTorch are Offcut's too.
void FollowSettings();

// True if a callback that libraries register with PyTorch has freed something: CUDA IPC's does.
bool RunFreeMemoryCallbacks() noexcept;

// Throws what the filter of a route, or the allocator of a pool, threw, for OFFCUT_CALLBACK_FAILED
// of a request of this thread.
[[noreturn]] void RethrowCallbackError();

// Whether anybody wants to be told of single blocks: the profiler, or torch.cuda's trace.
bool SomebodyListens();
void NotifyAllocated(void* pointer);
// To be called with what offcut_find_block said before the block went.
void NotifyFreed(const offcut_block& block);

}  // namespace offcut::torch_shim

#endif  // OFFCUT_PYTORCH_PLUGIN_SHIM_TORCH_ALLOCATOR_H_
