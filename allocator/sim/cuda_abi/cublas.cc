// cuBLAS and cuBLASLt: handles and settings that are kept, products that do nothing.
//
// Every create returns its own handle, because PyTorch keeps a workspace per handle and stream. The
// CUDA headers of a development build lack cuBLAS, so the few types are declared here, as in 13.1.

#include <cstdint>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "allocator/sim/cuda_abi/simulation.h"

using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace offcut::cuda_abi {
namespace {

enum Status : int { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7 };

constexpr int kVersion = 130100;

struct Settings {
  cudaStream_t stream = nullptr;
  int math_mode = 0;     // CUBLAS_DEFAULT_MATH
  int pointer_mode = 0;  // CUBLAS_POINTER_MODE_HOST
};

// Live cuBLAS handles and what was set on them.
struct Handles {
  absl::Mutex mutex;
  HandleSet names{0xB1A5};
  absl::flat_hash_map<const void*, Settings> settings ABSL_GUARDED_BY(mutex);

  static Handles& Get() {
    static auto* const handles = new Handles;
    return *handles;
  }
};

template <typename Use>
int WithSettings(const void* handle, const char* name, const Use& use) {
  Handles& handles = Handles::Get();
  const absl::MutexLock lock(&handles.mutex);
  const auto it = handles.settings.find(handle);
  if (it == handles.settings.end()) {
    Report("%s: %p is no cuBLAS handle, or destroyed", name, handle);
    return kNotInitialized;
  }
  use(it->second);
  return kSuccess;
}

// cuBLASLt's descriptors: nothing is read back from them.
HandleSet& Descriptors() {
  static auto* const descriptors = new HandleSet(0xB1A7);
  return *descriptors;
}

int CreateDescriptor(void** descriptor) {
  if (descriptor == nullptr) return kInvalidValue;
  *descriptor = Descriptors().Create();
  return kSuccess;
}

int DestroyDescriptor(void* descriptor, const char* name) {
  if (descriptor == nullptr || Descriptors().Remove(descriptor)) return kSuccess;
  Report("%s: %p is no descriptor, or destroyed", name, descriptor);
  return kInvalidValue;
}

}  // namespace

namespace {

int LaunchProduct(cudaStream_t stream) {
  const cudaError_t launched =
      AnswerRuntime([stream](Simulation& s) { return s.Launch(s.RuntimeDevice(), stream); });
  return launched == cudaSuccess ? kSuccess : kInvalidValue;
}

}  // namespace

int SucceedWithCublasHandle(const void* handle, const char* name) {
  cudaStream_t stream = nullptr;
  const int found = WithSettings(handle, name, [&](const Settings& s) { stream = s.stream; });
  return found == kSuccess ? LaunchProduct(stream) : found;
}

int SucceedWithCublasLtDescriptor(const void* descriptor, const char* name) {
  if (Descriptors().Contains(descriptor)) return kSuccess;
  Report("%s: %p is no descriptor, or destroyed", name, descriptor);
  return kInvalidValue;
}

}  // namespace offcut::cuda_abi

extern "C" {

// --- cuBLAS ---

int cublasCreate_v2(void** handle) {
  Simulation* const simulation = Simulation::Get();
  if (simulation == nullptr || handle == nullptr) return kNotInitialized;
  simulation->RuntimeDevice();
  Handles& handles = Handles::Get();
  const absl::MutexLock lock(&handles.mutex);
  *handle = handles.names.Create();
  handles.settings[*handle] = Settings();
  return kSuccess;
}

int cublasDestroy_v2(void* handle) {
  const int found = WithSettings(handle, "cublasDestroy_v2", [](Settings&) {});
  Handles& handles = Handles::Get();
  const absl::MutexLock lock(&handles.mutex);
  handles.settings.erase(handle);
  return found;
}

int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  return WithSettings(handle, "cublasSetStream_v2", [&](Settings& s) { s.stream = stream; });
}

int cublasGetStream_v2(void* handle, cudaStream_t* stream) {
  return WithSettings(handle, "cublasGetStream_v2", [&](Settings& s) { *stream = s.stream; });
}

int cublasSetMathMode(void* handle, int mode) {
  return WithSettings(handle, "cublasSetMathMode", [&](Settings& s) { s.math_mode = mode; });
}

int cublasGetMathMode(void* handle, int* mode) {
  return WithSettings(handle, "cublasGetMathMode", [&](Settings& s) { *mode = s.math_mode; });
}

int cublasSetPointerMode_v2(void* handle, int mode) {
  return WithSettings(handle, "cublasSetPointerMode_v2",
                      [&](Settings& s) { s.pointer_mode = mode; });
}

int cublasGetPointerMode_v2(void* handle, int* mode) {
  return WithSettings(handle, "cublasGetPointerMode_v2",
                      [&](Settings& s) { *mode = s.pointer_mode; });
}

int cublasSetWorkspace_v2(void* handle, void*, size_t) {
  return WithSettings(handle, "cublasSetWorkspace_v2", [](Settings&) {});
}

int cublasGetVersion_v2(void*, int* version) {
  *version = kVersion;
  return kSuccess;
}

// --- cuBLASLt ---

size_t cublasLtGetVersion() { return kVersion; }

int cublasLtCreate(void** handle) { return cublasCreate_v2(handle); }
int cublasLtDestroy(void* handle) { return cublasDestroy_v2(handle); }

int cublasLtMatmulDescCreate(void** descriptor, int, int) { return CreateDescriptor(descriptor); }
int cublasLtMatmulDescDestroy(void* descriptor) {
  return DestroyDescriptor(descriptor, "cublasLtMatmulDescDestroy");
}
int cublasLtMatmulPreferenceCreate(void** preference) { return CreateDescriptor(preference); }
int cublasLtMatmulPreferenceDestroy(void* preference) {
  return DestroyDescriptor(preference, "cublasLtMatmulPreferenceDestroy");
}
int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) {
  return CreateDescriptor(layout);
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  return DestroyDescriptor(layout, "cublasLtMatrixLayoutDestroy");
}

int cublasLtMatmul(void* handle, void* description, const void*, const void*, void*, const void*,
                   void*, const void*, const void*, void*, void*, void*, const void*, void*, size_t,
                   cudaStream_t stream) {
  const int found = WithSettings(handle, "cublasLtMatmul", [](Settings&) {});
  if (found != kSuccess) return found;
  const int described = SucceedWithCublasLtDescriptor(description, "cublasLtMatmul");
  return described == kSuccess ? LaunchProduct(stream) : described;
}

struct cublasLtMatmulHeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// One algorithm, which needs no workspace; PyTorch allocates its own size before it asks.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted,
                                   cublasLtMatmulHeuristicResult* results, int* count) {
  if (wanted < 1 || results == nullptr || count == nullptr) return kInvalidValue;
  std::memset(results, 0, sizeof *results);
  *count = 1;
  return kSuccess;
}

}  // extern "C"
