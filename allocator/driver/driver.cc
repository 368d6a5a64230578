#include "allocator/driver/driver.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/driver/cuda_results.h"

namespace offcut {
namespace {

constexpr char kResultPayload[] = "offcut/CUresult";

struct ResultRow {
  absl::string_view cuda_name;
  absl::StatusCode status_code;
};

ResultRow FindResult(int cu_result) {
  switch (cu_result) {
#define OFFCUT_CUDA_RESULT(name, number, cuda_name, status_code) \
  case number:                                                   \
    return {#cuda_name, absl::StatusCode::k##status_code};
#include "allocator/driver/cuda_results.def"
#undef OFFCUT_CUDA_RESULT
    default:
      return {"unknown CUDA error", absl::StatusCode::kInternal};
  }
}

}  // namespace

absl::string_view DriverCallName(uint8_t number) {
  switch (number) {
#define OFFCUT_DRIVER_CALL(name, number, cuda_name) \
  case number:                                      \
    return cuda_name;
#include "allocator/driver/driver_calls.def"
#undef OFFCUT_DRIVER_CALL
    default:
      return "";
  }
}

absl::Status DriverError(int cu_result, absl::string_view what) {
  if (cu_result == CudaResult::kSuccess) return absl::OkStatus();
  const ResultRow row = FindResult(cu_result);
  absl::Status status(row.status_code,
                      absl::StrCat(what, ": ", row.cuda_name, " (", cu_result, ")"));
  status.SetPayload(kResultPayload, absl::Cord(absl::StrCat(cu_result)));
  return status;
}

int DriverErrorCode(const absl::Status& status) {
  if (status.ok()) return CudaResult::kSuccess;
  int cu_result = -1;
  if (const auto payload = status.GetPayload(kResultPayload); payload.has_value()) {
    (void)absl::SimpleAtoi(std::string(*payload), &cu_result);
  }
  return cu_result;
}

absl::StatusOr<bool> SecondMappingsWork(Driver& driver, DeviceIndex device) {
  constexpr uint32_t kFirst = 0x0ff0c07a, kSecond = 0x5ca1ab1e;
  OFFCUT_ASSIGN_OR_RETURN(const DeviceProperties properties, driver.GetProperties(device));
  const Bytes granule = properties.granularity;
  OFFCUT_ASSIGN_OR_RETURN(const DevicePtr a,
                          driver.ReserveAddress(device, 2 * granule, granule, /*hint=*/0));
  const DevicePtr b = a + granule;
  const absl::StatusOr<PhysicalHandle> handle = driver.CreateMemory(device, granule, {});
  bool mapped_a = false, mapped_b = false;
  const auto attempt = [&]() -> absl::StatusOr<bool> {
    OFFCUT_RETURN_IF_ERROR(handle.status());
    OFFCUT_RETURN_IF_ERROR(driver.Map(a, granule, *handle));
    mapped_a = true;
    OFFCUT_RETURN_IF_ERROR(driver.Map(b, granule, *handle));
    mapped_b = true;
    OFFCUT_RETURN_IF_ERROR(driver.SetAccess(a, 2 * granule, device));
    OFFCUT_RETURN_IF_ERROR(driver.WriteWord(device, a, kFirst));
    OFFCUT_ASSIGN_OR_RETURN(const uint32_t through_b, driver.ReadWord(device, b));
    OFFCUT_RETURN_IF_ERROR(driver.WriteWord(device, b + granule - sizeof(kSecond), kSecond));
    OFFCUT_ASSIGN_OR_RETURN(const uint32_t through_a,
                            driver.ReadWord(device, a + granule - sizeof(kSecond)));
    return through_b == kFirst && through_a == kSecond;
  };
  absl::StatusOr<bool> works = attempt();
  // What the driver refuses now stays with the process.
  const bool a_is_free = !mapped_a || driver.Unmap(a, granule).ok();
  const bool b_is_free = !mapped_b || driver.Unmap(b, granule).ok();
  if (handle.ok()) driver.ReleaseMemory(*handle).IgnoreError();
  if (a_is_free && b_is_free) driver.FreeAddress(a, 2 * granule).IgnoreError();
  return works;
}

absl::StatusOr<MemoryFlags> GrantedMemoryFlags(Driver& driver, DeviceIndex device) {
  OFFCUT_ASSIGN_OR_RETURN(const DeviceProperties properties, driver.GetProperties(device));
  if (!properties.virtual_memory) return MemoryFlags{};
  const MemoryFlags& claimed = properties.memory_flags;
  // An H200 refused a descriptor together with a fabric handle, so no combination has both.
  for (const MemoryFlags& flags :
       {MemoryFlags{.rdma = true, .export_fd = true}, MemoryFlags{.export_fd = true},
        MemoryFlags{.rdma = true, .export_fabric = true}, MemoryFlags{.export_fabric = true},
        MemoryFlags{.rdma = true}}) {
    if ((flags.rdma && !claimed.rdma) || (flags.export_fd && !claimed.export_fd) ||
        (flags.export_fabric && !claimed.export_fabric)) {
      continue;
    }
    const auto handle = driver.CreateMemory(device, properties.granularity, flags);
    if (handle.ok()) OFFCUT_RETURN_IF_ERROR(driver.ReleaseMemory(*handle));
    // A full device says nothing about the flags.
    if (handle.ok() || absl::IsResourceExhausted(handle.status())) return flags;
  }
  return MemoryFlags{};
}

}  // namespace offcut
