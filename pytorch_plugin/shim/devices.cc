// Start, limits, and copies between devices.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {

void CheckStatus(offcut_status status, const char* what) {
  if (C10_LIKELY(status == OFFCUT_OK)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(status != OFFCUT_NOT_SUPPORTED, "Offcut, ", what, ": ",
                              offcut_last_error());
  TORCH_CHECK(false, "Offcut, ", what, ": ", offcut_last_error());
}

void TorchAllocator::init(int device_count) {
  // Only grows: PyTorch may call again, with devices that appeared.
  int known = device_count_.load();
  while (known < device_count && !device_count_.compare_exchange_weak(known, device_count)) {
  }
}

bool TorchAllocator::initialized() { return device_count_.load() > 0; }

double TorchAllocator::getMemoryFraction(DeviceIndex device) {
  double fraction = 1.0;
  CheckStatus(offcut_get_memory_fraction(device, &fraction), "get_per_process_memory_fraction");
  return fraction;
}

void TorchAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  CheckStatus(offcut_set_memory_fraction(device, fraction), "set_per_process_memory_fraction");
}

void TorchAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

cudaError_t TorchAllocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                        size_t bytes, cudaStream_t stream, bool peers_enabled) {
  if (peers_enabled || to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  // Our memory is mapped, not cudaMalloc'ed: without peer access only this one copies it.
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

void TorchAllocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer) {
  // Memory that others have cudaMalloc'ed on the peer, as native does; then ours, which is mapped.
  const c10::cuda::CUDAGuard on(device);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();  // the error sticks, and is none
  } else {
    C10_CUDA_CHECK(enabled);
  }
  CheckStatus(offcut_open_to_peer(peer, device), "enablePeerAccess");
}

}  // namespace offcut::torch_shim
