#include "allocator/sim/cuda_abi/kernels.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace offcut::cuda_abi {
namespace {

// Filled by static constructors, before main and whenever a library is loaded, hence made at first
// use.
struct Registry {
  struct VariableEntry {
    const char* name;
    size_t bytes;
    absl::flat_hash_map<DeviceIndex, DevicePtr> addresses;
  };

  absl::Mutex mutex;
  absl::flat_hash_map<const void*, const char*> kernels ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<const void*, VariableEntry> variables ABSL_GUARDED_BY(mutex);

  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }
};

absl::Status UnknownFunction(const void* kernel) {
  return Error(CUDA_ERROR_INVALID_HANDLE,
               absl::StrCat("no kernel is registered at 0x", absl::Hex(AddressOf(kernel))));
}

std::string Shape(dim3 d) { return absl::StrCat("(", d.x, ", ", d.y, ", ", d.z, ")"); }

}  // namespace

void RegisterKernel(const void* stub, const char* name) {
  Registry& registry = Registry::Get();
  const absl::MutexLock lock(&registry.mutex);
  registry.kernels[stub] = name;
}

absl::Status CheckKernel(const void* kernel) {
  return KernelName(kernel) != nullptr ? absl::OkStatus() : UnknownFunction(kernel);
}

const char* KernelName(const void* kernel) {
  Registry& registry = Registry::Get();
  const absl::ReaderMutexLock lock(&registry.mutex);
  const auto it = registry.kernels.find(kernel);
  return it == registry.kernels.end() ? nullptr : it->second;
}

absl::Status CheckLaunchShape(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool fits = threads >= 1 && threads <= kThreadsPerBlockMax && block.z <= 64 &&
                    grid.x >= 1 && grid.x <= 2147483647u && grid.y >= 1 && grid.y <= 65535 &&
                    grid.z >= 1 && grid.z <= 65535;
  if (fits) return absl::OkStatus();
  return Error(static_cast<CUresult>(cudaErrorInvalidConfiguration),
               absl::StrCat("a launch of ", Shape(grid), " blocks of ", Shape(block), " threads"));
}

absl::Status PlaceHostFunction(Simulation& s, DeviceIndex device, StreamHandle stream, bool* run) {
  OFFCUT_RETURN_IF_ERROR(s.streams().Submit(device, stream).status());
  OFFCUT_ASSIGN_OR_RETURN(const sim::CaptureInfo capture, s.streams().GetCapture(device, stream));
  *run = capture.status == sim::CaptureStatus::kNone;
  return *run ? s.streams().SynchronizeStream(device, stream) : absl::OkStatus();
}

void RegisterVariable(const void* symbol, const char* name, size_t bytes) {
  Registry& registry = Registry::Get();
  const absl::MutexLock lock(&registry.mutex);
  registry.variables[symbol] = {name, bytes, {}};
}

absl::StatusOr<Variable> FindVariable(Simulation& s, DeviceIndex device, const void* symbol) {
  Registry& registry = Registry::Get();
  const absl::MutexLock lock(&registry.mutex);
  const auto it = registry.variables.find(symbol);
  if (it == registry.variables.end()) {
    return Error(static_cast<CUresult>(cudaErrorInvalidSymbol),
                 absl::StrCat("no variable is registered at 0x", absl::Hex(AddressOf(symbol))));
  }
  DevicePtr& address = it->second.addresses[device];
  if (address == 0) {
    OFFCUT_ASSIGN_OR_RETURN(address, s.memory().AllocateMemory(device, it->second.bytes));
  }
  return Variable{address, it->second.bytes};
}

}  // namespace offcut::cuda_abi
