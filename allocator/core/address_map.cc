#include "allocator/core/address_map.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"

namespace offcut {

static_assert(sizeof(std::atomic<uint8_t>) == 1);

AddressMap::AddressMap() {
  constexpr size_t kPages = kAddressSpace / kPageBytes;
  void* const mapping = mmap(nullptr, kPages, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return;  // Insert says so
  marks_ = static_cast<std::atomic<uint8_t>*>(mapping);
  pages_ = kPages;
}

AddressMap::~AddressMap() {
  if (marks_ != nullptr) munmap(marks_, pages_);
}

absl::Status AddressMap::Insert(DevicePtr address, Bytes bytes, DeviceIndex device) {
  const DevicePtr last = address + bytes - 1;
  if (last < address || last / kPageBytes >= pages_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no place to note ", bytes, " bytes at 0x", absl::Hex(address),
                     pages_ == 0 ? ": the host has no address space left" : ""));
  }
  for (size_t page = address / kPageBytes; page <= last / kPageBytes; ++page) {
    marks_[page].store(static_cast<uint8_t>(device + 1), std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

void AddressMap::Remove(DevicePtr address, Bytes bytes) {
  for (size_t page = RoundUp(address, kPageBytes) / kPageBytes;
       page < (address + bytes) / kPageBytes; ++page) {
    marks_[page].store(0, std::memory_order_relaxed);
  }
}

}  // namespace offcut
