// Kernels that write patterns into memory and check them, by every path that a GPU has to memory.
//
// A pattern is named by a seed: the word at an index is a hash of both, so that a word that is
// missing, old or another's is seen as such. Writers can be held (Gate) while they keep writing:
// what the host does meanwhile happens, for certain, while work runs through the old address.

#ifndef OFFCUT_TESTS_GPU_PATTERN_KERNELS_H_
#define OFFCUT_TESTS_GPU_PATTERN_KERNELS_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "allocator/base/units.h"
#include "tests/gpu/gpu.h"

namespace offcut {

// How memory is written: name in C++, in reports, and the compute capability that has it.
#define OFFCUT_WRITE_PATHS(F)                                  \
  F(kStore, "st", 70)                                          \
  F(kStoreThrough, "st.wt", 70)                                \
  F(kExchange, "atom.exch", 70)                                \
  F(kAdd, "red.add", 70)                                       \
  F(kBulkStore, "cp.async.bulk shared to global", 90)          \
  F(kBulkAdd, "cp.reduce.async.bulk shared to global", 90)     \
  F(kTensorStore, "cp.async.bulk.tensor shared to global", 90) \
  F(kMemset, "cuMemsetD32Async", 0)                            \
  F(kCopyFromHost, "cuMemcpyHtoDAsync", 0)                     \
  F(kCopyFromDevice, "cuMemcpyDtoDAsync", 0)

// How memory is read.
#define OFFCUT_READ_PATHS(F)                                  \
  F(kLoad, "ld.ca", 70)                                       \
  F(kLoadKeep, "ld.L1::evict_last", 70)                       \
  F(kLoadL2, "ld.cg", 70)                                     \
  F(kLoadReadOnly, "ld.nc", 70)                               \
  F(kAtomic, "atom.add of 0", 70)                             \
  F(kCopyAsync, "cp.async.ca global to shared", 80)           \
  F(kBulkLoad, "cp.async.bulk global to shared", 90)          \
  F(kTensorLoad, "cp.async.bulk.tensor global to shared", 90) \
  F(kCopyToHost, "cuMemcpyDtoHAsync", 0)                      \
  F(kCopyToDevice, "cuMemcpyDtoDAsync", 0)

// What a kernel keeps a GPU busy with.
#define OFFCUT_LOADS(F) F(kSleep) F(kCompute) F(kRead) F(kWrite) F(kAtomics) F(kPollHost)

// Between a write and a read within one kernel: none, __threadfence(), fence.proxy.alias.
#define OFFCUT_FENCES(F) F(kNone) F(kDevice) F(kAliasProxy)

enum class WritePath : int {
#define OFFCUT_PATH(name, text, compute_capability) name,
  OFFCUT_WRITE_PATHS(OFFCUT_PATH)
};
enum class ReadPath : int {
  OFFCUT_READ_PATHS(OFFCUT_PATH)
#undef OFFCUT_PATH
};
enum class Load : int {
#define OFFCUT_NAME(name) name,
  OFFCUT_LOADS(OFFCUT_NAME)
};
enum class Fence : int {
  OFFCUT_FENCES(OFFCUT_NAME)
#undef OFFCUT_NAME
};

const char* Name(WritePath path);
const char* Name(ReadPath path);
std::vector<WritePath> WritePathsOf(const Gpu& gpu);
std::vector<ReadPath> ReadPathsOf(const Gpu& gpu);

// A seed whose pattern is one word throughout, as a memset writes it.
constexpr uint32_t UniformSeed(uint32_t seed) { return seed | 0x80000000u; }
// The word at `index` of the pattern `seed`.
uint32_t PatternWord(uint32_t seed, uint32_t index);

// Holds kernels that run until the host lets them on, and tells the host that all their blocks have
// begun. Rounds count up from 1. One kernel at a time. A kernel that is held too long goes on by
// itself, and TimedOut() tells.
class Gate {
 public:
  // What kernels see; no addresses: no gate.
  struct View {
    uint32_t* started = nullptr;    // host memory: the last round that all blocks have begun
    uint32_t* host_go = nullptr;    // host memory: the last round that may go on
    uint32_t* timed_out = nullptr;  // host memory
    uint32_t* go = nullptr;         // device memory: what the first block has seen of it
    uint32_t* arrived = nullptr;    // device memory: blocks that have begun
    uint32_t round = 0;
  };

  explicit Gate(const Gpu& gpu);
  ~Gate();  // opens it for good and waits for the device
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The next round, for one kernel.
  View Next();
  // Waits until all blocks of the kernel have begun; false if they do not.
  bool WaitStarted(std::chrono::milliseconds patience = std::chrono::seconds(10)) const;
  void Open();
  // A kernel in a graph passes the same round at each launch: before each, while nothing runs.
  void Rewind();
  bool TimedOut() const;

 private:
  const Gpu& gpu_;
  View view_;
};

// Counts wrong words. On the device; read when its work is done.
class Tally {
 public:
  explicit Tally(const Gpu& gpu);
  ~Tally();
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  struct Counts {
    uint32_t wrong = 0;  // words
    uint32_t index = 0;  // of the first one found
    uint32_t expected = 0;
    uint32_t found = 0;
  };
  // Waits for nothing but its own copy: the caller has synchronised.
  Counts Read() const;
  DevicePtr address() const { return address_; }

 private:
  const Gpu& gpu_;
  const DevicePtr address_;
};

// The kernels, on one device.
class PatternKernels {
 public:
  struct Options {
    uint32_t blocks = 32;
    // Written words are kept being written until the gate opens; a check only says that it began.
    Gate::View gate = {};
    uint64_t linger_ns = 0;  // how long every block stays after its work
    // Programmatic dependent launch: whether this kernel may begin before the last one ends,
    // whether it waits for that one (griddepcontrol.wait) before it touches memory, and whether it
    // lets the next one begin at once (griddepcontrol.launch_dependents).
    bool programmatic = false;
    bool wait = false;
    bool trigger = false;
    // Checks only: reads everything once, unchecked, before it waits.
    bool read_ahead = false;
    // Checks only: every block reads all words, so that they are in every L1 cache.
    bool everywhere = false;
  };

  // Paths of the host's handle up to `bytes` at a time, and one such write and one such check
  // between two calls of CheckCopies().
  PatternKernels(Gpu& gpu, Bytes bytes);
  ~PatternKernels();
  PatternKernels(const PatternKernels&) = delete;
  PatternKernels& operator=(const PatternKernels&) = delete;

  // Writes the pattern `seed` over `target`, which holds the pattern `from`. A multiple of 16 KiB.
  // Paths of the host's are first held by the gate, by a kernel of their own.
  void Write(CUstream stream, WritePath path, DevicePtr target, Bytes bytes, uint32_t from,
             uint32_t seed, const Options& options);
  // Counts the words of `source` that are not the pattern's.
  void Check(CUstream stream, ReadPath path, DevicePtr source, Bytes bytes, uint32_t seed,
             const Tally& tally, const Options& options);
  // Words that the copy to the host since the last call brought wrong; the device is synchronised.
  uint64_t CheckCopies();
  // Keeps all multiprocessors busy until the gate opens, with the caches and memory of the device
  // or with the host's.
  void KeepBusy(CUstream stream, Load load, DevicePtr memory, Bytes bytes, const Gate::View& gate);
  // Passes the gate, and does nothing else.
  void Hold(CUstream stream, const Options& options);
  // One kernel over two addresses of the same memory: all its blocks read 16 KiB through `second`,
  // one writes them through `first`, and all read them again, expecting what it wrote. Before that
  // they pass a fence.
  void CheckWithinOneKernel(CUstream stream, DevicePtr first, DevicePtr second, uint32_t seed,
                            Fence fence, const Tally& tally);
  // Stays on the device for `rounds` rounds of the gate, from `first` on; that it began a round, it
  // says when it has read `source`. In its k-th round, from 1, `source` holds the pattern
  // `seed + k % seeds`: it checks so through the L1 cache, counted in `cached`, then past it.
  void Watch(CUstream stream, DevicePtr source, Bytes bytes, uint32_t seed, uint32_t seeds,
             uint32_t rounds, const Gate::View& first, const Tally& tally, const Tally& cached,
             uint32_t blocks);

 private:
  CUtensorMap TensorMap(DevicePtr address, Bytes bytes) const;

  Gpu& gpu_;
  const Bytes bytes_;
  CUfunction write_, check_, hold_, busy_, within_, watch_;
  uint32_t* host_source_;  // page-locked, as the target
  uint32_t* host_target_;
  uint32_t host_target_words_ = 0;  // of the copy that is not checked yet
  uint32_t host_target_seed_ = 0;
  DevicePtr device_source_;
  DevicePtr device_target_;
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_GPU_PATTERN_KERNELS_H_
