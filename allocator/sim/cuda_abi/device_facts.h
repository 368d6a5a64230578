// What CUDA tells about a simulated device: the card's own numbers, and what all its kind share.
//
// Values only; safe from any thread.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_DEVICE_FACTS_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_DEVICE_FACTS_H_

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

#include "allocator/base/units.h"
#include "allocator/sim/cards.h"

namespace offcut::cuda_abi {

inline constexpr int kCudaVersion = 13000;  // of the runtime and of the driver
// As on real cards: 0 is the lowest priority.
inline constexpr int kStreamPriorityLowest = 0;
inline constexpr int kStreamPriorityHighest = -5;

cudaDeviceProp DeviceProperties(const sim::SimOptions& machine, DeviceIndex device);

// `attribute` by the number that cudaDeviceAttr and CUdevice_attribute share; nullopt if we know no
// value for it.
std::optional<int> DeviceAttribute(const sim::SimOptions& machine, DeviceIndex device,
                                   int attribute);

// "0000:01:00.0"
std::string PciBusId(DeviceIndex device);

// Blocks of `threads` threads that a multiprocessor holds, by its number of threads alone. CUB
// sizes its temporary memory by it.
int BlocksPerMultiprocessor(const sim::Card& card, int threads);

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_DEVICE_FACTS_H_
