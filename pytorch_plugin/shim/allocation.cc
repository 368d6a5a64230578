// Blocks: handed out, taken back, used on further streams.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>

#include "pytorch_plugin/shim/history.h"
#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

// Native refuses from here on before it rounds, which would overflow.
constexpr size_t kAbsurdBytes = size_t{1} << 60;
void CheckNotAbsurd(size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kAbsurdBytes,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
}

// With one device there is nothing to ask for, and CUDA takes as long to answer as an allocation:
// 42 of 145 ns for a block and its free, through this file, on an H200's host.
DeviceIndex CurrentDevice() {
  static const bool only_one = c10::cuda::device_count() == 1;
  return C10_LIKELY(only_one) ? DeviceIndex{0} : c10::cuda::current_device();
}

// Tells the listeners around the free; false if `pointer` was no live block.
bool FreeAndNotify(void* pointer) {
  offcut_block block;
  const bool found = offcut_find_block(pointer, &block) == OFFCUT_OK && block.address == pointer;
  const bool freed = offcut_deallocate(pointer) == OFFCUT_OK;
  if (found && freed) NotifyFreed(block);
  return freed;
}

bool Free(void* pointer) {
  return WithContext(cda::RecordContext::ALL, [pointer] {
    if (C10_UNLIKELY(SomebodyListens())) return FreeAndNotify(pointer);
    return offcut_deallocate(pointer) == OFFCUT_OK;
  });
}

// The deleter of every DataPtr of ours. It runs in destructors: a pointer that is no live block has
// been counted and recorded by the library, and that is all that can be done here.
void DeleteBlock(void* pointer) noexcept {
  if (pointer == nullptr) return;
  try {
    Free(pointer);
  } catch (...) {  // of a listener; the block itself is free
  }
}

}  // namespace

void* TorchAllocator::AllocateBlock(DeviceIndex device, cudaStream_t stream, size_t bytes) {
  CheckNotAbsurd(bytes);
  void* pointer = nullptr;
  const offcut_status status = WithContext(
      cda::RecordContext::STATE, [&] { return offcut_allocate(device, stream, bytes, &pointer); });
  if (C10_UNLIKELY(status != OFFCUT_OK)) ThrowFailed(device, bytes, status);
  if (C10_UNLIKELY(SomebodyListens())) NotifyAllocated(pointer);
  return pointer;
}

c10::DataPtr TorchAllocator::allocate(size_t bytes) {
  const DeviceIndex device = CurrentDevice();
  void* pointer = nullptr;
  if (C10_UNLIKELY(Uncached())) {
    CheckNotAbsurd(bytes);
    pointer = AllocateUncached(bytes);
    return {pointer, pointer, &DeleteUncached, c10::Device(c10::kCUDA, device)};
  }
  if (bytes != 0) {
    pointer = AllocateBlock(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes);
  }
  return {pointer, pointer, &DeleteBlock, c10::Device(c10::kCUDA, device)};
}

c10::DeleterFnPtr TorchAllocator::raw_deleter() const {
  return Uncached() ? &DeleteUncached : &DeleteBlock;
}

void* TorchAllocator::raw_alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  const DeviceIndex device = CurrentDevice();
  return AllocateBlock(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes);
}

void* TorchAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  return AllocateBlock(CurrentDevice(), stream, bytes);
}

void TorchAllocator::raw_delete(void* pointer) {
  if (pointer == nullptr) return;
  TORCH_CHECK(Free(pointer), "invalid device pointer: ", pointer, ". ", offcut_last_error());
}

void TorchAllocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  // As native: memory of somebody else's (IPC, another library) is none of ours to keep.
  if (!data.get() || data.get_deleter() != &DeleteBlock) return;
  CheckStatus(offcut_record_stream(data.get(), stream.device_index(), stream.stream()),
              "record_stream");
}

void TorchAllocator::cacheInfo(DeviceIndex device, size_t* largest_block) {
  if (*largest_block == 0) *largest_block = getMemoryInfo(device).first;
  size_t largest_free = 0;
  CheckStatus(offcut_largest_free_block(device, &largest_free), "cacheInfo");
  *largest_block = std::max(*largest_block, largest_free);
}

void* TorchAllocator::getBaseAllocation(void* pointer, size_t* size) {
  offcut_block block;
  TORCH_CHECK(offcut_find_block(pointer, &block) == OFFCUT_OK, "invalid device pointer: ", pointer,
              ". ", offcut_last_error());
  if (size != nullptr) *size = block.range_size;
  return block.range_address;
}

}  // namespace offcut::torch_shim
