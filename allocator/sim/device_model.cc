#include "allocator/sim/device_model.h"

#include <cstring>
#include <utility>

#include "allocator/base/status_macros.h"

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
      streams_(machine_.devices, machine_.lag_ns, &clock_) {}

absl::StatusOr<DevicePtr> DeviceModel::AllocateMemory(DeviceIndex device, Bytes bytes,
                                                      DevicePtr hint) {
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall("cuMemAlloc"));
  return memory_.AllocateMemory(device, bytes, hint);
}

absl::Status DeviceModel::FreeMemory(DevicePtr address) {
  if (address == 0) return absl::OkStatus();
  OFFCUT_RETURN_IF_ERROR(streams_.CheckUnsafeCall("cuMemFree"));
  if (const auto info = memory_.LookUp(address); info.has_value()) {
    streams_.WaitForDevice(info->device);
  }
  return memory_.FreeMemory(address);
}

absl::Status DeviceModel::UseMemory(DeviceIndex device, StreamHandle stream, DevicePtr address,
                                    Bytes bytes, uint64_t duration_ns) {
  OFFCUT_RETURN_IF_ERROR(memory_.CheckAccess(address, bytes, device, Access::kReadWrite));
  OFFCUT_ASSIGN_OR_RETURN(const Submission work, streams_.Submit(device, stream, duration_ns));
  memory_.MarkUsed(address, bytes, work.done_ns);
  return absl::OkStatus();
}

absl::Status DeviceModel::CheckCopySide(DevicePtr address, Bytes bytes, DeviceIndex device,
                                        Access needed) const {
  const auto info = memory_.LookUp(address);
  // Copy engines reach what is mapped for its own device, whichever device the stream is on.
  const bool own = info.has_value() && info->kind == PointerKind::kMapping &&
                   memory_.CheckAccess(address, bytes, info->device, needed).ok();
  return own ? absl::OkStatus() : memory_.CheckAccess(address, bytes, device, needed);
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
