#include "allocator/sim/device_model.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"

namespace offcut::sim {

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Create(const ModelOptions& options) {
  std::unique_ptr<HostBacking> backing;
  if (options.backing == Backing::kHostMemory) {
    // Each device's memory, and as much again to move in.
    const Bytes bytes_min = 2 * options.machine.TotalBytes() * options.machine.devices;
    OFFCUT_ASSIGN_OR_RETURN(backing, HostBacking::Create(options.address_base, bytes_min));
  }
  return std::unique_ptr<DeviceModel>(new DeviceModel(options, std::move(backing)));
}

DeviceModel::DeviceModel(const ModelOptions& options, std::unique_ptr<HostBacking> backing)
    : machine_(options.machine),
      clock_(options.clock),
      memory_(machine_, std::move(backing), &clock_, options.address_base),
      streams_(machine_.devices, machine_.lag_ns, &clock_),
      pools_(machine_, &memory_, &streams_) {}

absl::StatusOr<PhysicalHandle> DeviceModel::CreateMemory(DeviceIndex device, Bytes bytes,
                                                         const MemoryFlags& flags) {
  auto handle = memory_.CreateMemory(device, bytes, flags);
  if (!absl::IsResourceExhausted(handle.status()) || !pools_.Reclaim(device)) return handle;
  return memory_.CreateMemory(device, bytes, flags);
}

absl::StatusOr<DevicePtr> DeviceModel::AllocateMemory(DeviceIndex device, Bytes bytes,
                                                      DevicePtr hint) {
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall("cuMemAlloc"));
  auto address = memory_.AllocateMemory(device, bytes, hint);
  if (!absl::IsResourceExhausted(address.status()) || !pools_.Reclaim(device)) return address;
  return memory_.AllocateMemory(device, bytes, hint);
}

absl::Status DeviceModel::FreeMemory(DevicePtr address) {
  if (address == 0) return absl::OkStatus();
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall("cuMemFree"));
  const bool is_pools = pools_.IsPoolAddress(address);
  if (const auto info = LookUp(address); info.has_value()) {
    OFFCUT_RETURN_IF_ERROR(streams_.WaitForDevice(info->device));
  }
  return is_pools ? pools_.FreeAfterWait(address) : memory_.FreeMemory(address);
}

std::optional<PointerInfo> DeviceModel::LookUp(DevicePtr address) const {
  if (!pools_.IsPoolAddress(address)) return memory_.LookUp(address);
  const auto allocation = pools_.Find(address);
  if (!allocation.has_value()) return std::nullopt;
  return PointerInfo{.kind = PointerKind::kAllocation,
                     .device = allocation->device,
                     .base = allocation->base,
                     .bytes = allocation->bytes,
                     .handle = 0,
                     .buffer_id = allocation->buffer_id};
}

absl::Status DeviceModel::CheckAccess(DevicePtr address, Bytes bytes, DeviceIndex device,
                                      Access needed) const {
  if (pools_.IsPoolAddress(address)) {
    const auto allocation = pools_.Find(address);
    if (!allocation.has_value() || bytes > allocation->base + allocation->bytes - address) {
      return DriverError(
          CudaResult::kIllegalAddress,
          absl::StrFormat("memory access(%d bytes at %#x): %s", bytes, address,
                          allocation.has_value() ? "beyond the end of a pool's allocation"
                                                 : "nothing of the pool is allocated there"));
    }
  }
  return memory_.CheckAccess(address, bytes, device, needed);
}

absl::Status DeviceModel::UseMemory(DeviceIndex device, StreamHandle stream, DevicePtr address,
                                    Bytes bytes, uint64_t duration_ns) {
  OFFCUT_RETURN_IF_ERROR(CheckAccess(address, bytes, device, Access::kReadWrite));
  OFFCUT_ASSIGN_OR_RETURN(const Submission work, streams_.Submit(device, stream, duration_ns));
  memory_.MarkUsed(address, bytes, work.done_ns);
  return absl::OkStatus();
}

absl::Status DeviceModel::CheckCopySide(DevicePtr address, Bytes bytes, DeviceIndex device,
                                        Access needed) const {
  const auto info = LookUp(address);
  // Copy engines reach what is mapped for its own device, whichever device the stream is on.
  const bool is_mapped =
      info.has_value() && (info->kind == PointerKind::kMapping || pools_.IsPoolAddress(address));
  const bool own = is_mapped && CheckAccess(address, bytes, info->device, needed).ok();
  return own ? absl::OkStatus() : CheckAccess(address, bytes, device, needed);
}

absl::Status DeviceModel::Copy(DeviceIndex device, StreamHandle stream, DevicePtr to,
                               DevicePtr from, Bytes bytes) {
  const bool to_device = memory_.IsDeviceAddress(to), from_device = memory_.IsDeviceAddress(from);
  if (to_device) OFFCUT_RETURN_IF_ERROR(CheckCopySide(to, bytes, device, Access::kReadWrite));
  if (from_device) OFFCUT_RETURN_IF_ERROR(CheckCopySide(from, bytes, device, Access::kRead));
  OFFCUT_ASSIGN_OR_RETURN(const Submission work, streams_.Submit(device, stream));
  if (to_device) memory_.MarkUsed(to, bytes, work.done_ns);
  if (from_device) memory_.MarkUsed(from, bytes, work.done_ns);
  const bool between_devices = to_device && from_device;
  const bool readable = memory_.backed() || (!to_device && !from_device);
  if (work.captured || !readable || (between_devices && bytes > kDeviceCopyMax))
    return absl::OkStatus();
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return absl::OkStatus();
}

absl::Status DeviceModel::Fill(DeviceIndex device, StreamHandle stream, DevicePtr address,
                               uint8_t value, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(CheckCopySide(address, bytes, device, Access::kReadWrite));
  OFFCUT_ASSIGN_OR_RETURN(const Submission work, streams_.Submit(device, stream));
  memory_.MarkUsed(address, bytes, work.done_ns);
  if (!work.captured && memory_.backed()) memory_.Fill(address, value, bytes);
  return absl::OkStatus();
}

}  // namespace offcut::sim
