// Loads liboffcut_nvmlsim.so, which lies beside this library, before anybody asks for NVML (see
// nvml.cc). Where it is missing, NVML is the machine's own or none.

#include <dlfcn.h>

#include <string>

namespace {

__attribute__((constructor)) void TakeThePlaceOfNvml() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&TakeThePlaceOfNvml), &self) == 0) return;
  const std::string path = self.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  dlopen((folder + "liboffcut_nvmlsim.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
}

}  // namespace
