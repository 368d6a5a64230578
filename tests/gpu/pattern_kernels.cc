#include "tests/gpu/pattern_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"

namespace offcut {
namespace {

constexpr uint32_t kChunkWords = 4096;  // what a block writes or reads at a time
constexpr uint32_t kTensorRow = 64;     // words

// Without its enumerations and constants, which Source() puts before it.
constexpr char kKernels[] = R"cuda(
typedef unsigned int u32;
typedef unsigned long long u64;
struct Gate {
  volatile u32* started;
  volatile u32* host_go;
  volatile u32* timed_out;
  volatile u32* go;
  u32* arrived;
  u32 round;
};
struct Tally {
  u32 wrong, index, expected, found;
};
struct alignas(64) TensorMap {
  u64 opaque[16];
};

constexpr u64 kGateTimeoutNs = 10000000000;

__device__ u64 Now() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ u32 Shared(const void* address) { return (u32)__cvta_generic_to_shared(address); }

// PatternWord of the host's.
__device__ u32 Word(u32 seed, u32 index) {
  if (seed >> 31) return seed;
  u32 x = seed * 0x9E3779B1u ^ index * 0x85EBCA6Bu;
  x = (x ^ x >> 15) * 0x2C1B3C6Du;
  x = (x ^ x >> 12) * 0x297A2D39u;
  return x ^ x >> 15;
}

__device__ void Count(Tally* tally, u32 index, u32 expected, u32 found) {
  if (expected == found) return;
  if (atomicAdd(&tally->wrong, 1) != 0) return;
  tally->index = index;
  tally->expected = expected;
  tally->found = found;
}

// Tells the host once all blocks are here. Without a fence, here and in what follows: each would
// empty the L1 cache, and hide what the tests look for.
__device__ void Arrive(const Gate& gate, u32 round) {
  __syncthreads();
  if (gate.started == nullptr || threadIdx.x != 0) return;
  if (atomicInc(gate.arrived, gridDim.x - 1) == gridDim.x - 1) *gate.started = round;
}

// The same answer in all threads of the block.
__device__ bool MayPass(const Gate& gate, u32 round, u64 since) {
  int passed = 0;
  if (threadIdx.x == 0) {
    // One reader of the host's memory: many slow down whatever changes mappings.
    if (blockIdx.x == 0) *gate.go = *gate.host_go;
    passed = *gate.go >= round;
    if (!passed && Now() - since > kGateTimeoutNs) passed = *gate.timed_out = 1;
  }
  return __syncthreads_or(passed) != 0;
}

// False if it was held too long.
__device__ bool Pass(const Gate& gate, u32 round) {
  const u64 since = Now();
  while (!MayPass(gate, round, since)) __nanosleep(500);
  return Now() - since < kGateTimeoutNs;
}

__device__ void Linger(u64 ns) {
  const u64 since = Now();
  while (ns != 0 && Now() - since < ns) __nanosleep(500);
}

__device__ void LaunchDependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ void WaitForDependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- Writing ---

__device__ void StoreChunk(WritePath path, u32* target, u32 row, const TensorMap* map,
                           const u32* chunk) {
#if __CUDA_ARCH__ >= 900
  const u64 global = __cvta_generic_to_global(target);
  if (path == WritePath::kBulkStore) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(Shared(chunk)), "r"(kChunkWords * 4) : "memory");
  } else if (path == WritePath::kBulkAdd) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(global),
                 "r"(Shared(chunk)), "r"(kChunkWords * 4) : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(0), "r"(row), "r"(Shared(chunk)) : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// This block's part of `target`, which holds the pattern `from`, becomes the pattern `seed`.
__device__ void WritePass(WritePath path, u32* target, u32 words, u32 from, u32 seed,
                          const TensorMap* map, u32* chunk) {
  const bool by_chunk = path == WritePath::kBulkStore || path == WritePath::kBulkAdd ||
                        path == WritePath::kTensorStore;
  for (u32 begin = blockIdx.x * kChunkWords; begin < words; begin += gridDim.x * kChunkWords) {
    for (u32 i = threadIdx.x; i < kChunkWords; i += blockDim.x) {
      u32* const word = target + begin + i;
      const u32 value = Word(seed, begin + i);
      const u32 difference = value - Word(from, begin + i);
      if (path == WritePath::kStore) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
      } else if (path == WritePath::kStoreThrough) {
        asm volatile("st.global.wt.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
      } else if (path == WritePath::kExchange) {
        asm volatile("atom.global.exch.b32 _, [%0], %1;" ::"l"(word), "r"(value) : "memory");
      } else if (path == WritePath::kAdd) {
        asm volatile("red.global.add.u32 [%0], %1;" ::"l"(word), "r"(difference) : "memory");
      } else {
        chunk[i] = path == WritePath::kBulkAdd ? difference : value;
      }
    }
    if (!by_chunk) continue;
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
    if (threadIdx.x == 0) StoreChunk(path, target + begin, begin / kTensorRow, map, chunk);
    __syncthreads();
  }
}

extern "C" __global__ void write_words(u32* target, u32 words, u32 from, u32 seed, WritePath path,
                                       Gate gate, u64 linger_ns, int wait, int trigger,
                                       const __grid_constant__ TensorMap map) {
  __shared__ alignas(128) u32 chunk[kChunkWords];
  if (trigger) LaunchDependents();
  if (wait) WaitForDependencies();
  if (gate.started != nullptr) {
    const u64 since = Now();
    bool arrived = false;
    // Other words each time, so that the last ones count.
    for (u32 other = seed ^ 0x2AAAAAAA;; other = (other + 1) & 0x7FFFFFFF) {
      WritePass(path, target, words, from, other, &map, chunk);
      from = other;
      if (!arrived) Arrive(gate, gate.round);
      arrived = true;
      if (MayPass(gate, gate.round, since)) break;
      __nanosleep(500);
    }
  }
  WritePass(path, target, words, from, seed, &map, chunk);
  Linger(linger_ns);
}

// --- Reading ---

__device__ u32 LoadWord(ReadPath path, const u32* word) {
  u32 value = 0;
  if (path == ReadPath::kLoad) {
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  } else if (path == ReadPath::kLoadKeep) {
    asm volatile("ld.global.L1::evict_last.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  } else if (path == ReadPath::kLoadL2) {
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  } else if (path == ReadPath::kLoadReadOnly) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  } else {
    asm volatile("atom.global.add.u32 %0, [%1], 0;" : "=r"(value) : "l"(word) : "memory");
  }
  return value;
}

// `loads`: of this block by this function so far.
__device__ void LoadChunk(ReadPath path, const u32* source, u32 row, const TensorMap* map, u32* chunk,
                          u64* barrier, u32 loads) {
  __syncthreads();  // the last chunk has been looked at
  if (path == ReadPath::kCopyAsync) {
#if __CUDA_ARCH__ >= 800
    for (u32 i = threadIdx.x * 4; i < kChunkWords; i += blockDim.x * 4) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(Shared(chunk + i)),
                   "l"(__cvta_generic_to_global(source + i)) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
    return;
  }
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(Shared(barrier)),
                 "r"(kChunkWords * 4) : "memory");
    if (path == ReadPath::kBulkLoad) {
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       Shared(chunk)),
                   "l"(__cvta_generic_to_global(source)), "r"(kChunkWords * 4), "r"(Shared(barrier)) : "memory");
    } else {
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
              Shared(chunk)),
          "l"(map), "r"(0), "r"(row), "r"(Shared(barrier)) : "memory");
    }
  }
  u32 done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(Shared(barrier)), "r"(loads & 1) : "memory");
  }
#endif
}

// Uses what was read, or the assembler would leave the reading out.
__device__ void Use(u32 sum, Tally* tally) {
  if (sum == 0x9E3779B9) tally->found = sum;
}

extern "C" __global__ void check_words(const u32* source, u32 words, u32 seed, ReadPath path,
                                       Tally* tally, Gate gate, u64 linger_ns, int wait, int trigger,
                                       int read_ahead, int everywhere,
                                       const __grid_constant__ TensorMap map) {
  __shared__ alignas(128) u32 chunk[kChunkWords];
  __shared__ alignas(8) u64 barrier;
  if (trigger) LaunchDependents();
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(Shared(&barrier)) : "memory");
#endif
  __syncthreads();
  const bool by_chunk = path == ReadPath::kCopyAsync || path == ReadPath::kBulkLoad ||
                        path == ReadPath::kTensorLoad;
  u32 loads = 0, sum = 0;
  for (int pass = read_ahead ? 0 : 1; pass < 2; ++pass) {
    if (pass == 1) {
      Arrive(gate, gate.round);
      if (wait) WaitForDependencies();
    }
    const u32 first = everywhere ? 0 : blockIdx.x * kChunkWords;
    const u32 stride = everywhere ? kChunkWords : gridDim.x * kChunkWords;
    for (u32 begin = first; begin < words; begin += stride) {
      if (by_chunk) LoadChunk(path, source + begin, begin / kTensorRow, &map, chunk, &barrier, loads++);
      for (u32 i = threadIdx.x; i < kChunkWords; i += blockDim.x) {
        const u32 found = by_chunk ? chunk[i] : LoadWord(path, source + begin + i);
        if (pass == 1) Count(tally, begin + i, Word(seed, begin + i), found);
        sum = sum * 31 + found;
      }
    }
    Use(sum, tally);
  }
  Linger(linger_ns);
}

// --- Special cases ---

extern "C" __global__ void hold(Gate gate, int wait, int trigger) {
  if (trigger) LaunchDependents();
  if (wait) WaitForDependencies();
  if (gate.started == nullptr) return;
  Arrive(gate, gate.round);
  Pass(gate, gate.round);
}

// All blocks, until the gate opens. `host`: a word of host memory.
extern "C" __global__ void keep_busy(Load load, u32* memory, u64 words, volatile u32* host, Gate gate) {
  Arrive(gate, gate.round);
  const u64 since = Now(), stride = (u64)gridDim.x * blockDim.x * 4;
  u64 at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
  u32 sum = 1;
  while (!MayPass(gate, gate.round, since)) {
    if (load == Load::kSleep) __nanosleep(1000);
    if (load == Load::kPollHost && threadIdx.x == 0) sum += *host;
    for (u32 i = 0; i < 256; ++i) {
      if (load == Load::kCompute) {
        for (u32 k = 0; k < 64; ++k) sum = sum * 1664525u + 1013904223u;
      } else if (load == Load::kRead) {
        const uint4 read = __ldcg((const uint4*)(memory + at));
        sum += read.x ^ read.y ^ read.z ^ read.w;
      } else if (load == Load::kWrite) {
        *(uint4*)(memory + at) = make_uint4(sum, i, sum, i);
      } else if (load == Load::kAtomics) {
        atomicAdd(memory + at, sum);
      }
      at += stride;
      if (at >= words) at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    }
  }
  if (sum == 0) *memory = sum;
}

// All blocks run at once. `met` counts up and is never reset.
__device__ void Meet(u32* met, u32 times) {
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(met, 1);
    const u64 since = Now();
    while (*(volatile u32*)met < times * gridDim.x && Now() - since < kGateTimeoutNs) __nanosleep(100);
  }
  __syncthreads();
}

extern "C" __global__ void check_within(u32* first, const u32* second, u32 seed, Fence fence, u32* met,
                                        Tally* tally) {
  u32 sum = 0;
  for (u32 i = threadIdx.x; i < kChunkWords; i += blockDim.x) {
    sum = sum * 31 + LoadWord(ReadPath::kLoad, second + i);
  }
  Use(sum, tally);
  Meet(met, 1);
  if (blockIdx.x == 0) {
    for (u32 i = threadIdx.x; i < kChunkWords; i += blockDim.x) first[i] = Word(seed, i);
    __threadfence();
  }
  Meet(met, 2);
  if (fence == Fence::kDevice) __threadfence();
  if (fence == Fence::kAliasProxy) asm volatile("fence.proxy.alias;" ::: "memory");
  for (u32 i = threadIdx.x; i < kChunkWords; i += blockDim.x) {
    Count(tally, i, Word(seed, i), LoadWord(ReadPath::kLoad, second + i));
  }
}

extern "C" __global__ void watch(const u32* source, u32 words, u32 seed, u32 seeds, u32 rounds,
                                 Gate gate, Tally* tally, Tally* cached) {
  u32 sum = 0;
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) {
    sum = sum * 31 + LoadWord(ReadPath::kLoad, source + i);
  }
  Use(sum, tally);
  for (u32 k = 1; k <= rounds; ++k) {
    const u32 round = gate.round + k - 1;
    Arrive(gate, round);
    if (__syncthreads_or(!Pass(gate, round))) return;
    const u32 now = seed + k % seeds;
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) {
      Count(cached, i, Word(now, i), LoadWord(ReadPath::kLoad, source + i));
    }
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) {
      Count(tally, i, Word(now, i), LoadWord(ReadPath::kLoadL2, source + i));
    }
  }
  Arrive(gate, gate.round + rounds);
}
)cuda";

std::string Source() {
  std::string source = "enum class WritePath : int {";
#define OFFCUT_PATH(name, text, compute_capability) absl::StrAppend(&source, #name, ",");
  OFFCUT_WRITE_PATHS(OFFCUT_PATH)
  absl::StrAppend(&source, "};\nenum class ReadPath : int {");
  OFFCUT_READ_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
#define OFFCUT_NAME(name) absl::StrAppend(&source, #name, ",");
  absl::StrAppend(&source, "};\nenum class Load : int {");
  OFFCUT_LOADS(OFFCUT_NAME)
  absl::StrAppend(&source, "};\nenum class Fence : int {");
  OFFCUT_FENCES(OFFCUT_NAME)
#undef OFFCUT_NAME
  absl::StrAppend(&source, "};\nconstexpr unsigned kChunkWords = ", kChunkWords,
                  ", kTensorRow = ", kTensorRow, ";\n", kKernels);
  return source;
}

uint32_t Words(Bytes bytes) {
  OFFCUT_CHECK(bytes % (kChunkWords * 4) == 0, "patterns are of whole chunks");
  return static_cast<uint32_t>(bytes / 4);
}

}  // namespace

const char* Name(WritePath path) {
  switch (path) {
#define OFFCUT_PATH(name, text, compute_capability) \
  case WritePath::name:                             \
    return text;
    OFFCUT_WRITE_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
  }
  return "";
}

const char* Name(ReadPath path) {
  switch (path) {
#define OFFCUT_PATH(name, text, compute_capability) \
  case ReadPath::name:                              \
    return text;
    OFFCUT_READ_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
  }
  return "";
}

std::vector<WritePath> WritePathsOf(const Gpu& gpu) {
  std::vector<WritePath> paths;
#define OFFCUT_PATH(name, text, least) \
  if (gpu.compute_capability() >= least) paths.push_back(WritePath::name);
  OFFCUT_WRITE_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
  return paths;
}

std::vector<ReadPath> ReadPathsOf(const Gpu& gpu) {
  std::vector<ReadPath> paths;
#define OFFCUT_PATH(name, text, least) \
  if (gpu.compute_capability() >= least) paths.push_back(ReadPath::name);
  OFFCUT_READ_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
  return paths;
}

uint32_t PatternWord(uint32_t seed, uint32_t index) {
  if (seed >> 31 != 0) return seed;
  uint32_t x = seed * 0x9E3779B1u ^ index * 0x85EBCA6Bu;
  x = (x ^ x >> 15) * 0x2C1B3C6Du;
  x = (x ^ x >> 12) * 0x297A2D39u;
  return x ^ x >> 15;
}

// --- Gate ---

namespace {

// The GPU writes and reads these meanwhile.
uint32_t ReadShared(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
void WriteShared(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

}  // namespace

Gate::Gate(const Gpu& gpu) : gpu_(gpu) {
  auto* page = static_cast<uint32_t*>(gpu.AllocateHost(4 * kKiB));
  auto* words = reinterpret_cast<uint32_t*>(gpu.Allocate(256));
  // Apart: each is written by one side.
  view_ = {.started = page,
           .host_go = page + 64,
           .timed_out = page + 128,
           .go = words,
           .arrived = words + 32};
}

Gate::~Gate() {
  WriteShared(view_.host_go, UINT32_MAX);
  gpu_.Synchronize();
  gpu_.Free(reinterpret_cast<DevicePtr>(view_.go));
  gpu_.FreeHost(view_.started);
}

Gate::View Gate::Next() {
  ++view_.round;
  return view_;
}

void Gate::Rewind() {
  WriteShared(view_.started, 0);
  WriteShared(view_.host_go, 0);
  gpu_.MakeCurrent();
  gpu_.Must(gpu_.f().cuMemsetD32Async(reinterpret_cast<DevicePtr>(view_.go), 0, 1, nullptr),
            "cuMemsetD32Async");
  gpu_.Must(gpu_.f().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

bool Gate::WaitStarted(std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (ReadShared(view_.started) < view_.round) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void Gate::Open() { WriteShared(view_.host_go, view_.round); }

bool Gate::TimedOut() const { return ReadShared(view_.timed_out) != 0; }

// --- Tally ---

Tally::Tally(const Gpu& gpu) : gpu_(gpu), address_(gpu.Allocate(sizeof(Counts))) {}

Tally::~Tally() { gpu_.Free(address_); }

Tally::Counts Tally::Read() const {
  gpu_.MakeCurrent();
  Counts counts;
  gpu_.Must(gpu_.f().cuMemcpyDtoH(&counts, address_, sizeof(counts)), "cuMemcpyDtoH");
  return counts;
}

// --- PatternKernels ---

PatternKernels::PatternKernels(Gpu& gpu, Bytes bytes) : gpu_(gpu), bytes_(bytes) {
  const CUmodule module = gpu.Compile(Source());
  write_ = gpu.Kernel(module, "write_words");
  check_ = gpu.Kernel(module, "check_words");
  hold_ = gpu.Kernel(module, "hold");
  busy_ = gpu.Kernel(module, "keep_busy");
  within_ = gpu.Kernel(module, "check_within");
  watch_ = gpu.Kernel(module, "watch");
  host_source_ = static_cast<uint32_t*>(gpu.AllocateHost(bytes));
  host_target_ = static_cast<uint32_t*>(gpu.AllocateHost(bytes));
  device_source_ = gpu.Allocate(bytes);
  device_target_ = gpu.Allocate(bytes);
}

PatternKernels::~PatternKernels() {
  gpu_.Synchronize();
  gpu_.FreeHost(host_source_);
  gpu_.FreeHost(host_target_);
  gpu_.Free(device_source_);
  gpu_.Free(device_target_);
}

CUtensorMap PatternKernels::TensorMap(DevicePtr address, Bytes bytes) const {
  CUtensorMap map = {};
  if (gpu_.compute_capability() < 90) return map;
  const cuuint64_t sizes[] = {kTensorRow, Words(bytes) / kTensorRow};
  const cuuint64_t strides[] = {kTensorRow * 4};
  const cuuint32_t box[] = {kTensorRow, kChunkWords / kTensorRow};
  const cuuint32_t element_strides[] = {1, 1};
  gpu_.Must(
      gpu_.f().cuTensorMapEncodeTiled(
          &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, reinterpret_cast<void*>(address), sizes, strides,
          box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeTiled");
  return map;
}

void PatternKernels::Write(CUstream stream, WritePath path, DevicePtr target, Bytes bytes,
                           uint32_t from, uint32_t seed, const Options& options) {
  const uint32_t words = Words(bytes);
  const bool by_copy = path == WritePath::kCopyFromHost || path == WritePath::kCopyFromDevice;
  if (!by_copy && path != WritePath::kMemset) {
    const CUtensorMap map =
        path == WritePath::kTensorStore ? TensorMap(target, bytes) : CUtensorMap{};
    gpu_.Launch(stream, write_, {.blocks = options.blocks, .programmatic = options.programmatic},
                target, words, from, seed, path, options.gate, options.linger_ns, int{options.wait},
                int{options.trigger}, map);
    return;
  }
  if (options.gate.started != nullptr) Hold(stream, options);
  if (path == WritePath::kMemset) {
    OFFCUT_CHECK(seed == UniformSeed(seed), "a memset writes one word throughout");
    gpu_.Must(gpu_.f().cuMemsetD32Async(target, seed, words, stream), "cuMemsetD32Async");
    return;
  }
  OFFCUT_CHECK(bytes <= bytes_, "more than a copy takes");
  if (path == WritePath::kCopyFromHost) {
    for (uint32_t i = 0; i < words; ++i) host_source_[i] = PatternWord(seed, i);
    gpu_.Must(gpu_.f().cuMemcpyHtoDAsync(target, host_source_, bytes, stream), "cuMemcpyHtoDAsync");
  } else {
    Write(stream, WritePath::kStore, device_source_, bytes, 0, seed, {});
    gpu_.Must(gpu_.f().cuMemcpyDtoDAsync(target, device_source_, bytes, stream),
              "cuMemcpyDtoDAsync");
  }
}

void PatternKernels::Check(CUstream stream, ReadPath path, DevicePtr source, Bytes bytes,
                           uint32_t seed, const Tally& tally, const Options& options) {
  const uint32_t words = Words(bytes);
  if (path == ReadPath::kCopyToHost) {
    OFFCUT_CHECK(bytes <= bytes_ && host_target_words_ == 0, "the last copy has to be checked");
    gpu_.Must(gpu_.f().cuMemcpyDtoHAsync(host_target_, source, bytes, stream), "cuMemcpyDtoHAsync");
    host_target_words_ = words;
    host_target_seed_ = seed;
    return;
  }
  if (path == ReadPath::kCopyToDevice) {
    OFFCUT_CHECK(bytes <= bytes_, "more than a copy takes");
    gpu_.Must(gpu_.f().cuMemcpyDtoDAsync(device_target_, source, bytes, stream),
              "cuMemcpyDtoDAsync");
    Check(stream, ReadPath::kLoadL2, device_target_, bytes, seed, tally, {});
    return;
  }
  const CUtensorMap map = path == ReadPath::kTensorLoad ? TensorMap(source, bytes) : CUtensorMap{};
  gpu_.Launch(stream, check_, {.blocks = options.blocks, .programmatic = options.programmatic},
              source, words, seed, path, tally.address(), options.gate, options.linger_ns,
              int{options.wait}, int{options.trigger}, int{options.read_ahead},
              int{options.everywhere}, map);
}

uint64_t PatternKernels::CheckCopies() {
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < host_target_words_; ++i) {
    wrong += host_target_[i] != PatternWord(host_target_seed_, i);
  }
  host_target_words_ = 0;
  return wrong;
}

void PatternKernels::Hold(CUstream stream, const Options& options) {
  gpu_.Launch(stream, hold_, {.blocks = 1, .threads = 32, .programmatic = options.programmatic},
              options.gate, int{options.wait}, int{options.trigger});
}

void PatternKernels::KeepBusy(CUstream stream, Load load, DevicePtr memory, Bytes bytes,
                              const Gate::View& gate) {
  constexpr uint32_t kThreads = 512;
  const uint32_t blocks = gpu_.processors() * (load == Load::kPollHost ? 1 : 2);
  OFFCUT_CHECK(bytes >= Bytes{blocks} * kThreads * 16, "less memory than threads");
  gpu_.Launch(stream, busy_, {.blocks = blocks, .threads = kThreads}, load, memory,
              uint64_t{bytes / 4}, host_source_, gate);
}

void PatternKernels::CheckWithinOneKernel(CUstream stream, DevicePtr first, DevicePtr second,
                                          uint32_t seed, Fence fence, const Tally& tally) {
  gpu_.Must(gpu_.f().cuMemsetD32Async(device_target_, 0, 1, stream), "cuMemsetD32Async");
  gpu_.Launch(stream, within_, {.blocks = gpu_.processors()}, first, second, seed, fence,
              device_target_, tally.address());
}

void PatternKernels::Watch(CUstream stream, DevicePtr source, Bytes bytes, uint32_t seed,
                           uint32_t seeds, uint32_t rounds, const Gate::View& first,
                           const Tally& tally, const Tally& cached, uint32_t blocks) {
  gpu_.Launch(stream, watch_, {.blocks = blocks}, source, Words(bytes), seed, seeds, rounds, first,
              tally.address(), cached.address());
}

}  // namespace offcut
