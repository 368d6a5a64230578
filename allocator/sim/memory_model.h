// MemoryModel: the memory of the simulated devices. Address space, physical handles, mappings and
// access, and cudaMalloc-style allocations, with real limits and real out of memory.
//
// Stricter than hardware: what hardware forgives (a double free, an unmap of memory that submitted
// work still uses, a range that is not exactly a mapping) fails with what was wrong and where. It
// knows nothing of streams; the caller says until when work uses a range (MarkUsed). With
// Backing::kHostMemory, device addresses are addresses of this process and hold data; with kNone
// they are only numbers, and the model needs no memory.
//
// Errors are DriverErrors (see driver.h) named after the CUDA function. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_MEMORY_MODEL_H_
#define OFFCUT_ALLOCATOR_SIM_MEMORY_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/cards.h"
#include "allocator/sim/host_backing.h"
#include "allocator/sim/id_table.h"
#include "allocator/sim/mapping_table.h"
#include "allocator/sim/sim_clock.h"

namespace offcut::sim {

enum class Access : uint8_t { kNone, kRead, kReadWrite };

enum class PointerKind : uint8_t {
  kAllocation,  // of AllocateMemory
  kMapping,     // of Map, whether or not access is open
  kReserved,    // reserved address space, nothing mapped there
  kHost,        // page-locked host memory (RegisterHost)
};

// What an address lies in.
struct PointerInfo {
  PointerKind kind;
  DeviceIndex device;  // that owns the memory; of kReserved and kHost: that was named then
  DevicePtr base;      // of the allocation, the one mapping, the reservation
  Bytes bytes;
  PhysicalHandle handle;  // of kMapping, else 0
  uint64_t buffer_id;     // CU_POINTER_ATTRIBUTE_BUFFER_ID: unique over the process's life
};

// What exists now; all zero after a tidy program. Leaks are what is left.
struct MemoryCensus {
  uint64_t reservations = 0, handles = 0, mappings = 0, allocations = 0, host_ranges = 0;
  Bytes reserved_address_bytes = 0, physical_bytes = 0, mapped_bytes = 0, allocation_bytes = 0;
};

class MemoryModel {
 public:
  // `backing` null: Backing::kNone. `clock` must outlive the model. Where nothing backs them,
  // addresses start at `address_base`, and hints reach all of [kAddressMin, kAddressEnd).
  MemoryModel(const SimOptions& options, std::unique_ptr<HostBacking> backing, SimClock* clock,
              DevicePtr address_base);
  ~MemoryModel();

  static constexpr DevicePtr kAddressMin = uint64_t{1} << 32;
  static constexpr DevicePtr kAddressEnd = uint64_t{1} << 47;

  int device_count() const { return device_count_; }
  bool backed() const { return backing_ != nullptr; }

  // --- The device (cuMemGetInfo and its script) ---
  struct Info {
    Bytes total_bytes, free_bytes;
    Bytes ours_bytes;  // handles and allocations
  };
  absl::StatusOr<Info> GetInfo(DeviceIndex device) const;
  // Memory in use by others from now on (contexts, libraries, other processes).
  absl::Status SetOutsideBytes(DeviceIndex device, Bytes bytes);
  absl::Status SetTotalBytes(DeviceIndex device, Bytes bytes);
  // What all devices claim, and the combinations that they refuse all the same. At first as an
  // H200: see kClaimedMemoryFlags and RefusedMemoryFlags.
  void SetMemoryFlags(const MemoryFlags& claimed, std::vector<MemoryFlags> refused);
  MemoryFlags claimed_memory_flags() const;

  // --- Address space and physical memory (cuMem...) ---
  // `alignment`: 0 or a power of two. A `hint` is honoured if the range there is free and aligned.
  absl::StatusOr<DevicePtr> ReserveAddress(DeviceIndex device, Bytes bytes, Bytes alignment,
                                           DevicePtr hint);
  absl::Status FreeAddress(DevicePtr address, Bytes bytes);
  // CUDA_ERROR_NOT_PERMITTED for flags that the devices refuse.
  absl::StatusOr<PhysicalHandle> CreateMemory(DeviceIndex device, Bytes bytes,
                                              const MemoryFlags& flags = {});
  // Drops one reference to the handle; its memory goes with the last reference and the last
  // mapping.
  absl::Status ReleaseMemory(PhysicalHandle handle);
  // cuMemRetainAllocationHandle: one more reference to the handle that is mapped at `address`.
  absl::StatusOr<PhysicalHandle> RetainMemory(DevicePtr address);
  struct HandleInfo {
    DeviceIndex device;
    Bytes bytes;
    int references, mappings;
    MemoryFlags flags;
  };
  absl::StatusOr<HandleInfo> GetHandle(PhysicalHandle handle) const;
  absl::Status Map(DevicePtr address, Bytes bytes, Bytes offset, PhysicalHandle handle);
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device, Access access);
  absl::StatusOr<Access> GetAccess(DevicePtr address, DeviceIndex device) const;
  absl::Status Unmap(DevicePtr address, Bytes bytes);

  // --- cudaMalloc, cudaFree; page-locked host memory ---
  // `hint`: as of ReserveAddress.
  absl::StatusOr<DevicePtr> AllocateMemory(DeviceIndex device, Bytes bytes, DevicePtr hint = 0);
  absl::Status FreeMemory(DevicePtr address);
  absl::Status RegisterHost(DevicePtr address, Bytes bytes, DeviceIndex device);
  absl::Status UnregisterHost(DevicePtr address);

  // --- Questions ---
  std::optional<PointerInfo> LookUp(DevicePtr address) const;
  // Whether the address is device address space of this model: where addresses are found without a
  // hint, in use or not, and what is in use wherever a hint led.
  bool IsDeviceAddress(DevicePtr address) const;
  // OK if `device` may touch all of [address, address + bytes): inside one allocation, or mapped
  // and opened to the device without a gap. Else CUDA_ERROR_ILLEGAL_ADDRESS naming the first bad
  // byte.
  absl::Status CheckAccess(DevicePtr address, Bytes bytes, DeviceIndex device, Access needed) const;
  MemoryCensus Census() const;

  // Work submitted now uses the range until `until_ns`: unmapping it before then is an error.
  void MarkUsed(DevicePtr address, Bytes bytes, uint64_t until_ns);

  // A word in mapped memory, after CheckAccess. Without backing too: the contents of the few words
  // that were written belong to the physical memory, whatever address shows it.
  absl::Status WriteWord(DevicePtr address, uint32_t word, DeviceIndex device);
  absl::StatusOr<uint32_t> ReadWord(DevicePtr address, DeviceIndex device) const;

  // Sets `bytes` bytes to `value`; whole pages of zeros are given back to the host instead. Only
  // backed, and after CheckAccess.
  void Fill(DevicePtr address, uint8_t value, Bytes bytes);

 private:
  struct Device {
    Bytes total_bytes;
    Bytes outside_bytes;
    Bytes physical_bytes = 0;    // handles, until release and last unmap
    Bytes allocation_bytes = 0;  // as charged: see ChargedBytes
    Bytes ours() const { return physical_bytes + allocation_bytes; }
  };
  struct Range {       // of address space; keyed by its start, ranges never overlap
    Bytes bytes;       // as asked for
    Bytes span_bytes;  // that it takes
    DeviceIndex device;
    bool is_allocation = false;  // else a reservation
    uint64_t mappings = 0;       // in a reservation
    uint64_t buffer_id = 0;
    uint64_t file_home = 0;  // of a reservation, if backed: see HostBacking
  };
  struct Handle {
    Bytes bytes;
    DeviceIndex device;
    int references = 1;
    int mappings = 0;
    MemoryFlags flags = {};
    uint64_t buffer_id = 0;
    std::optional<uint64_t> file_offset = std::nullopt;  // once first mapped, if backed
  };
  using Ranges = absl::btree_map<DevicePtr, Range>;

  absl::Status CheckDevice(DeviceIndex device, absl::string_view what) const;
  absl::Status CheckFlags(const MemoryFlags& flags) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeMemory(Device& device, Bytes bytes, absl::string_view function)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // 0 if there is none left.
  DevicePtr FindAddress(Bytes bytes, Bytes alignment, DevicePtr hint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DevicePtr FirstFit(Bytes bytes, Bytes alignment) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RangeIsFree(DevicePtr address, Bytes bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InsertRange(DevicePtr address, Range range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EraseRange(Ranges::iterator range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK if whole mappings make up exactly [address, address + bytes); else the problem, of
  // `function`.
  absl::Status CheckWholeMappings(DevicePtr address, Bytes bytes, absl::string_view function) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MapBacking(DevicePtr address, const Range& range, DevicePtr range_address,
                          Handle& handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ProtectBacking(DevicePtr address, Bytes bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // nullptr if its last reference was released.
  Handle* FindReferenced(PhysicalHandle id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropHandleIfUnused(PhysicalHandle id, Handle& handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  SimClock* const clock_;
  const int device_count_;
  const std::unique_ptr<HostBacking> backing_;
  // Where addresses are found that no hint leads to; part of what gaps and ranges tile.
  const DevicePtr region_base_;
  const Bytes region_bytes_;

  mutable absl::Mutex mutex_;
  MemoryFlags claimed_flags_ ABSL_GUARDED_BY(mutex_) = kClaimedMemoryFlags;
  std::vector<MemoryFlags> refused_flags_ ABSL_GUARDED_BY(mutex_) = RefusedMemoryFlags();
  std::vector<Device> devices_ ABSL_GUARDED_BY(mutex_);
  // Gaps and ranges tile the region, or [kAddressMin, kAddressEnd) if nothing backs it; no two gaps
  // are neighbours.
  absl::btree_map<DevicePtr, Bytes> gaps_ ABSL_GUARDED_BY(mutex_);
  Ranges ranges_ ABSL_GUARDED_BY(mutex_);
  MappingTable mappings_ ABSL_GUARDED_BY(mutex_);
  IdTable<Handle> handles_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<DevicePtr, Range> host_ranges_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_buffer_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // Without backing: the words that were written, by handle and offset in it.
  absl::flat_hash_map<std::pair<PhysicalHandle, Bytes>, uint32_t> words_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_MEMORY_MODEL_H_
