#include "allocator/sim/cuda_abi/transfers.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace offcut::cuda_abi {
namespace {

constexpr size_t kHostAlignmentBytes = 4096;

std::string Hex(const void* pointer) { return absl::StrCat("0x", absl::Hex(AddressOf(pointer))); }

absl::Status CheckSide(Simulation& s, const char* side, const void* pointer, bool must_be_device,
                       bool must_be_host) {
  const bool is_device = s.memory().IsDeviceAddress(AddressOf(pointer));
  if (pointer == nullptr || (must_be_device && !is_device) || (must_be_host && is_device)) {
    return Error(
        CUDA_ERROR_INVALID_VALUE,
        absl::StrCat("a copy whose ", side, " should be ", must_be_device ? "device" : "host",
                     " memory, but is ", pointer == nullptr ? "null" : Hex(pointer)));
  }
  return absl::OkStatus();
}

absl::Status CheckDirection(Simulation& s, const void* to, const void* from,
                            cudaMemcpyKind direction) {
  if (direction < cudaMemcpyHostToHost || direction > cudaMemcpyDefault) {
    return Error(static_cast<CUresult>(cudaErrorInvalidMemcpyDirection),
                 absl::StrCat("a copy of kind ", static_cast<int>(direction)));
  }
  const bool known = direction != cudaMemcpyDefault;
  const bool to_device =
      direction == cudaMemcpyHostToDevice || direction == cudaMemcpyDeviceToDevice;
  const bool from_device =
      direction == cudaMemcpyDeviceToHost || direction == cudaMemcpyDeviceToDevice;
  // Page-locked host memory is also an address of the device, so "host" is never demanded of a side
  // that is said to be the device's; the reverse is.
  OFFCUT_RETURN_IF_ERROR(CheckSide(s, "destination", to, false, known && !to_device));
  OFFCUT_RETURN_IF_ERROR(CheckSide(s, "source", from, false, known && !from_device));
  const auto usable_as_device = [&s](const void* pointer) {
    return s.memory().IsDeviceAddress(AddressOf(pointer)) ||
           s.model().LookUp(AddressOf(pointer)).has_value();
  };
  if (to_device && !usable_as_device(to)) return CheckSide(s, "destination", to, true, false);
  if (from_device && !usable_as_device(from)) return CheckSide(s, "source", from, true, false);
  return absl::OkStatus();
}

// The driver checks the ranges of copies and fills when they are submitted, so what the model calls
// an illegal access is an invalid argument here (as on an H100).
absl::Status AsArgument(const absl::Status& status) {
  if (DriverErrorCode(status) != CUDA_ERROR_ILLEGAL_ADDRESS) return status;
  return Error(CUDA_ERROR_INVALID_VALUE, status.message());
}

absl::StatusOr<bool> IsCaptured(Simulation& s, const Lane& lane) {
  OFFCUT_ASSIGN_OR_RETURN(const sim::CaptureInfo capture,
                          s.streams().GetCapture(lane.device, lane.stream));
  return capture.status == sim::CaptureStatus::kActive;
}

// A copy out of the device into pageable host memory returns when the bytes are there, whatever its
// name says.
bool HostWaits(Simulation& s, const Lane& lane, const void* to, const void* from) {
  if (lane.completion == Completion::kSynchronous) return true;
  const DevicePtr host = AddressOf(to);
  return s.memory().IsDeviceAddress(AddressOf(from)) && !s.memory().IsDeviceAddress(host) &&
         !s.model().LookUp(host).has_value();
}

absl::Status Finish(Simulation& s, const Lane& lane, bool host_waits) {
  if (!host_waits) return absl::OkStatus();
  OFFCUT_ASSIGN_OR_RETURN(const bool captured, IsCaptured(s, lane));
  if (captured) return absl::OkStatus();
  return s.streams().SynchronizeStream(lane.device, lane.stream);
}

}  // namespace

absl::Status CopyBytes(Simulation& s, const Lane& lane, void* to, const void* from, size_t bytes,
                       cudaMemcpyKind direction) {
  return CopyRows(s, lane, to, bytes, from, bytes, bytes, 1, direction);
}

absl::Status CopyRows(Simulation& s, const Lane& lane, void* to, size_t to_pitch, const void* from,
                      size_t from_pitch, size_t width, size_t rows, cudaMemcpyKind direction) {
  if (width == 0 || rows == 0) return absl::OkStatus();
  if (width > to_pitch || width > from_pitch) {
    return Error(
        static_cast<CUresult>(cudaErrorInvalidPitchValue),
        absl::StrCat("rows of ", width, " bytes, ", to_pitch, " and ", from_pitch, " bytes apart"));
  }
  if (lane.completion == Completion::kSynchronous) {
    OFFCUT_RETURN_IF_ERROR(s.streams().CheckUnsafeCall("cuMemcpy"));
  }
  OFFCUT_RETURN_IF_ERROR(CheckDirection(s, to, from, direction));
  for (size_t row = 0; row < rows; ++row) {
    OFFCUT_RETURN_IF_ERROR(
        AsArgument(s.model().Copy(lane.device, lane.stream, AddressOf(to) + row * to_pitch,
                                  AddressOf(from) + row * from_pitch, width)));
  }
  return Finish(s, lane, HostWaits(s, lane, to, from));
}

absl::Status FillBytes(Simulation& s, const Lane& lane, DevicePtr address, uint32_t value, int unit,
                       size_t count) {
  if (count == 0) return absl::OkStatus();
  if (lane.completion == Completion::kSynchronous) {
    OFFCUT_RETURN_IF_ERROR(s.streams().CheckUnsafeCall("cuMemset"));
  }
  const size_t bytes = count * static_cast<size_t>(unit);
  const auto byte = static_cast<uint8_t>(value);
  if (unit == 1 || value == byte * 0x01010101u) {
    return AsArgument(s.model().Fill(lane.device, lane.stream, address, byte, bytes));
  }
  OFFCUT_RETURN_IF_ERROR(AsArgument(s.model().UseMemory(lane.device, lane.stream, address, bytes)));
  OFFCUT_ASSIGN_OR_RETURN(const bool captured, IsCaptured(s, lane));
  if (!captured) std::fill_n(static_cast<uint32_t*>(PointerTo(address)), count, value);
  return absl::OkStatus();
}

namespace {

// What AllocateHost has given out: FreeHost must not free what was only registered.
struct HostAllocations {
  absl::Mutex mutex;
  absl::flat_hash_set<const void*> live ABSL_GUARDED_BY(mutex);

  static HostAllocations& Get() {
    static auto* const allocations = new HostAllocations;
    return *allocations;
  }
};

}  // namespace

absl::Status AllocateHost(Simulation& s, DeviceIndex device, void** pointer, size_t bytes) {
  if (pointer == nullptr) return Error(CUDA_ERROR_INVALID_VALUE, "no room for the pointer");
  *pointer = nullptr;
  if (bytes == 0) return absl::OkStatus();
  OFFCUT_RETURN_IF_ERROR(s.streams().CheckUnsafeCall("cuMemHostAlloc"));
  const size_t rounded = RoundUp(bytes, kHostAlignmentBytes);
  void* const memory = rounded < bytes ? nullptr : std::aligned_alloc(kHostAlignmentBytes, rounded);
  if (memory == nullptr) {
    return Error(CUDA_ERROR_OUT_OF_MEMORY, absl::StrCat("cuMemHostAlloc(", bytes, " bytes)"));
  }
  const absl::Status registered = s.memory().RegisterHost(AddressOf(memory), bytes, device);
  if (!registered.ok()) {
    std::free(memory);
    return registered;
  }
  HostAllocations& allocations = HostAllocations::Get();
  const absl::MutexLock lock(&allocations.mutex);
  allocations.live.insert(memory);
  *pointer = memory;
  return absl::OkStatus();
}

absl::Status FreeHost(Simulation& s, void* pointer) {
  if (pointer == nullptr) return absl::OkStatus();
  OFFCUT_RETURN_IF_ERROR(s.streams().CheckUnsafeCall("cuMemFreeHost"));
  {
    HostAllocations& allocations = HostAllocations::Get();
    const absl::MutexLock lock(&allocations.mutex);
    if (allocations.live.erase(pointer) == 0) {
      return Error(CUDA_ERROR_INVALID_VALUE, absl::StrCat("cuMemFreeHost(", Hex(pointer),
                                                          "): not of cuMemHostAlloc, or freed"));
    }
  }
  OFFCUT_RETURN_IF_ERROR(s.memory().UnregisterHost(AddressOf(pointer)));
  // Work that was submitted before may read it; here the bytes have moved already.
  std::free(pointer);
  return absl::OkStatus();
}

}  // namespace offcut::cuda_abi
