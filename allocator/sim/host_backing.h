// HostBacking: host address space that stands for device memory, so that a device address can be
// dereferenced. One large range without access, and one sparse file without a name for all physical
// handles, so that a handle can be mapped at several addresses. Pages that nothing touches cost
// nothing.
//
// The kernel allows about 65,530 mappings a process and merges neighbours that are adjacent in the
// file too. So each reservation has a stretch of the file of its own (home), and a handle that is
// mapped for the first time lands at the same distance into it.
//
// Not thread-safe: MemoryModel holds its lock. Every range given to it lies inside the region, at
// multiples of the page size.

#ifndef OFFCUT_ALLOCATOR_SIM_HOST_BACKING_H_
#define OFFCUT_ALLOCATOR_SIM_HOST_BACKING_H_

#include <cstdint>
#include <memory>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/base/units.h"

namespace offcut::sim {

class HostBacking {
 public:
  // From 0x200000000000 on: above a sanitizer's shadow, and below where programs (0x5555...) and
  // libraries (0x7f...) are loaded.
  static constexpr Bytes kRegionBytesMax = 48 * 1024 * kGiB;

  // Reserves as much address space as the host grants, from `address_base` if that is free.
  // Unavailable, with the cause, if it grants less than `bytes_min`.
  static absl::StatusOr<std::unique_ptr<HostBacking>> Create(DevicePtr address_base,
                                                             Bytes bytes_min);
  ~HostBacking();

  DevicePtr region_base() const { return base_; }
  Bytes region_bytes() const { return bytes_; }

  // Private memory, zero, readable and writable.
  absl::Status Commit(DevicePtr address, Bytes bytes);
  // Back to no memory and no access; for Commit and MapFile alike.
  absl::Status Decommit(DevicePtr address, Bytes bytes);

  // A stretch of file for a reservation of `bytes`. Never given twice.
  uint64_t NewHome(Bytes bytes);
  // Takes `bytes` of the file, at `wanted` if that is free. FreeFile gives their memory back.
  uint64_t TakeFile(uint64_t wanted, Bytes bytes);
  void FreeFile(uint64_t offset, Bytes bytes);
  // Shared with all other mappings of the same offset; without access.
  absl::Status MapFile(DevicePtr address, Bytes bytes, uint64_t offset);
  absl::Status Protect(DevicePtr address, Bytes bytes, bool read, bool write);

  // Zeroes whole pages by giving their memory back.
  void DropPages(DevicePtr address, Bytes bytes);

  static Bytes PageBytes();

 private:
  HostBacking(DevicePtr base, Bytes bytes, int file) : base_(base), bytes_(bytes), file_(file) {}

  const DevicePtr base_;
  const Bytes bytes_;
  const int file_;
  uint64_t next_home_ = 0;
  absl::btree_map<uint64_t, Bytes> taken_;  // of the file
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_HOST_BACKING_H_
