// What the driver's calls for physical memory cost on the program's thread, on a real GPU, per
// handle: the median over the iterations.
//
//   Life/handle_mib/handles/ranged/second/busy
//     create, map, open (cuMemSetAccess), unmap and release that many handles. ranged: opened and
//     unmapped by one call each. second: what is measured is a second mapping of handles that are
//     mapped at other addresses too. busy: what a kernel on all multiprocessors does meanwhile: 0
//     no kernel, 1 it sleeps, 2 computes, 3 reads memory, 4 writes it, 5 adds to it (atomics), 6
//     polls a word of the host's; or a copy engine: 7 copies to the host, 8 copies from it.
//   Create/rdma/descriptor
//     cuMemCreate of 64 handles of 2 MiB, to be reached by RDMA or exported as a descriptor.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/driver/cuda_driver.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/pattern_kernels.h"

namespace offcut {
namespace {

constexpr int kIterations = 15;

// Null, with the reason in `state`, where there is no GPU.
Gpu* TheGpu(benchmark::State& state) {
  static auto& gpu = *new absl::StatusOr<std::unique_ptr<Gpu>>(Gpu::Open(0));
  if (gpu.ok()) {
    (*gpu)->MakeCurrent();
    return gpu->get();
  }
  state.SkipWithError(std::string(gpu.status().message()).c_str());
  return nullptr;
}

void Must(const absl::Status& status) { OFFCUT_CHECK(status.ok(), status.ToString()); }

// Microseconds per handle of one step, by iteration.
class Step {
 public:
  template <typename Work>
  void Time(size_t handles, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    values_.push_back(took.count() / static_cast<double>(handles));
  }
  double Median() {
    std::nth_element(values_.begin(), values_.begin() + values_.size() / 2, values_.end());
    return values_[values_.size() / 2];
  }
  double Max() const { return *std::max_element(values_.begin(), values_.end()); }

 private:
  std::vector<double> values_;
};

// Keeps the GPU busy until it is gone.
class Busy {
 public:
  static constexpr int64_t kNot = 0, kCopiesToHost = 7, kCopiesFromHost = 8;

  // Otherwise: one more than Load.
  Busy(Gpu& gpu, int64_t load)
      : gpu_(gpu),
        kernels_(gpu, 2 * kMiB),
        gate_(gpu),
        stream_(gpu.CreateStream()),
        memory_(gpu.Allocate(kBytes)),
        host_(gpu.AllocateHost(kCopyBytes)) {
    if (load != kCopiesToHost && load != kCopiesFromHost) {
      kernels_.KeepBusy(stream_, static_cast<Load>(load - 1), memory_, kBytes, gate_.Next());
      OFFCUT_CHECK(gate_.WaitStarted(), "the kernel did not start");
      return;
    }
    copier_ = std::thread([this, load] {
      gpu_.MakeCurrent();
      // Many at once, so that the engine hardly rests.
      for (int copies = 0; !stop_; ++copies) {
        gpu_.Must(load == kCopiesToHost
                      ? gpu_.f().cuMemcpyDtoHAsync(host_, memory_, kCopyBytes, stream_)
                      : gpu_.f().cuMemcpyHtoDAsync(memory_, host_, kCopyBytes, stream_),
                  "cuMemcpyAsync");
        if (copies % 16 == 15) gpu_.Must(gpu_.f().cuStreamSynchronize(stream_), "synchronize");
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ~Busy() {
    stop_ = true;
    if (copier_.joinable()) copier_.join();
    OFFCUT_CHECK(!gate_.TimedOut(), "the kernel ended too soon");
    gate_.Open();
    gpu_.Synchronize();
    gpu_.Free(memory_);
    gpu_.FreeHost(host_);
    gpu_.DestroyStream(stream_);
  }

 private:
  static constexpr Bytes kBytes = 2 * kGiB;  // more than a cache holds
  static constexpr Bytes kCopyBytes = 64 * kMiB;
  Gpu& gpu_;
  PatternKernels kernels_;
  Gate gate_;
  const CUstream stream_;
  const DevicePtr memory_;
  void* const host_;
  std::atomic<bool> stop_ = false;
  std::thread copier_;
};

void Life(benchmark::State& state) {
  Gpu* const gpu = TheGpu(state);
  if (gpu == nullptr) return;
  const Bytes bytes = static_cast<Bytes>(state.range(0)) * kMiB;
  const auto handles = static_cast<size_t>(state.range(1));
  const bool ranged = state.range(2) != 0, second = state.range(3) != 0;
  CudaDriver driver;
  Must(driver.Initialize());
  const MemoryFlags flags = *GrantedMemoryFlags(driver, 0);
  std::unique_ptr<Busy> busy;
  if (state.range(4) != Busy::kNot) busy = std::make_unique<Busy>(*gpu, state.range(4));
  const Bytes all = bytes * handles;
  const DevicePtr range = *driver.ReserveAddress(0, all, 0, 0);
  const DevicePtr other = *driver.ReserveAddress(0, all, 0, 0);
  std::vector<PhysicalHandle> memory(handles);
  const auto map = [&](DevicePtr where) {
    for (size_t i = 0; i < handles; ++i) Must(driver.Map(where + i * bytes, bytes, memory[i]));
  };
  // At once, or one handle after the other.
  const auto in_parts = [&](const auto& call) {
    if (ranged) return call(range, all);
    for (size_t i = 0; i < handles; ++i) call(range + i * bytes, bytes);
  };
  Step create, mapping, open, unmap, release;
  for (auto _ : state) {
    create.Time(handles, [&] {
      for (PhysicalHandle& handle : memory) handle = *driver.CreateMemory(0, bytes, flags);
    });
    if (second) {
      map(other);
      Must(driver.SetAccess(other, all, 0));
    }
    mapping.Time(handles, [&] { map(range); });
    open.Time(handles, [&] {
      in_parts([&](DevicePtr address, Bytes part) { Must(driver.SetAccess(address, part, 0)); });
    });
    unmap.Time(handles, [&] {
      in_parts([&](DevicePtr address, Bytes part) { Must(driver.Unmap(address, part)); });
    });
    if (second) Must(driver.Unmap(other, all));
    release.Time(handles, [&] {
      for (const PhysicalHandle handle : memory) Must(driver.ReleaseMemory(handle));
    });
  }
  state.counters["create_us"] = create.Median();
  state.counters["create_max_us"] = create.Max();
  state.counters["map_us"] = mapping.Median();
  state.counters["open_us"] = open.Median();
  state.counters["open_max_us"] = open.Max();
  state.counters["unmap_us"] = unmap.Median();
  state.counters["release_us"] = release.Median();
  Must(driver.FreeAddress(range, all));
  Must(driver.FreeAddress(other, all));
}
BENCHMARK(Life)
    ->ArgNames({"handle_mib", "handles", "ranged", "second", "busy"})
    ->ArgsProduct({{2}, {1, 8, 64, 512}, {0, 1}, {0}, {0}})
    ->ArgsProduct({{8, 32, 128, 512}, {16}, {0, 1}, {0}, {0}})
    ->ArgsProduct({{2}, {32}, {0, 1}, {0, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8}})
    ->Iterations(kIterations);

void Create(benchmark::State& state) {
  Gpu* const gpu = TheGpu(state);
  if (gpu == nullptr) return;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  properties.allocFlags.gpuDirectRDMACapable = state.range(0) != 0;
  if (state.range(1) != 0) {
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  std::vector<CUmemGenericAllocationHandle> memory(64);
  Step create;
  for (auto _ : state) {
    CUresult result = CUDA_SUCCESS;
    create.Time(memory.size(), [&] {
      for (auto& handle : memory) {
        if (result == CUDA_SUCCESS) {
          result = gpu->f().cuMemCreate(&handle, 2 * kMiB, &properties, 0);
        }
      }
    });
    if (result != CUDA_SUCCESS) {
      state.SkipWithError("this device refuses such memory");
      break;
    }
    for (const auto handle : memory) gpu->Must(gpu->f().cuMemRelease(handle), "cuMemRelease");
  }
  if (!state.error_occurred()) state.counters["create_us"] = create.Median();
}
BENCHMARK(Create)
    ->ArgNames({"rdma", "descriptor"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Iterations(kIterations);

}  // namespace
}  // namespace offcut
