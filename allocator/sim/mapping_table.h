// MappingTable: which mapping covers an address. A page table over the 47 bits of device addresses,
// in granules: finding a mapping takes two indices, whatever their number.
//
// Mappings never overlap. Inserting and erasing move other mappings in memory: pointers hold until
// then. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_SIM_MAPPING_TABLE_H_
#define OFFCUT_ALLOCATOR_SIM_MAPPING_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/base/units.h"
#include "allocator/sim/cards.h"

namespace offcut::sim {

struct Mapping {
  DevicePtr address;
  Bytes bytes;
  PhysicalHandle handle;
  uint64_t used_until_ns = 0;
  uint64_t read_mask = 0, write_mask = 0;  // bit d: device d

  DevicePtr end() const { return address + bytes; }
};

class MappingTable {
 public:
  // The mapping that `address` lies in, or nullptr. Neighbours are found one after the other:
  // Find(mapping->end()).
  Mapping* Find(DevicePtr address) {
    const uint64_t leaf = address / kLeafBytes;
    if (leaf >= leaves_.size() || leaves_[leaf] == nullptr) return nullptr;
    const uint32_t entry = (*leaves_[leaf])[address / kGranularity % kLeafEntries];
    return entry == 0 ? nullptr : &mappings_[entry - 1];
  }
  const Mapping* Find(DevicePtr address) const {
    return const_cast<MappingTable*>(this)->Find(address);
  }

  bool IsFree(DevicePtr address, Bytes bytes) const {
    for (DevicePtr at = address; at < address + bytes; at += kGranularity) {
      if (Find(at) != nullptr) return false;
    }
    return true;
  }

  // Requires: whole granules below 2^47, free.
  void Insert(const Mapping& mapping) {
    mappings_.push_back(mapping);
    Point(mapping, static_cast<uint32_t>(mappings_.size()));
    bytes_ += mapping.bytes;
  }

  // Requires: `mapping` was found here.
  void Erase(Mapping* mapping) {
    bytes_ -= mapping->bytes;
    Point(*mapping, 0);
    if (mapping != &mappings_.back()) {
      *mapping = mappings_.back();
      Point(*mapping, static_cast<uint32_t>(mapping - mappings_.data()) + 1);
    }
    mappings_.pop_back();
  }

  uint64_t size() const { return mappings_.size(); }
  Bytes bytes() const { return bytes_; }  // of all

 private:
  static constexpr uint64_t kLeafEntries = 4096;
  static constexpr Bytes kLeafBytes = kLeafEntries * kGranularity;
  static constexpr uint64_t kLeaves = (uint64_t{1} << 47) / kLeafBytes;

  using Leaf = std::array<uint32_t, kLeafEntries>;  // 1 + index in mappings_, or 0

  void Point(const Mapping& mapping, uint32_t entry) {
    for (DevicePtr at = mapping.address; at < mapping.end(); at += kGranularity) {
      std::unique_ptr<Leaf>& leaf = leaves_[at / kLeafBytes];
      if (leaf == nullptr) leaf = std::make_unique<Leaf>();
      (*leaf)[at / kGranularity % kLeafEntries] = entry;
    }
  }

  std::vector<std::unique_ptr<Leaf>> leaves_ = std::vector<std::unique_ptr<Leaf>>(kLeaves);
  std::vector<Mapping> mappings_;
  Bytes bytes_ = 0;
};

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_MAPPING_TABLE_H_
