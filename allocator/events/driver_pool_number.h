// DriverPoolNumber: how events name the driver's pools of stream-ordered memory of one device.
//
// Constants only.

#ifndef OFFCUT_ALLOCATOR_EVENTS_DRIVER_POOL_NUMBER_H_
#define OFFCUT_ALLOCATOR_EVENTS_DRIVER_POOL_NUMBER_H_

#include <cstdint>

namespace offcut {

using DriverPoolNumber = uint32_t;

// The one that all default pools share.
inline constexpr DriverPoolNumber kDefaultDriverPool = 0;
// Not pools, but memory of CUDA graphs, by whose blocks lie in it. It counts as held for as long as
// the program holds the block: what a graph needs beyond that is its own.
inline constexpr DriverPoolNumber kGraphMemory = 1;
inline constexpr DriverPoolNumber kPrivateGraphMemory = 2;
// Private pools have numbers from here on, each its own; none is given out twice.
inline constexpr DriverPoolNumber kFirstPrivateDriverPool = 3;

// Whether what is free in it is free in a private pool.
constexpr bool IsPrivateDriverPool(DriverPoolNumber number) {
  return number >= kPrivateGraphMemory;
}

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_DRIVER_POOL_NUMBER_H_
