// CUDA's functions as a program sees them: looked up by name in the built library. The machine is
// fixed for the process: see kMachine.

#ifndef OFFCUT_TESTS_SIM_CUDA_ABI_CUDA_ABI_H_
#define OFFCUT_TESTS_SIM_CUDA_ABI_CUDA_ABI_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "allocator/base/units.h"

namespace offcut::cuda_abi_test {

// Two small H200s that run far behind the host: nothing is done before somebody waits for it.
inline constexpr char kMachine[] = "H200,memory=1GiB,devices=2,lag=1000s,outside=64MiB";
inline constexpr Bytes kMemory = kGiB;

// The function's address; fails the test if the library lacks it.
void* Find(const char* name);

// CALL(cudaMalloc)(...): the library's function of that name, with the header's type. Macros of
// cuda.h are expanded first, so cuMemFree is cuMemFree_v2.
#define OFFCUT_NAME_(name) #name
#define CALL(name) \
  (reinterpret_cast<decltype(&name)>(::offcut::cuda_abi_test::Find(OFFCUT_NAME_(name))))

// A piece of device memory for one test.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  char* get() const { return static_cast<char*>(pointer_); }

 private:
  void* pointer_ = nullptr;
};

// What `action` writes to standard error.
std::string StandardErrorOf(void (*action)());

}  // namespace offcut::cuda_abi_test

#endif  // OFFCUT_TESTS_SIM_CUDA_ABI_CUDA_ABI_H_
