#include "allocator/replay/metered_driver.h"

#include "allocator/base/status_macros.h"
#include "allocator/replay/driver_costs.h"

namespace offcut {

absl::Status MeteredDriver::Before(DriverCall call) {
  ++meter_.calls;
  meter_.ns += DriverCallCostNs(call);
  if (call == DriverCall::kCreateMemory) meter_.growth_ns += kFirstMappingNs;
  waited_before_ns_ = sim_.model().clock().WaitedNs();
  return absl::OkStatus();
}

void MeteredDriver::After(DriverCall call, const absl::Status& status) {
  const uint64_t waited_ns = sim_.model().clock().WaitedNs() - waited_before_ns_;
  meter_.waits += waited_ns > 0 ? 1 : 0;
  meter_.wait_ns += waited_ns;
}

absl::Status MeteredDriver::SynchronizeDevice(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(SubmitWork(device));
  return ForwardingDriver::SynchronizeDevice(device);
}

absl::Status MeteredDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  absl::Status status = ForwardingDriver::Map(address, bytes, handle);
  if (status.ok() && bytes > sim::kGranularity) large_mappings_[address] = bytes;
  return status;
}

absl::Status MeteredDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  meter_.ns += HandlesIn(address, bytes) * kSetAccessNs;
  return ForwardingDriver::SetAccess(address, bytes, device);
}

absl::Status MeteredDriver::Unmap(DevicePtr address, Bytes bytes) {
  meter_.ns += HandlesIn(address, bytes) * kUnmapNs;
  absl::Status status = ForwardingDriver::Unmap(address, bytes);
  if (!status.ok() || large_mappings_.empty()) return status;
  for (const DevicePtr end = address + bytes; address < end;) {
    const auto it = large_mappings_.find(address);
    address += it == large_mappings_.end() ? sim::kGranularity : it->second;
    if (it != large_mappings_.end()) large_mappings_.erase(it);
  }
  return status;
}

absl::StatusOr<DevicePtr> MeteredDriver::AllocateMemory(DeviceIndex device, Bytes bytes) {
  if (allocations_.size() < segments_.size()) {
    sim_.FixNextAllocation(segments_[allocations_.size()].address);
  }
  meter_.ns += CudaMallocCostNs(bytes);
  meter_.growth_ns += CudaMallocCostNs(bytes);
  absl::StatusOr<DevicePtr> address = ForwardingDriver::AllocateMemory(device, bytes);
  if (address.ok()) allocations_.push_back(bytes);
  return address;
}

absl::Status MeteredDriver::FreeMemory(DeviceIndex device, DevicePtr address) {
  OFFCUT_RETURN_IF_ERROR(SubmitWork(device));
  return ForwardingDriver::FreeMemory(device, address);
}

absl::Status MeteredDriver::SubmitWork(DeviceIndex device) {
  return sim_.model().streams().Submit(device, nullptr).status();
}

uint64_t MeteredDriver::HandlesIn(DevicePtr address, Bytes bytes) const {
  if (large_mappings_.empty()) return bytes / sim::kGranularity;
  uint64_t handles = 0;
  for (const DevicePtr end = address + bytes; address < end; ++handles) {
    const auto it = large_mappings_.find(address);
    address += it == large_mappings_.end() ? sim::kGranularity : it->second;
  }
  return handles;
}

}  // namespace offcut
