// AddressMap: which device an address belongs to.
//
// A free names no device, only an address. Every allocator of the process enters its reserved
// ranges here. Append-only; reading takes no lock. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_
#define OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"

namespace offcut {

class AddressMap {
 public:
  // ResourceExhausted once kCapacity ranges are in use: two for each stream that allocates, rarely
  // more.
  absl::Status Insert(DevicePtr address, Bytes bytes, DeviceIndex device);
  // The range leaves; its place is used again.
  void Remove(DevicePtr address);

  std::optional<DeviceIndex> Find(DevicePtr address) const {
    const size_t used = used_.load(std::memory_order_acquire);
    for (size_t i = 0; i < used; ++i) {
      const Range& range = ranges_[i];
      const DevicePtr begin = range.begin.load(std::memory_order_acquire);
      if (address >= begin && address < range.end.load(std::memory_order_relaxed)) {
        return range.device.load(std::memory_order_relaxed);
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kCapacity = 4096;

  // An unused place has begin == end == 0, which holds no address. `begin` is stored last.
  struct Range {
    std::atomic<DevicePtr> begin{0};
    std::atomic<DevicePtr> end{0};
    std::atomic<DeviceIndex> device{0};
  };

  absl::Mutex writers_;
  std::atomic<size_t> used_{0};
  std::array<Range, kCapacity> ranges_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_ADDRESS_MAP_H_
