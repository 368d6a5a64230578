#include "allocator/sim/memory_model.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"

namespace offcut::sim {
namespace {

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

bool IsGranular(uint64_t value) { return value % kGranularity == 0; }

std::string Hex(DevicePtr address) { return absl::StrFormat("0x%x", address); }

// "cuMemMap(2097152 bytes at 0x200000000000): handle 7 is unknown"
absl::Status Error(int cu_result, absl::string_view function, Bytes bytes, DevicePtr address,
                   absl::string_view problem) {
  return DriverError(
      cu_result, absl::StrCat(function, "(", bytes, " bytes at ", Hex(address), "): ", problem));
}

absl::Status HandleError(absl::string_view function, PhysicalHandle handle) {
  return DriverError(CudaResult::kInvalidValue,
                     absl::StrCat(function, "(handle ", handle,
                                  "): no such handle; never created, or released before"));
}

// A host that refuses what the simulation needs is no fault of the program's.
absl::Status BackingError(absl::string_view function, const absl::Status& cause) {
  if (cause.ok()) return cause;
  return DriverError(CudaResult::kOperatingSystem,
                     absl::StrCat(function, ": the simulation failed: ", cause.message()));
}

// The driver hands out whole granules, and cuts allocations of up to 1 MiB from shared ones: those
// are charged for themselves alone here, so a device looks up to one granule emptier than in life.
Bytes ChargedBytes(Bytes bytes) {
  return RoundUp(bytes, bytes <= kMiB ? kBlockAlignment : kGranularity);
}

// The entry of an ordered map of ranges that holds `address`, or end().
template <typename Map>
auto FindHolding(Map& map, DevicePtr address) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return map.end();
  --it;
  return address - it->first < it->second.bytes ? it : map.end();
}

}  // namespace

MemoryModel::MemoryModel(const SimOptions& options, std::unique_ptr<HostBacking> backing,
                         SimClock* clock, DevicePtr address_base)
    : clock_(clock),
      device_count_(options.devices),
      backing_(std::move(backing)),
      region_base_(backing_ ? backing_->region_base() : address_base),
      region_bytes_(backing_ ? backing_->region_bytes() : HostBacking::kRegionBytesMax),
      devices_(options.devices,
               Device{.total_bytes = options.TotalBytes(), .outside_bytes = options.outside_bytes}),
      gaps_({backing_ ? std::pair(region_base_, region_bytes_)
                      : std::pair(kAddressMin, kAddressEnd - kAddressMin)}) {}

MemoryModel::~MemoryModel() = default;

absl::Status MemoryModel::CheckDevice(DeviceIndex device, absl::string_view what) const {
  if (device >= 0 && device < device_count_) return absl::OkStatus();
  return DriverError(CudaResult::kInvalidDevice,
                     absl::StrCat(what, ": device ", device, " of ", device_count_));
}

// --- The device ---

absl::StatusOr<MemoryModel::Info> MemoryModel::GetInfo(DeviceIndex device) const {
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, "cuMemGetInfo"));
  absl::MutexLock lock(&mutex_);
  const Device& d = devices_[device];
  const Bytes used = std::min(d.total_bytes, d.outside_bytes + d.ours());
  return Info{
      .total_bytes = d.total_bytes, .free_bytes = d.total_bytes - used, .ours_bytes = d.ours()};
}

absl::Status MemoryModel::SetOutsideBytes(DeviceIndex device, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, "SetOutsideBytes"));
  absl::MutexLock lock(&mutex_);
  devices_[device].outside_bytes = bytes;
  return absl::OkStatus();
}

absl::Status MemoryModel::SetTotalBytes(DeviceIndex device, Bytes bytes) {
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, "SetTotalBytes"));
  absl::MutexLock lock(&mutex_);
  devices_[device].total_bytes = bytes;
  return absl::OkStatus();
}

void MemoryModel::SetMemoryFlags(const MemoryFlags& claimed, std::vector<MemoryFlags> refused) {
  absl::MutexLock lock(&mutex_);
  claimed_flags_ = claimed;
  refused_flags_ = std::move(refused);
}

MemoryFlags MemoryModel::claimed_memory_flags() const {
  absl::MutexLock lock(&mutex_);
  return claimed_flags_;
}

absl::Status MemoryModel::CheckFlags(const MemoryFlags& flags) const {
  const bool claimed = (claimed_flags_.rdma || !flags.rdma) &&
                       (claimed_flags_.export_fd || !flags.export_fd) &&
                       (claimed_flags_.export_fabric || !flags.export_fabric);
  if (claimed && !absl::c_linear_search(refused_flags_, flags)) return absl::OkStatus();
  return DriverError(
      CudaResult::kNotPermitted,
      absl::StrCat("cuMemCreate(rdma ", flags.rdma, ", export_fd ", flags.export_fd,
                   ", export_fabric ", flags.export_fabric, "): ",
                   claimed ? "the device refuses these flags" : "the device has no such flag"));
}

absl::Status MemoryModel::TakeMemory(Device& device, Bytes bytes, absl::string_view function) {
  const Bytes used = device.outside_bytes + device.ours();
  if (used <= device.total_bytes && bytes <= device.total_bytes - used) return absl::OkStatus();
  return DriverError(
      CudaResult::kOutOfMemory,
      absl::StrCat(function, "(", bytes, " bytes on device ", &device - devices_.data(),
                   "): ", device.total_bytes - std::min(used, device.total_bytes), " of ",
                   device.total_bytes, " bytes are free"));
}

// --- Address space ---

bool MemoryModel::RangeIsFree(DevicePtr address, Bytes bytes) const {
  auto gap = gaps_.upper_bound(address);
  if (gap == gaps_.begin()) return false;
  --gap;
  const Bytes before = address - gap->first;
  return before < gap->second && bytes <= gap->second - before;
}

DevicePtr MemoryModel::FirstFit(Bytes bytes, Bytes alignment) const {
  auto gap = gaps_.upper_bound(region_base_);
  if (gap != gaps_.begin()) --gap;
  for (; gap != gaps_.end() && gap->first < region_base_ + region_bytes_; ++gap) {
    const DevicePtr candidate = RoundUp(std::max(gap->first, region_base_), alignment);
    const DevicePtr end = std::min(gap->first + gap->second, region_base_ + region_bytes_);
    if (candidate < end && bytes <= end - candidate) return candidate;
  }
  return 0;
}

DevicePtr MemoryModel::FindAddress(Bytes bytes, Bytes alignment, DevicePtr hint) {
  if (hint != 0 && hint % alignment == 0 && RangeIsFree(hint, bytes)) return hint;
  return FirstFit(bytes, alignment);
}

void MemoryModel::InsertRange(DevicePtr address, Range range) {
  const auto gap = std::prev(gaps_.upper_bound(address));
  const Bytes before = address - gap->first;
  const Bytes after = gap->second - before - range.span_bytes;
  if (before == 0) {
    gaps_.erase(gap);
  } else {
    gap->second = before;
  }
  if (after != 0) gaps_.emplace(address + range.span_bytes, after);
  range.buffer_id = next_buffer_id_++;
  ranges_.emplace(address, range);
}

void MemoryModel::EraseRange(Ranges::iterator range) {
  DevicePtr start = range->first;
  Bytes bytes = range->second.span_bytes;
  ranges_.erase(range);
  if (auto next = gaps_.find(start + bytes); next != gaps_.end()) {
    bytes += next->second;
    gaps_.erase(next);
  }
  auto before = gaps_.lower_bound(start);
  if (before != gaps_.begin() && std::prev(before)->first + std::prev(before)->second == start) {
    std::prev(before)->second += bytes;
  } else {
    gaps_.emplace(start, bytes);
  }
}

absl::StatusOr<DevicePtr> MemoryModel::ReserveAddress(DeviceIndex device, Bytes bytes,
                                                      Bytes alignment, DevicePtr hint) {
  constexpr absl::string_view kFunction = "cuMemAddressReserve";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  if (bytes == 0 || !IsGranular(bytes)) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, hint,
                 "the size is no multiple of the granularity");
  }
  if (alignment != 0 && !IsPowerOfTwo(alignment)) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, hint,
                 absl::StrCat("the alignment ", alignment, " is no power of two"));
  }
  absl::MutexLock lock(&mutex_);
  const DevicePtr address = FindAddress(bytes, std::max(alignment, kGranularity), hint);
  if (address == 0) {
    return Error(
        CudaResult::kOutOfMemory, kFunction, bytes, hint,
        absl::StrCat("no such range is left of ", region_bytes_, " bytes of address space"));
  }
  InsertRange(address, {.bytes = bytes,
                        .span_bytes = bytes,
                        .device = device,
                        .file_home = backing_ ? backing_->NewHome(bytes) : 0});
  return address;
}

absl::Status MemoryModel::FreeAddress(DevicePtr address, Bytes bytes) {
  constexpr absl::string_view kFunction = "cuMemAddressFree";
  absl::MutexLock lock(&mutex_);
  const auto it = ranges_.find(address);
  if (it == ranges_.end() || it->second.is_allocation || it->second.bytes != bytes) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, address,
                 it == ranges_.end() || it->second.is_allocation
                     ? "no reservation starts here; never made, or freed before"
                     : absl::StrCat("the reservation here has ", it->second.bytes, " bytes"));
  }
  if (it->second.mappings != 0) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, address,
                 absl::StrCat(it->second.mappings, " mappings are left in it"));
  }
  EraseRange(it);
  return absl::OkStatus();
}

// --- Physical memory ---

absl::StatusOr<PhysicalHandle> MemoryModel::CreateMemory(DeviceIndex device, Bytes bytes,
                                                         const MemoryFlags& flags) {
  constexpr absl::string_view kFunction = "cuMemCreate";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  if (bytes == 0 || !IsGranular(bytes)) {
    return DriverError(
        CudaResult::kInvalidValue,
        absl::StrCat(kFunction, "(", bytes, " bytes): no multiple of ", kGranularity));
  }
  absl::MutexLock lock(&mutex_);
  if (flags != MemoryFlags{}) OFFCUT_RETURN_IF_ERROR(CheckFlags(flags));
  OFFCUT_RETURN_IF_ERROR(TakeMemory(devices_[device], bytes, kFunction));
  devices_[device].physical_bytes += bytes;
  return handles_.Create(
      {.bytes = bytes, .device = device, .flags = flags, .buffer_id = next_buffer_id_++});
}

MemoryModel::Handle* MemoryModel::FindReferenced(PhysicalHandle id) {
  Handle* const handle = handles_.Find(id);
  return handle != nullptr && handle->references != 0 ? handle : nullptr;
}

void MemoryModel::DropHandleIfUnused(PhysicalHandle id, Handle& handle) {
  if (handle.references != 0 || handle.mappings != 0) return;
  devices_[handle.device].physical_bytes -= handle.bytes;
  if (handle.file_offset.has_value()) backing_->FreeFile(*handle.file_offset, handle.bytes);
  handles_.Destroy(id);
}

absl::Status MemoryModel::ReleaseMemory(PhysicalHandle handle) {
  absl::MutexLock lock(&mutex_);
  Handle* const found = FindReferenced(handle);
  if (found == nullptr) return HandleError("cuMemRelease", handle);
  --found->references;
  DropHandleIfUnused(handle, *found);
  return absl::OkStatus();
}

absl::StatusOr<PhysicalHandle> MemoryModel::RetainMemory(DevicePtr address) {
  absl::MutexLock lock(&mutex_);
  const Mapping* const mapping = mappings_.Find(address);
  if (mapping == nullptr) {
    return DriverError(
        CudaResult::kInvalidValue,
        absl::StrCat("cuMemRetainAllocationHandle(", Hex(address), "): nothing is mapped there"));
  }
  ++handles_.Find(mapping->handle)->references;
  return mapping->handle;
}

absl::StatusOr<MemoryModel::HandleInfo> MemoryModel::GetHandle(PhysicalHandle handle) const {
  absl::MutexLock lock(&mutex_);
  const Handle* const found = handles_.Find(handle);
  if (found == nullptr || found->references == 0) {
    return HandleError("cuMemGetAllocationPropertiesFromHandle", handle);
  }
  return HandleInfo{found->device, found->bytes, found->references, found->mappings, found->flags};
}

// --- Mappings ---

absl::Status MemoryModel::Map(DevicePtr address, Bytes bytes, Bytes offset, PhysicalHandle handle) {
  constexpr absl::string_view kFunction = "cuMemMap";
  const auto error = [&](int cu_result, absl::string_view problem) {
    return Error(cu_result, kFunction, bytes, address, problem);
  };
  absl::MutexLock lock(&mutex_);
  Handle* const found = FindReferenced(handle);
  if (found == nullptr) return HandleError(kFunction, handle);
  if (bytes == 0 || !IsGranular(bytes) || !IsGranular(address) || bytes + offset > found->bytes) {
    return error(CudaResult::kInvalidValue,
                 absl::StrCat("not in granules, or not within the handle's ", found->bytes,
                              " bytes at offset ", offset));
  }
  if (bytes != found->bytes) {
    return error(CudaResult::kNotSupported,
                 absl::StrCat("a handle maps only whole; this one has ", found->bytes, " bytes"));
  }
  const auto range = FindHolding(ranges_, address);
  if (range == ranges_.end() || range->second.is_allocation ||
      address - range->first + bytes > range->second.bytes) {
    return error(CudaResult::kInvalidValue, "not within one reservation");
  }
  if (!mappings_.IsFree(address, bytes)) {
    return error(CudaResult::kInvalidValue, "something is mapped there already");
  }
  if (backing_ != nullptr) {
    OFFCUT_RETURN_IF_ERROR(MapBacking(address, range->second, range->first, *found));
  }
  mappings_.Insert({.address = address, .bytes = bytes, .handle = handle});
  ++range->second.mappings;
  ++found->mappings;
  return absl::OkStatus();
}

absl::Status MemoryModel::MapBacking(DevicePtr address, const Range& range, DevicePtr range_address,
                                     Handle& handle) {
  if (!handle.file_offset.has_value()) {
    handle.file_offset =
        backing_->TakeFile(range.file_home + (address - range_address), handle.bytes);
  }
  return BackingError("cuMemMap", backing_->MapFile(address, handle.bytes, *handle.file_offset));
}

absl::Status MemoryModel::CheckWholeMappings(DevicePtr address, Bytes bytes,
                                             absl::string_view function) const {
  if (bytes == 0) {
    return Error(CudaResult::kInvalidValue, function, bytes, address, "the range is empty");
  }
  for (DevicePtr expected = address; expected != address + bytes;) {
    const Mapping* const mapping = mappings_.Find(expected);
    if (mapping == nullptr || mapping->address != expected) {
      return Error(CudaResult::kInvalidValue, function, bytes, address,
                   absl::StrCat("no mapping starts at ", Hex(expected)));
    }
    expected = mapping->end();
    if (expected - address > bytes) {
      return Error(CudaResult::kInvalidValue, function, bytes, address,
                   absl::StrCat("the range ends inside the mapping at ", Hex(mapping->address)));
    }
  }
  return absl::OkStatus();
}

absl::Status MemoryModel::SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device,
                                    Access access) {
  constexpr absl::string_view kFunction = "cuMemSetAccess";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  absl::MutexLock lock(&mutex_);
  OFFCUT_RETURN_IF_ERROR(CheckWholeMappings(address, bytes, kFunction));
  const uint64_t bit = uint64_t{1} << device;
  for (DevicePtr at = address; at != address + bytes;) {
    Mapping& mapping = *mappings_.Find(at);
    mapping.read_mask =
        access == Access::kNone ? mapping.read_mask & ~bit : mapping.read_mask | bit;
    mapping.write_mask =
        access == Access::kReadWrite ? mapping.write_mask | bit : mapping.write_mask & ~bit;
    at = mapping.end();
  }
  return backing_ != nullptr ? ProtectBacking(address, bytes) : absl::OkStatus();
}

absl::Status MemoryModel::ProtectBacking(DevicePtr address, Bytes bytes) {
  // One call for each run of equal rights, so that the kernel can merge them.
  for (DevicePtr start = address; start != address + bytes;) {
    const Mapping* mapping = mappings_.Find(start);
    const bool read = mapping->read_mask != 0, write = mapping->write_mask != 0;
    DevicePtr end = start;
    while ((mapping->read_mask != 0) == read && (mapping->write_mask != 0) == write) {
      end = mapping->end();
      if (end == address + bytes) break;
      mapping = mappings_.Find(end);
    }
    OFFCUT_RETURN_IF_ERROR(
        BackingError("cuMemSetAccess", backing_->Protect(start, end - start, read, write)));
    start = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<Access> MemoryModel::GetAccess(DevicePtr address, DeviceIndex device) const {
  constexpr absl::string_view kFunction = "cuMemGetAccess";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  absl::MutexLock lock(&mutex_);
  const Mapping* const mapping = mappings_.Find(address);
  if (mapping == nullptr) {
    return Error(CudaResult::kInvalidValue, kFunction, 0, address, "nothing is mapped there");
  }
  const uint64_t bit = uint64_t{1} << device;
  if ((mapping->write_mask & bit) != 0) return Access::kReadWrite;
  return (mapping->read_mask & bit) != 0 ? Access::kRead : Access::kNone;
}

absl::Status MemoryModel::Unmap(DevicePtr address, Bytes bytes) {
  constexpr absl::string_view kFunction = "cuMemUnmap";
  absl::MutexLock lock(&mutex_);
  OFFCUT_RETURN_IF_ERROR(CheckWholeMappings(address, bytes, kFunction));
  const uint64_t now_ns = clock_->NowNs();
  for (DevicePtr at = address; at != address + bytes;) {
    const Mapping& mapping = *mappings_.Find(at);
    if (mapping.used_until_ns > now_ns) {
      return Error(CudaResult::kIllegalAddress, kFunction, bytes, address,
                   absl::StrCat("submitted work still uses the mapping at ", Hex(mapping.address),
                                ", for ", mapping.used_until_ns - now_ns, " ns"));
    }
    at = mapping.end();
  }
  if (backing_ != nullptr) {
    OFFCUT_RETURN_IF_ERROR(BackingError(kFunction, backing_->Decommit(address, bytes)));
  }
  for (DevicePtr at = address; at != address + bytes;) {
    Mapping* const mapping = mappings_.Find(at);
    Handle& handle = *handles_.Find(mapping->handle);
    --handle.mappings;
    DropHandleIfUnused(mapping->handle, handle);
    --FindHolding(ranges_, at)->second.mappings;
    at = mapping->end();
    mappings_.Erase(mapping);
  }
  return absl::OkStatus();
}

// --- Allocations, host memory ---

absl::StatusOr<DevicePtr> MemoryModel::AllocateMemory(DeviceIndex device, Bytes bytes,
                                                      DevicePtr hint) {
  constexpr absl::string_view kFunction = "cuMemAlloc";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  if (bytes == 0) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, 0, "the size is zero");
  }
  absl::MutexLock lock(&mutex_);
  // Far above any memory, and rounding it up would overflow.
  const Bytes charged = bytes > region_bytes_ ? bytes : ChargedBytes(bytes);
  OFFCUT_RETURN_IF_ERROR(TakeMemory(devices_[device], charged, kFunction));
  const Bytes alignment = bytes <= kMiB ? HostBacking::PageBytes() : kGranularity;
  const Bytes span_bytes = RoundUp(bytes, alignment);
  const DevicePtr address = FindAddress(span_bytes, alignment, hint);
  if (address == 0) {
    return Error(CudaResult::kOutOfMemory, kFunction, bytes, 0, "no address space is left");
  }
  if (backing_ != nullptr) {
    OFFCUT_RETURN_IF_ERROR(BackingError(kFunction, backing_->Commit(address, span_bytes)));
  }
  devices_[device].allocation_bytes += charged;
  InsertRange(address,
              {.bytes = bytes, .span_bytes = span_bytes, .device = device, .is_allocation = true});
  return address;
}

absl::Status MemoryModel::FreeMemory(DevicePtr address) {
  constexpr absl::string_view kFunction = "cuMemFree";
  absl::MutexLock lock(&mutex_);
  const auto it = ranges_.find(address);
  if (it == ranges_.end() || !it->second.is_allocation) {
    return Error(CudaResult::kInvalidValue, kFunction, 0, address,
                 "no allocation starts here; never made, or freed before");
  }
  if (backing_ != nullptr) {
    OFFCUT_RETURN_IF_ERROR(
        BackingError(kFunction, backing_->Decommit(address, it->second.span_bytes)));
  }
  devices_[it->second.device].allocation_bytes -= ChargedBytes(it->second.bytes);
  EraseRange(it);
  return absl::OkStatus();
}

absl::Status MemoryModel::RegisterHost(DevicePtr address, Bytes bytes, DeviceIndex device) {
  constexpr absl::string_view kFunction = "cuMemHostRegister";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  absl::MutexLock lock(&mutex_);
  if (address == 0 || bytes == 0 || address + bytes < address) {
    return Error(CudaResult::kInvalidValue, kFunction, bytes, address, "no range of host memory");
  }
  const auto next = host_ranges_.lower_bound(address);
  if (FindHolding(host_ranges_, address) != host_ranges_.end() ||
      (next != host_ranges_.end() && next->first - address < bytes)) {
    return Error(CudaResult::kHostMemoryAlreadyRegistered, kFunction, bytes, address,
                 "part of it is registered");
  }
  host_ranges_.emplace(
      address,
      Range{.bytes = bytes, .span_bytes = bytes, .device = device, .buffer_id = next_buffer_id_++});
  return absl::OkStatus();
}

absl::Status MemoryModel::UnregisterHost(DevicePtr address) {
  absl::MutexLock lock(&mutex_);
  if (host_ranges_.erase(address) != 0) return absl::OkStatus();
  return Error(CudaResult::kHostMemoryNotRegistered, "cuMemHostUnregister", 0, address,
               "no registered range starts here");
}

// --- Questions ---

bool MemoryModel::IsDeviceAddress(DevicePtr address) const {
  if (address >= region_base_ && address - region_base_ < region_bytes_) return true;
  absl::MutexLock lock(&mutex_);
  return FindHolding(ranges_, address) != ranges_.end();
}

std::optional<PointerInfo> MemoryModel::LookUp(DevicePtr address) const {
  absl::MutexLock lock(&mutex_);
  if (const Mapping* const mapping = mappings_.Find(address); mapping != nullptr) {
    const Handle& handle = *handles_.Find(mapping->handle);
    return PointerInfo{.kind = PointerKind::kMapping,
                       .device = handle.device,
                       .base = mapping->address,
                       .bytes = mapping->bytes,
                       .handle = mapping->handle,
                       .buffer_id = handle.buffer_id};
  }
  const auto from_range = [](PointerKind kind, DevicePtr base, const Range& range) {
    return PointerInfo{.kind = kind,
                       .device = range.device,
                       .base = base,
                       .bytes = range.bytes,
                       .handle = 0,
                       .buffer_id = range.buffer_id};
  };
  if (const auto it = FindHolding(ranges_, address); it != ranges_.end()) {
    return from_range(it->second.is_allocation ? PointerKind::kAllocation : PointerKind::kReserved,
                      it->first, it->second);
  }
  if (const auto it = FindHolding(host_ranges_, address); it != host_ranges_.end()) {
    return from_range(PointerKind::kHost, it->first, it->second);
  }
  return std::nullopt;
}

absl::Status MemoryModel::CheckAccess(DevicePtr address, Bytes bytes, DeviceIndex device,
                                      Access needed) const {
  constexpr absl::string_view kFunction = "memory access";
  OFFCUT_RETURN_IF_ERROR(CheckDevice(device, kFunction));
  absl::MutexLock lock(&mutex_);
  const auto error = [&](absl::string_view problem, DevicePtr where) {
    return Error(CudaResult::kIllegalAddress, kFunction, bytes, address,
                 absl::StrCat(problem, " ", Hex(where)));
  };
  if (const auto range = FindHolding(ranges_, address);
      range != ranges_.end() && range->second.is_allocation) {
    if (bytes <= range->first + range->second.bytes - address) return absl::OkStatus();
    return error("beyond the end of the allocation at", range->first);
  }
  const uint64_t bit = uint64_t{1} << device;
  for (DevicePtr reached = address; reached - address < bytes;) {
    const Mapping* const mapping = mappings_.Find(reached);
    if (mapping == nullptr) return error("nothing is mapped at", reached);
    const uint64_t mask = needed == Access::kReadWrite ? mapping->write_mask : mapping->read_mask;
    if ((mask & bit) == 0) {
      return error(absl::StrCat("access was never opened to device ", device, " at"), reached);
    }
    reached = mapping->end();
  }
  return absl::OkStatus();
}

MemoryCensus MemoryModel::Census() const {
  absl::MutexLock lock(&mutex_);
  MemoryCensus census{
      .handles = handles_.size(), .mappings = mappings_.size(), .host_ranges = host_ranges_.size()};
  for (const auto& [address, range] : ranges_) {
    ++(range.is_allocation ? census.allocations : census.reservations);
    (range.is_allocation ? census.allocation_bytes : census.reserved_address_bytes) += range.bytes;
  }
  for (const Device& device : devices_) census.physical_bytes += device.physical_bytes;
  census.mapped_bytes = mappings_.bytes();
  return census;
}

void MemoryModel::MarkUsed(DevicePtr address, Bytes bytes, uint64_t until_ns) {
  absl::MutexLock lock(&mutex_);
  for (Mapping* mapping = mappings_.Find(address);
       mapping != nullptr && mapping->address < address + bytes;
       mapping = mappings_.Find(mapping->end())) {
    mapping->used_until_ns = std::max(mapping->used_until_ns, until_ns);
  }
}

absl::Status MemoryModel::WriteWord(DevicePtr address, uint32_t word, DeviceIndex device) {
  OFFCUT_RETURN_IF_ERROR(CheckAccess(address, sizeof(word), device, Access::kReadWrite));
  if (backed()) {
    std::memcpy(reinterpret_cast<void*>(address), &word, sizeof(word));
    return absl::OkStatus();
  }
  absl::MutexLock lock(&mutex_);
  if (const Mapping* const mapping = mappings_.Find(address); mapping != nullptr) {
    words_[{mapping->handle, address - mapping->address}] = word;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> MemoryModel::ReadWord(DevicePtr address, DeviceIndex device) const {
  OFFCUT_RETURN_IF_ERROR(CheckAccess(address, sizeof(uint32_t), device, Access::kRead));
  uint32_t word = 0;
  if (backed()) {
    std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof(word));
    return word;
  }
  absl::MutexLock lock(&mutex_);
  const Mapping* const mapping = mappings_.Find(address);
  if (mapping == nullptr) return word;
  const auto it = words_.find({mapping->handle, address - mapping->address});
  return it == words_.end() ? word : it->second;
}

void MemoryModel::Fill(DevicePtr address, uint8_t value, Bytes bytes) {
  const DevicePtr end = address + bytes;
  const DevicePtr pages = RoundUp(address, HostBacking::PageBytes());
  const DevicePtr pages_end = RoundDown(end, HostBacking::PageBytes());
  const auto set = [value](DevicePtr from, DevicePtr to) {
    std::memset(reinterpret_cast<void*>(from), value, to - from);
  };
  if (value != 0 || pages >= pages_end) return set(address, end);
  set(address, pages);
  backing_->DropPages(pages, pages_end - pages);
  set(pages_end, end);
}

}  // namespace offcut::sim
