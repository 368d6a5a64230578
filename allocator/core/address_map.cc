#include "allocator/core/address_map.h"

#include "absl/strings/str_cat.h"

namespace offcut {

absl::Status AddressMap::Insert(DevicePtr address, Bytes bytes, DeviceIndex device) {
  absl::MutexLock lock(&writers_);
  const size_t used = used_.load(std::memory_order_relaxed);
  size_t place = 0;
  while (place < used && ranges_[place].end.load(std::memory_order_relaxed) != 0) ++place;
  if (place == kCapacity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kCapacity, " ranges of address space in use"));
  }
  Range& range = ranges_[place];
  range.device.store(device, std::memory_order_relaxed);
  range.end.store(address + bytes, std::memory_order_relaxed);
  range.begin.store(address, std::memory_order_release);
  if (place == used) used_.store(used + 1, std::memory_order_release);
  return absl::OkStatus();
}

void AddressMap::Remove(DevicePtr address) {
  absl::MutexLock lock(&writers_);
  const size_t used = used_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < used; ++i) {
    if (ranges_[i].begin.load(std::memory_order_relaxed) != address) continue;
    ranges_[i].end.store(0, std::memory_order_relaxed);
    ranges_[i].begin.store(0, std::memory_order_release);
  }
}

}  // namespace offcut
