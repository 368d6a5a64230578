#include "allocator/sim/host_backing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace offcut::sim {
namespace {

// More than all reservations of a long life add up to; a sparse file's length costs nothing.
constexpr off_t kFileBytes = off_t{1} << 62;

void* Pointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

absl::Status HostError(absl::string_view what, Bytes bytes) {
  const int error = errno;
  const absl::string_view remedy =
      error == ENOMEM ? "; the limits are vm.max_map_count (mappings of a process), ulimit -v and, "
                        "with vm.overcommit_memory=2, the memory of the host"
                      : "";
  return absl::UnavailableError(
      absl::StrCat("the host refused ", what, " of ", bytes,
                   " bytes for simulated device memory: ", std::strerror(error), remedy));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostBacking>> HostBacking::Create(DevicePtr address_base,
                                                                 Bytes bytes_min) {
  void* region = MAP_FAILED;
  Bytes bytes = kRegionBytesMax;
  for (; bytes >= bytes_min && region == MAP_FAILED; bytes /= 2) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    region = mmap(Pointer(address_base), bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (region == MAP_FAILED) region = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
    if (region != MAP_FAILED) break;
  }
  if (region == MAP_FAILED) return HostError("address space", bytes_min);
  // A core dump would hold terabytes of nothing.
  madvise(region, bytes, MADV_DONTDUMP);
  const int file = memfd_create("offcut-simulated-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) {
    absl::Status error = HostError("a sparse file", kFileBytes);
    munmap(region, bytes);
    if (file >= 0) close(file);
    return error;
  }
  return std::unique_ptr<HostBacking>(
      new HostBacking(reinterpret_cast<DevicePtr>(region), bytes, file));
}

HostBacking::~HostBacking() {
  munmap(Pointer(base_), bytes_);
  close(file_);
}

absl::Status HostBacking::Commit(DevicePtr address, Bytes bytes) {
  if (mprotect(Pointer(address), bytes, PROT_READ | PROT_WRITE) != 0) {
    return HostError("an allocation", bytes);
  }
  return absl::OkStatus();
}

absl::Status HostBacking::Decommit(DevicePtr address, Bytes bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(Pointer(address), bytes, PROT_NONE, kFlags, -1, 0) == MAP_FAILED) {
    return HostError("an unmapping", bytes);
  }
  madvise(Pointer(address), bytes, MADV_DONTDUMP);
  return absl::OkStatus();
}

uint64_t HostBacking::NewHome(Bytes bytes) {
  const uint64_t home = next_home_;
  next_home_ += bytes;
  return home;
}

uint64_t HostBacking::TakeFile(uint64_t wanted, Bytes bytes) {
  auto next = taken_.lower_bound(wanted);
  const bool free_after = next == taken_.end() || wanted + bytes <= next->first;
  const bool free_before =
      next == taken_.begin() || std::prev(next)->first + std::prev(next)->second <= wanted;
  const uint64_t offset = free_after && free_before ? wanted : NewHome(bytes);
  taken_.emplace(offset, bytes);
  return offset;
}

void HostBacking::FreeFile(uint64_t offset, Bytes bytes) {
  taken_.erase(offset);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

absl::Status HostBacking::MapFile(DevicePtr address, Bytes bytes, uint64_t offset) {
  if (mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return HostError("a mapping", bytes);
  }
  madvise(Pointer(address), bytes, MADV_DONTDUMP);
  return absl::OkStatus();
}

absl::Status HostBacking::Protect(DevicePtr address, Bytes bytes, bool read, bool write) {
  const int protection = (read ? PROT_READ : PROT_NONE) | (write ? PROT_WRITE : PROT_NONE);
  if (mprotect(Pointer(address), bytes, protection) != 0) return HostError("access", bytes);
  return absl::OkStatus();
}

void HostBacking::DropPages(DevicePtr address, Bytes bytes) {
  // MADV_REMOVE is for the file, and refused for private memory.
  if (madvise(Pointer(address), bytes, MADV_REMOVE) != 0) {
    madvise(Pointer(address), bytes, MADV_DONTNEED);
  }
}

Bytes HostBacking::PageBytes() {
  static const Bytes bytes = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace offcut::sim
