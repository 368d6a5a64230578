#include "allocator/sim/cuda_abi/device_facts.h"

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace offcut::cuda_abi {
namespace {

constexpr int kBlocksMax = 32;
constexpr int kThreadsPerBlockMax = 1024;
constexpr int kSharedPerBlockBytes = 48 * 1024;
constexpr int kRegisters = 65536;
constexpr int kReservedSharedBytes = 1024;

void Fill(int* values, std::initializer_list<int> with) {
  std::copy(with.begin(), with.end(), values);
}

// What no program decides by, but some print.
void FillTextureLimits(cudaDeviceProp* p) {
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->surfaceAlignment = 512;
  p->maxTexture1D = p->maxTextureCubemap = p->maxSurface1D = p->maxSurfaceCubemap = 32768;
  p->maxTexture1DMipmap = 32768;
  Fill(p->maxTexture2D, {131072, 65536});
  Fill(p->maxTexture2DMipmap, {32768, 32768});
  Fill(p->maxTexture2DLinear, {131072, 65000, 2097120});
  Fill(p->maxTexture2DGather, {32768, 32768});
  Fill(p->maxTexture3D, {16384, 16384, 16384});
  Fill(p->maxTexture3DAlt, {8192, 8192, 32768});
  Fill(p->maxTexture1DLayered, {32768, 2048});
  Fill(p->maxTexture2DLayered, {32768, 32768, 2048});
  Fill(p->maxTextureCubemapLayered, {32768, 2046});
  Fill(p->maxSurface2D, {131072, 65536});
  Fill(p->maxSurface3D, {16384, 16384, 16384});
  Fill(p->maxSurface1DLayered, {32768, 2048});
  Fill(p->maxSurface2DLayered, {32768, 32768, 2048});
  Fill(p->maxSurfaceCubemapLayered, {32768, 2046});
}

}  // namespace

cudaDeviceProp DeviceProperties(const sim::SimOptions& machine, DeviceIndex device) {
  const sim::Card& card = *machine.card;
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", card.name);
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "offcut-sim-%03d", device);
  p.totalGlobalMem = machine.TotalBytes();
  p.major = card.major;
  p.minor = card.minor;
  p.multiProcessorCount = card.multiprocessors;
  p.l2CacheSize = card.l2_bytes;
  p.persistingL2CacheMaxSize = card.l2_bytes / 4 * 3;
  p.accessPolicyMaxWindowSize = 128 * 1024 * 1024;
  p.memoryBusWidth = card.bus_bits;
  p.gpuPciDeviceID = card.pci_device_id;
  p.maxThreadsPerMultiProcessor = card.threads_per_multiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksMax;
  p.sharedMemPerBlock = kSharedPerBlockBytes;
  p.sharedMemPerBlockOptin = static_cast<size_t>(card.shared_block_optin_bytes);
  p.sharedMemPerMultiprocessor = static_cast<size_t>(card.shared_multiprocessor_bytes);
  p.reservedSharedMemPerBlock = kReservedSharedBytes;
  p.regsPerBlock = p.regsPerMultiprocessor = kRegisters;
  p.warpSize = 32;
  p.maxThreadsPerBlock = kThreadsPerBlockMax;
  Fill(p.maxThreadsDim, {1024, 1024, 64});
  Fill(p.maxGridSize, {2147483647, 65535, 65535});
  p.totalConstMem = 65536;
  p.memPitch = 2147483647;
  p.pciBusID = device + 1;
  p.asyncEngineCount = 3;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = 1;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.computePreemptionSupported = p.canUseHostPointerForRegisteredMem = p.cooperativeLaunch = 1;
  p.hostRegisterSupported = p.unifiedFunctionPointers = p.memoryPoolsSupported = 1;
  p.clusterLaunch = card.major >= 9;
  p.hostNumaId = -1;
  p.deviceNumaId = -1;
  FillTextureLimits(&p);
  return p;
}

std::optional<int> DeviceAttribute(const sim::SimOptions& machine, DeviceIndex device,
                                   int attribute) {
  const cudaDeviceProp p = DeviceProperties(machine, device);
  const sim::Card& card = *machine.card;
  switch (attribute) {
#define OFFCUT_ATTRIBUTE(name, value) \
  case CU_DEVICE_ATTRIBUTE_##name:    \
    return static_cast<int>(value);
#include "allocator/sim/cuda_abi/attributes.def"
#undef OFFCUT_ATTRIBUTE
    default:
      return std::nullopt;
  }
}

std::string PciBusId(DeviceIndex device) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", device + 1);
  return text;
}

int BlocksPerMultiprocessor(const sim::Card& card, int threads) {
  return std::min(kBlocksMax, card.threads_per_multiprocessor / std::max(threads, 1));
}

}  // namespace offcut::cuda_abi
