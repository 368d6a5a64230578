// The functions of functions_13.def as data, and what happens to those that nobody simulates.
//
// A refusal says the function's name on standard error, once per function, and returns the error
// that its library has for "not supported", so that a program stops where it first left what is
// simulated and says why. Thread-safe. Knows no CUDA header: the names are bound by the linker.

#ifndef OFFCUT_ALLOCATOR_SIM_CUDA_ABI_FUNCTION_LIST_H_
#define OFFCUT_ALLOCATOR_SIM_CUDA_ABI_FUNCTION_LIST_H_

#include <atomic>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace offcut::cuda_abi {

enum class Library : uint8_t {
  kRuntime,
  kDriver,
  kCublas,
  kCublasLt,
  kCuFile,
  kCudnn,
  kNccl,
  kCufft,
  kCusolver,
  kCusparse,
  kCusparseLt,
  kCurand,
};

// The function that `name` means to a program compiled for CUDA 13: the newest version of it
// ("cuMemGetInfo" is cuMemGetInfo_v2). nullptr if the list lacks it. `library`: where to look.
void* FindFunction(Library library, absl::string_view name);

// Says once (`*said`) that `name` is not simulated; returns the library's error for it.
int Refuse(Library library, const char* name, std::atomic<bool>* said);

// Says that a function which the list lacks was looked up by name.
void SayUnknown(absl::string_view name);

// The sentence about a library that is absent as a whole: what, and how to do without it.
const char* AbsentSentence(Library library);

}  // namespace offcut::cuda_abi

#endif  // OFFCUT_ALLOCATOR_SIM_CUDA_ABI_FUNCTION_LIST_H_
