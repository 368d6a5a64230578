#include "allocator/sim/cuda_abi/function_list.h"

#include <array>
#include <string>

#include "allocator/sim/cuda_abi/thread_state.h"

// No CUDA header is included here, so that a function that does nothing, or refuses, can be defined
// without its parameters: by the C calling convention it may ignore them. `long`, so that a
// negative error reaches callers that read 64 bits.

namespace offcut::cuda_abi {

// Defined in cublas.cc, where the handles live.
int SucceedWithCublasHandle(const void* handle, const char* name);
int SucceedWithCublasLtDescriptor(const void* descriptor, const char* name);

namespace {

template <Library>
long Succeed(const void*, const char*) {
  return 0;
}

// BLAS functions take their handle first; one that does not exist is misuse even of a no-op.
template <>
long Succeed<Library::kCublas>(const void* handle, const char* name) {
  return SucceedWithCublasHandle(handle, name);
}

template <>
long Succeed<Library::kCublasLt>(const void* descriptor, const char* name) {
  return SucceedWithCublasLtDescriptor(descriptor, name);
}

}  // namespace
}  // namespace offcut::cuda_abi

#define OFFCUT_DEFINE_Implemented(library, name) extern "C" long name(const void*);
#define OFFCUT_DEFINE_Succeeds(library, name)                                     \
  extern "C" long name(const void* first_argument) {                              \
    using offcut::cuda_abi::Library;                                              \
    return offcut::cuda_abi::Succeed<Library::k##library>(first_argument, #name); \
  }
#define OFFCUT_DEFINE_Refuses(library, name)                                              \
  extern "C" long name(const void*) {                                                     \
    static std::atomic<bool> said{false};                                                 \
    return offcut::cuda_abi::Refuse(offcut::cuda_abi::Library::k##library, #name, &said); \
  }
#define CUDA_FUNCTION(behaviour, library, name) OFFCUT_DEFINE_##behaviour(library, name)
#include "allocator/sim/cuda_abi/functions_13.def"
#undef CUDA_FUNCTION

namespace offcut::cuda_abi {
namespace {

struct Function {
  absl::string_view name;
  Library library;
  void* address;
};

const Function kFunctions[] = {
#define CUDA_FUNCTION(behaviour, library, name) \
  {#name, Library::k##library, reinterpret_cast<void*>(&::name)},
#include "allocator/sim/cuda_abi/functions_13.def"
#undef CUDA_FUNCTION
};

struct LibraryFacts {
  int refusal;  // its error for what is not supported
  const char*
      absent_name;  // nullptr: simulated in part, so the function's own name is what matters
  const char* instead;
};

// In the order of Library.
constexpr std::array<LibraryFacts, 12> kLibraryFacts = {{
    {801, nullptr, nullptr},  // cudaErrorNotSupported
    {801, nullptr, nullptr},  // CUDA_ERROR_NOT_SUPPORTED
    {15, nullptr, nullptr},   // CUBLAS_STATUS_NOT_SUPPORTED
    {15, nullptr, nullptr},
    // Negative: cuFileRead returns a count or a negated error, and the other functions' readers
    // take the absolute value. CU_FILE_PLATFORM_NOT_SUPPORTED.
    {-5007, "cuFile", nullptr},
    {1001, "cuDNN",
     "set torch.backends.cudnn.enabled = False and torch.backends.cuda.enable_cudnn_sdp(False)"},
    {5, "NCCL", "use the process group 'fake' or 'gloo'"},  // ncclInvalidUsage
    {16, "cuFFT", nullptr},                                 // CUFFT_NOT_SUPPORTED
    {1, "cuSOLVER", nullptr},                               // CUSOLVER_STATUS_NOT_INITIALIZED
    {10, "cuSPARSE", nullptr},                              // CUSPARSE_STATUS_NOT_SUPPORTED
    {10, "cuSPARSELt", nullptr},
    {203, "cuRAND", nullptr},  // CURAND_STATUS_INITIALIZATION_FAILED
}};

const LibraryFacts& Facts(Library library) { return kLibraryFacts[static_cast<size_t>(library)]; }

void* FindExactly(Library library, absl::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.library == library && function.name == name) return function.address;
  }
  return nullptr;
}

}  // namespace

void* FindFunction(Library library, absl::string_view name) {
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    void* const address = FindExactly(library, std::string(name) + version);
    if (address != nullptr) return address;
  }
  return nullptr;
}

int Refuse(Library library, const char* name, std::atomic<bool>* said) {
  const LibraryFacts& facts = Facts(library);
  if (!said->exchange(true, std::memory_order_relaxed)) {
    if (facts.absent_name == nullptr) {
      Report("%s is not simulated", name);
    } else {
      Report("%s (called: %s)", AbsentSentence(library), name);
    }
  }
  if (library == Library::kRuntime) return SetRuntimeError(facts.refusal);
  return facts.refusal;
}

void SayUnknown(absl::string_view name) {
  Report("%.*s is not simulated", static_cast<int>(name.size()), name.data());
}

const char* AbsentSentence(Library library) {
  static const auto* const sentences = [] {
    auto* made = new std::array<std::string, kLibraryFacts.size()>;
    for (size_t i = 0; i < made->size(); ++i) {
      const LibraryFacts& facts = kLibraryFacts[i];
      if (facts.absent_name == nullptr) continue;
      (*made)[i] = std::string(facts.absent_name) + " is not simulated";
      if (facts.instead != nullptr) (*made)[i] += std::string("; ") + facts.instead;
    }
    return made;
  }();
  return (*sentences)[static_cast<size_t>(library)].c_str();
}

}  // namespace offcut::cuda_abi
