// The one function that Python calls, by ctypes, before CUDA is initialised.

#include <string>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

// Never destroyed: tensors die in atexit handlers and static destructors.
TorchAllocator* installed = nullptr;

// "" or why not.
std::string Install() {
  if (installed != nullptr && cca::get() == installed) return "";
  cca::CUDAAllocator* previous = cca::get();
  if (previous == nullptr) return "PyTorch's CUDA library has not set its allocator up";
  if (previous->initialized()) {
    return "CUDA is already initialised in this process, or another allocator is in place (" +
           previous->name() + "): enable Offcut before the first use of CUDA";
  }
  if (const offcut_status status = offcut_init(); status != OFFCUT_OK) {
    // A bad option or record directory has been reported, and does not stop a training run.
    if (status != OFFCUT_INVALID_ARGUMENT) return offcut_last_error();
  }
  offcut_set_free_memory_callback([](void*) { return RunFreeMemoryCallbacks() ? 1 : 0; }, nullptr);
  FollowSettings();
  installed = new TorchAllocator(previous->name());
  cca::allocator.store(installed);
  // torch.accelerator and c10::getDeviceAllocator look here; native registers with a low priority.
  c10::SetAllocator(c10::kCUDA, installed, /*priority=*/255);
  return "";
}

}  // namespace
}  // namespace offcut::torch_shim

// Makes Offcut PyTorch's CUDA allocator. NULL on success and when it already is; else the reason,
// valid until the thread's next call. To be called with Python's lock held, which makes it serial.
extern "C" OFFCUT_API const char* offcut_torch_install() {
  static thread_local std::string error;
  try {
    error = offcut::torch_shim::Install();
  } catch (const std::exception& e) {  // no exception may cross into ctypes
    error = e.what();
  }
  return error.empty() ? nullptr : error.c_str();
}

// Whether PyTorch's allocator is ours now.
extern "C" OFFCUT_API int offcut_torch_installed() {
  using offcut::torch_shim::installed;
  return installed != nullptr && offcut::torch_shim::cca::get() == installed;
}
