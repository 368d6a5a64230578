// What a driver call costs the host, as measured on an H200 (driver 580.159, CUDA 13.0): the model
// behind every modelled time of a replay.
//
// Values only. Where measurements gave a range, the value is from its upper half, so that modelled
// times do not flatter. Costs per handle do not depend on its size from 2 to 128 MiB, and one call
// over many handles costs as much as one call each; none waits for running work.

#ifndef OFFCUT_ALLOCATOR_REPLAY_DRIVER_COSTS_H_
#define OFFCUT_ALLOCATOR_REPLAY_DRIVER_COSTS_H_

#include <cstdint>

#include "allocator/base/units.h"
#include "allocator/driver/driver.h"

namespace offcut {

inline constexpr uint64_t kCreateMemoryNs = 11'000;   // 9 in batches of 128, 11-21 one by one
inline constexpr uint64_t kMapNs = 2'000;             // 0.5-1 alone, 2 in batches
inline constexpr uint64_t kSetAccessNs = 23'000;      // per handle; 20-21 in batches, 23 one by one
inline constexpr uint64_t kUnmapNs = 15'000;          // per handle; 13-17
inline constexpr uint64_t kReleaseMemoryNs = 16'000;  // 8-24

// Of a granule: 31 us were measured in batches for the first, 36-52 us for the second.
inline constexpr uint64_t kFirstMappingNs = kCreateMemoryNs + kMapNs + kSetAccessNs;
inline constexpr uint64_t kMoveNs = kMapNs + kSetAccessNs + kUnmapNs;

// Of one call, without what it costs per handle and, for AllocateMemory, by its size. 0 too for
// calls that are made a few times per run and were not measured.
constexpr uint64_t DriverCallCostNs(DriverCall call) {
  switch (call) {
    case DriverCall::kCreateMemory:
      return kCreateMemoryNs;
    case DriverCall::kMap:
      return kMapNs;
    case DriverCall::kReleaseMemory:
      return kReleaseMemoryNs;
    case DriverCall::kFreeMemory:
      return 33'000;  // half of a pair at 2 MiB, see below; without its wait for the device
    case DriverCall::kAllocateAsync:
    case DriverCall::kFreeAsync:
      return 295;  // half of a pair, 590, where the pool has what is asked for. What growing takes,
                   // and asking a pool what it holds, was not measured
    case DriverCall::kRecordEvent:
    case DriverCall::kRecordDeviceEvent:
      return 184;
    case DriverCall::kQueryEvent:
      return 127;
    case DriverCall::kIsCapturing:
      return 15;
    default:
      return 0;
  }
}

// cudaMalloc of `bytes`. Measured were pairs of cudaMalloc and cudaFree: 65 us at 2 MiB, 223 us at
// 512 MiB. Between them a line; of each pair, half.
constexpr uint64_t CudaMallocCostNs(Bytes bytes) {
  constexpr Bytes kSmall = 2 * kMiB;
  constexpr Bytes kLarge = 512 * kMiB;
  constexpr double kSmallPairNs = 65'000;
  constexpr double kLargePairNs = 223'000;
  const double beyond = bytes <= kSmall ? 0 : static_cast<double>(bytes - kSmall);
  const double slope = (kLargePairNs - kSmallPairNs) / static_cast<double>(kLarge - kSmall);
  return static_cast<uint64_t>((kSmallPairNs + beyond * slope) / 2);
}

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_DRIVER_COSTS_H_
