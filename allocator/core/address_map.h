// AddressMap: which device an address belongs to.
//
// A free names no device, only an address. Every allocator of the process enters the ranges here
// that its blocks lie in. One byte for each 2 MiB of address space, 64 MiB of it for all 47 bits,
// of which only what is used takes memory: looking up is one load, however many ranges there are.
// Thread-safe without a lock.
//
// Whoever is found is the only one whose the address can be, and knows more: a range that ends
// within 2 MiB is marked up to their end, and stays marked there when it leaves.

#ifndef OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_
#define OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "allocator/base/units.h"

namespace offcut {

class AddressMap {
 public:
  AddressMap();
  ~AddressMap();
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  // From now on the range, `bytes` > 0 long, is `device`'s. ResourceExhausted if it lies beyond 47
  // bits or the host had no address space for the map. No two devices share 2 MiB: a driver maps
  // whole pages of that size for one of them.
  absl::Status Insert(DevicePtr address, Bytes bytes, DeviceIndex device);
  // A range as it was inserted.
  void Remove(DevicePtr address, Bytes bytes);

  std::optional<DeviceIndex> Find(DevicePtr address) const {
    const size_t page = address / kPageBytes;
    if (page >= pages_) return std::nullopt;
    const uint8_t mark = marks_[page].load(std::memory_order_relaxed);
    if (mark == 0) return std::nullopt;
    return mark - 1;
  }

  static constexpr Bytes kPageBytes = 2 * kMiB;

 private:
  static constexpr Bytes kAddressSpace = Bytes{1}
                                         << 47;  // of a process on x86-64; CUDA's addresses are its

  // Its owner plus one; 0: nobody's. Memory of the kernel's, zero until it is used.
  std::atomic<uint8_t>* marks_ = nullptr;
  size_t pages_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_
