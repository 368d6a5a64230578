// CudaResult: CUDA's error numbers (CUresult) under our names, for code that must not include
// cuda.h.

#ifndef OFFCUT_ALLOCATOR_DRIVER_CUDA_RESULTS_H_
#define OFFCUT_ALLOCATOR_DRIVER_CUDA_RESULTS_H_

namespace offcut {

// CudaResult::kInvalidValue: an int for DriverError and from DriverErrorCode.
struct CudaResult {
  enum Value : int {
#define OFFCUT_CUDA_RESULT(name, number, cuda_name, status_code) name = number,
#include "allocator/driver/cuda_results.def"
#undef OFFCUT_CUDA_RESULT
  };
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_DRIVER_CUDA_RESULTS_H_
