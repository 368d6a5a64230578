// What CUDA keeps per thread: the stack of contexts, the last error, the launch being configured;
// and the one way in which this library speaks.
//
// Thread-safe: everything is the calling thread's own.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_THREAD_STATE_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_THREAD_STATE_H_

#include "allocator/base/units.h"

namespace offcut::cuda_abi {

inline constexpr int kContextDepthMax = 64;

// Trivially destructible, because destructors of other thread-local objects call CUDA too.
struct ThreadState {
  // Devices whose primary contexts were pushed; the last is current. The runtime makes device 0
  // current at a thread's first need of a device.
  DeviceIndex contexts[kContextDepthMax];
  int context_depth;
  int last_error;  // what cudaGetLastError returns next
};

ThreadState& CurrentThread();

// Remembers `error` for cudaGetLastError, unless it is success; returns it.
int SetRuntimeError(int error);

// "simulated CUDA: <message>" on standard error, in one write.
void Report(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_THREAD_STATE_H_
