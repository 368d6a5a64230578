#include "allocator/replay/metered_driver.h"

#include "allocator/base/status_macros.h"
#include "allocator/replay/driver_costs.h"

namespace offcut {

absl::Status MeteredDriver::Before(DriverCall call) {
  ++meter_.calls;
  meter_.ns += DriverCallCostNs(call);
  waited_before_ns_ = clock_.WaitedNs();
  return absl::OkStatus();
}

void MeteredDriver::After(DriverCall call, const absl::Status& status) {
  const uint64_t waited_ns = clock_.WaitedNs() - waited_before_ns_;
  meter_.waits += waited_ns > 0 ? 1 : 0;
  meter_.wait_ns += waited_ns;
}

absl::Status MeteredDriver::SynchronizeDevice(DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(streams_.Submit(device, nullptr).status());
  return ForwardingDriver::SynchronizeDevice(device);
}

absl::Status MeteredDriver::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  absl::Status status = ForwardingDriver::Map(address, bytes, handle);
  if (status.ok()) mappings_[address] = bytes;
  return status;
}

absl::Status MeteredDriver::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) {
  meter_.ns += HandlesIn(address, bytes) * kSetAccessNs;
  return ForwardingDriver::SetAccess(address, bytes, device);
}

absl::Status MeteredDriver::Unmap(DevicePtr address, Bytes bytes) {
  meter_.ns += HandlesIn(address, bytes) * kUnmapNs;
  absl::Status status = ForwardingDriver::Unmap(address, bytes);
  if (!status.ok()) return status;
  for (const DevicePtr end = address + bytes; address < end;) {
    const auto it = mappings_.find(address);
    if (it == mappings_.end()) break;
    address += it->second;
    mappings_.erase(it);
  }
  return status;
}

uint64_t MeteredDriver::HandlesIn(DevicePtr address, Bytes bytes) const {
  uint64_t handles = 0;
  for (const DevicePtr end = address + bytes; address < end; ++handles) {
    const auto it = mappings_.find(address);
    if (it == mappings_.end()) break;
    address += it->second;
  }
  return handles;
}

}  // namespace offcut
