// What PyTorch may ask and we do not do yet. Each throws NotImplementedError (a RuntimeError) that
// names the feature as its users know it; none is silently ignored.

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

[[noreturn]] void ThrowNotSupported(const char* feature) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Offcut does not support ", feature, " yet.");
}

constexpr char kIpc[] = "sharing CUDA tensors between processes (CUDA IPC)";

}  // namespace

cca::ShareableHandle TorchAllocator::shareIpcHandle(void*) { ThrowNotSupported(kIpc); }
std::shared_ptr<void> TorchAllocator::getIpcDevPtr(std::string) { ThrowNotSupported(kIpc); }

}  // namespace offcut::torch_shim
