// The driver's functions on modules and their kernels, which are handles and do nothing.

#include "absl/strings/str_cat.h"
#include "allocator/sim/cuda_abi/device_facts.h"
#include "allocator/sim/cuda_abi/kernels.h"
#include "allocator/sim/cuda_abi/simulation.h"

using offcut::DeviceIndex;
using namespace offcut::cuda_abi;  // NOLINT: CUDA's functions are global

namespace {

HandleSet& Modules() {
  static auto* const modules = new HandleSet(0x30D0);
  return *modules;
}

HandleSet& Functions() {
  static auto* const functions = new HandleSet(0xF0C0);
  return *functions;
}

absl::Status CheckFunction(CUfunction function) {
  if (Functions().Contains(function)) return absl::OkStatus();
  return CheckKernel(function);
}

CUresult Launch(CUfunction function, dim3 grid, dim3 block, CUstream stream) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_ASSIGN_OR_RETURN(const DeviceIndex device, s.DriverDevice());
    OFFCUT_RETURN_IF_ERROR(CheckFunction(function));
    OFFCUT_RETURN_IF_ERROR(CheckLaunchShape(grid, block));
    return s.Launch(device, stream);
  });
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = static_cast<CUmodule>(Modules().Create());
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                            void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  return Modules().Remove(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char*) {
  if (!Modules().Contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  *function = static_cast<CUfunction>(Functions().Create());
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckFunction(function));
    const offcut::sim::Card& card = s.model().card();
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = kThreadsPerBlockMax;
        break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = kRegistersPerThread;
        break;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = card.major * 10 + card.minor;
        break;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = card.shared_block_optin_bytes;
        break;
      default:
        *value = 0;
    }
    return absl::OkStatus();
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t) {
  return AnswerDriver([&](Simulation& s) -> absl::Status {
    OFFCUT_RETURN_IF_ERROR(CheckFunction(function));
    *blocks = BlocksPerMultiprocessor(s.model().card(), threads);
    return absl::OkStatus();
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int, CUstream stream, void**, void**) {
  return Launch(function, dim3{grid_x, grid_y, grid_z}, dim3{block_x, block_y, block_z}, stream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int, CUstream stream, void**) {
  return Launch(function, dim3{grid_x, grid_y, grid_z}, dim3{block_x, block_y, block_z}, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  return Launch(function, dim3{config->gridDimX, config->gridDimY, config->gridDimZ},
                dim3{config->blockDimX, config->blockDimY, config->blockDimZ}, config->hStream);
}

}  // extern "C"
