// The vocabulary types that every layer shares: bytes, device addresses, identities.
//
// Owns no state. Everything here is a value; all of it is safe to use from any thread.

#ifndef OFFCUT_ALLOCATOR_BASE_UNITS_H_
#define OFFCUT_ALLOCATOR_BASE_UNITS_H_

#include <cstddef>
#include <cstdint>

// CUDA's own tag types, declared and never defined here: the same pointers that cuda.h declares,
// so that no file outside the driver needs CUDA's headers.
struct CUstream_st;
struct CUevent_st;
struct CUmemPoolHandle_st;

namespace offcut {

using Bytes = uint64_t;

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// An address in a device's (unified) address space; what CUDA calls CUdeviceptr. 0 is no address.
using DevicePtr = uint64_t;

// CUDA's ordinal of a device in this process: 0 .. device count - 1.
using DeviceIndex = int32_t;

// A stream as the program names it; nullptr is the legacy default stream.
using StreamHandle = CUstream_st*;

// What cuStreamGetId says of a stream: unique over the life of the process, where handles are
// reused once a stream is destroyed.
using StreamId = uint64_t;

using EventHandle = CUevent_st*;

// One physical allocation of the driver (CUmemGenericAllocationHandle). 0 is none.
using PhysicalHandle = uint64_t;

// A pool of stream-ordered memory that the driver keeps (CUmemoryPool).
using DriverPool = CUmemPoolHandle_st*;

// Every block starts and ends at a multiple of this: PyTorch and cuBLAS choose kernels by an
// alignment of up to 512 bytes.
inline constexpr Bytes kBlockAlignment = 512;

// Requires: `unit` is not 0, and the result fits.
constexpr Bytes RoundUp(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }
constexpr Bytes RoundDown(Bytes bytes, Bytes unit) { return bytes / unit * unit; }

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_BASE_UNITS_H_
