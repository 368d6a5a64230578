// What a thread asks of the host and of the driver, counted: heap allocations, system calls, and
// calls of CUDA's driver. The functions exist where libcall_counter.so is preloaded.

#ifndef OFFCUT_BENCH_PEERS_CALL_COUNTER_H_
#define OFFCUT_BENCH_PEERS_CALL_COUNTER_H_

#include <cstdint>

// As _measure.py reads them.
struct CallCounts {
  int64_t heap_allocations;  // malloc and its kin, through operator new or not
  int64_t driver_calls;  // of functions that somebody has looked up by name (dlsym), as Offcut does
  int64_t system_calls;  // -1 where the kernel cannot tell; those of the vDSO are none
};

extern "C" {
// Counts for the calling thread, until stop.
[[gnu::weak]] void call_counter_start();
[[gnu::weak]] CallCounts call_counter_stop();
}

#endif  // OFFCUT_BENCH_PEERS_CALL_COUNTER_H_
