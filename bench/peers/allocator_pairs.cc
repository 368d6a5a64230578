// What an allocation and its free cost: PyTorch's own allocator and Offcut in one process.
//
// A shared library for allocator_pairs.py, which calls it by ctypes. Like the shim it is built
// against PyTorch's headers and libc10_cuda, so that the loops below are compiled code that calls
// the allocators as PyTorch and programs do. All on device 0 and its default stream. Not
// thread-safe.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "allocator/offcut.h"
#include "bench/peers/call_counter.h"

namespace {

namespace cca = c10::cuda::CUDACachingAllocator;
using SteadyClock = std::chrono::steady_clock;

// PyTorch's own allocator, whatever backend the environment has chosen.
cca::CUDAAllocator* own = nullptr;

// The doors through which a program allocates. Offcut is measured through its C interface and,
// where its shim is installed, as PyTorch itself calls it.
struct Own {
  static void* Allocate(size_t bytes) { return own->raw_alloc(bytes); }
  static void Free(void* pointer) { own->raw_delete(pointer); }
};

struct OwnWithStream {
  static void* Allocate(size_t bytes) { return own->raw_alloc_with_stream(bytes, nullptr); }
  static void Free(void* pointer) { own->raw_delete(pointer); }
};

struct Offcut {
  static void* Allocate(size_t bytes) {
    void* pointer = nullptr;
    if (offcut_allocate(0, nullptr, bytes, &pointer) != OFFCUT_OK) {
      throw std::runtime_error(offcut_last_error());
    }
    return pointer;
  }
  static void Free(void* pointer) {
    if (offcut_deallocate(pointer) != OFFCUT_OK) throw std::runtime_error(offcut_last_error());
  }
};

struct OffcutShim {
  static void* Allocate(size_t bytes) { return cca::get()->raw_alloc(bytes); }
  static void Free(void* pointer) { cca::get()->raw_delete(pointer); }
};

// As allocator_pairs.py writes them.
struct Spec {
  uint64_t live;       // blocks that the program holds
  uint64_t min_bytes;  // sizes are spread evenly over their logarithms
  uint64_t max_bytes;
  uint64_t threads;
  uint64_t replace;  // 1: each pair frees a random live block, then allocates another in its place;
                     // 0: it allocates max_bytes beside them, and frees that
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual void Run(uint64_t pairs) = 0;
  // Nanoseconds from the first thread's beginning to the last one's end, each with its own `pairs`.
  double RunOnThreads(uint64_t threads, uint64_t pairs) {
    std::latch ready(static_cast<ptrdiff_t>(threads));
    std::vector<SteadyClock::time_point> begins(threads);
    std::vector<SteadyClock::time_point> ends(threads);
    std::vector<std::string> errors(threads);
    std::vector<std::thread> running;
    for (uint64_t i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        // The first pairs do what a thread's first allocation does once.
        TryRun(16, errors[i]);
        ready.arrive_and_wait();
        begins[i] = SteadyClock::now();
        if (errors[i].empty()) TryRun(pairs, errors[i]);
        ends[i] = SteadyClock::now();
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const std::string& error : errors) {
      if (!error.empty()) throw std::runtime_error(error);
    }
    return std::chrono::duration<double, std::nano>(std::ranges::max(ends) -
                                                    std::ranges::min(begins))
        .count();
  }

 private:
  void TryRun(uint64_t pairs, std::string& failure) {
    try {
      Run(pairs);
    } catch (const std::exception& e) {
      failure = e.what();
    }
  }
};

template <typename Door>
class WorkloadOf final : public Workload {
 public:
  explicit WorkloadOf(const Spec& spec) : spec_(spec) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> log2_bytes(std::log2(spec.min_bytes),
                                                      std::log2(spec.max_bytes));
    // Drawn beforehand: a generator costs as much as an allocation.
    steps_.resize(1 << 16);
    for (Step& step : steps_) {
      step.bytes = static_cast<size_t>(std::exp2(log2_bytes(random)));
      step.victim = static_cast<size_t>(spec.live == 0 ? 0 : random() % spec.live);
    }
    live_.reserve(spec.live);
    // A recording is given the time to drain: what is dropped costs less than what is recorded.
    for (uint64_t i = 0; i < spec.live; ++i) {
      if (i % (1 << 16) == 0) offcut_flush_recording();
      live_.push_back(Door::Allocate(steps_[i % steps_.size()].bytes));
    }
  }

  ~WorkloadOf() override {
    for (size_t i = 0; i < live_.size(); ++i) {
      if (i % (1 << 16) == 0) offcut_flush_recording();
      Door::Free(live_[i]);
    }
  }

  void Run(uint64_t pairs) override {
    if (spec_.replace == 0) {
      for (uint64_t i = 0; i < pairs; ++i) Door::Free(Door::Allocate(spec_.max_bytes));
      return;
    }
    for (uint64_t i = 0; i < pairs; ++i) {
      const Step& step = steps_[next_++ % steps_.size()];
      Door::Free(live_[step.victim]);
      live_[step.victim] = Door::Allocate(step.bytes);
    }
  }

 private:
  struct Step {
    size_t victim;
    size_t bytes;
  };
  const Spec spec_;
  std::vector<Step> steps_;
  uint64_t next_ = 0;
  std::vector<void*> live_;
};

std::string error;

// Runs what may throw; no exception crosses into ctypes.
template <typename Function>
auto Guarded(Function&& function, decltype(function()) failed) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& e) {
    error = e.what();
    return failed;
  }
}

}  // namespace

extern "C" {

// Why the last call failed.
const char* pairs_error() { return error.c_str(); }

// Notes PyTorch's own allocator. To be called before Offcut's shim takes its place.
void pairs_remember_own() { own = cca::get(); }

// Its name: native or cudaMallocAsync.
const char* pairs_own_name() {
  static const std::string name = own->name();
  return name.c_str();
}

// Sets PyTorch's own allocator up, which PyTorch does only for the one that it uses, with its
// history (of 100,000 entries, without stacks) on or off. 0 on success.
int pairs_start_own(int with_history) {
  return Guarded(
      [&] {
        if (!own->initialized()) own->init(c10::cuda::device_count());
        if (with_history != 0) {
          own->recordHistory(true, nullptr, 100'000, cca::RecordContext::NEVER, false, {});
        }
        return 0;
      },
      -1);
}

// A workload, its live blocks allocated; NULL on failure. `door`: the index in DOORS of
// _measure.py.
Workload* pairs_open(int door, const Spec* spec) {
  return Guarded(
      [&]() -> Workload* {
        switch (door) {
          case 0:
            return new WorkloadOf<Own>(*spec);
          case 1:
            return new WorkloadOf<OwnWithStream>(*spec);
          case 2:
            return new WorkloadOf<Offcut>(*spec);
          case 3:
            return new WorkloadOf<OffcutShim>(*spec);
          default:
            throw std::runtime_error("no such door");
        }
      },
      nullptr);
}

void pairs_close(Workload* workload) { delete workload; }

// Nanoseconds that each of `threads` threads needs for a pair, at `pairs` pairs each; negative on
// failure. One thread: the caller's.
double pairs_run(Workload* workload, uint64_t threads, uint64_t pairs) {
  return Guarded(
      [&] {
        offcut_flush_recording();
        if (threads > 1) {
          return workload->RunOnThreads(threads, pairs) / static_cast<double>(pairs);
        }
        const SteadyClock::time_point begin = SteadyClock::now();
        workload->Run(pairs);
        return std::chrono::duration<double, std::nano>(SteadyClock::now() - begin).count() /
               static_cast<double>(pairs);
      },
      -1.0);
}

// Whether the call counter, preloaded, counts what is known beforehand; -1 and the error if not.
int pairs_check_counter() {
  return Guarded(
      [] {
        if (call_counter_start == nullptr) throw std::runtime_error("no call counter is preloaded");
        call_counter_start();
        for (int i = 0; i < 3; ++i) {
          void* volatile block = std::malloc(16);
          std::free(block);
        }
        for (int i = 0; i < 2; ++i) syscall(SYS_getppid);
        const CallCounts known = call_counter_stop();
        offcut_deallocate(Offcut::Allocate(4096));
        call_counter_start();
        offcut_empty_cache(0);  // waits for the device, at least
        const CallCounts release = call_counter_stop();
        const bool right = known.heap_allocations == 3 && known.driver_calls == 0 &&
                           (known.system_calls == 2 || known.system_calls == -1) &&
                           release.driver_calls > 0;
        if (!right) {
          throw std::runtime_error(
              "the call counter saw " + std::to_string(known.heap_allocations) +
              " of 3 heap allocations, " + std::to_string(known.system_calls) +
              " of 2 system calls, and " + std::to_string(release.driver_calls) +
              " driver calls in a release");
        }
        return 0;
      },
      -1);
}

// What the calling thread asks for during `pairs` pairs. Requires the call counter, preloaded. 0 on
// success.
int pairs_count(Workload* workload, uint64_t pairs, CallCounts* counts) {
  return Guarded(
      [&] {
        offcut_flush_recording();
        call_counter_start();
        workload->Run(pairs);
        *counts = call_counter_stop();
        return 0;
      },
      -1);
}

}  // extern "C"
