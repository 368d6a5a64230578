// NVML's place, taken: a library of its own with the SONAME libnvidia-ml.so.1, which the simulated
// CUDA loads, so that whoever opens NVML by that name gets this one and not a real driver's.
//
// PyTorch asks NVML who uses the device when it words an out-of-memory error, and takes a refusal
// there for a bug of its own; so that one question is answered: nobody but this program. All else
// refuses.

#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace {

enum Status : int { kSuccess = 0, kNotSupported = 3 };

int Refuse(const char* name, std::atomic<bool>* said) {
  if (!said->exchange(true)) {
    char line[256];
    const int length = std::snprintf(line, sizeof line,
                                     "simulated CUDA: NVML is not simulated (called: %s)\n", name);
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, line, static_cast<size_t>(length));
  }
  return kNotSupported;
}

// What handles point to: the one device that is ever asked about.
char device;

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlInitWithFlags(unsigned int) { return kSuccess; }
int nvmlShutdown() { return kSuccess; }

int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** handle) {
  *handle = &device;
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses(void*, unsigned int* count, void*) {
  *count = 0;
  return kSuccess;
}

const char* nvmlErrorString(int status) {
  return status == kSuccess ? "success" : "NVML is not simulated";
}

#define OFFCUT_REFUSED(name)              \
  int name() {                            \
    static std::atomic<bool> said{false}; \
    return Refuse(#name, &said);          \
  }
// What PyTorch looks up, and what its Python side calls first through nvidia-ml-py.
OFFCUT_REFUSED(nvmlDeviceGetCount_v2)
OFFCUT_REFUSED(nvmlDeviceGetHandleByIndex_v2)
OFFCUT_REFUSED(nvmlDeviceGetHandleByUUID)
OFFCUT_REFUSED(nvmlDeviceGetMemoryInfo)
OFFCUT_REFUSED(nvmlDeviceGetNvLinkRemoteDeviceType)
OFFCUT_REFUSED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
OFFCUT_REFUSED(nvmlDeviceGetP2PStatus)
OFFCUT_REFUSED(nvmlDeviceGetPowerUsage)
OFFCUT_REFUSED(nvmlDeviceGetTemperature)
OFFCUT_REFUSED(nvmlDeviceGetUUID)
OFFCUT_REFUSED(nvmlDeviceGetUtilizationRates)
OFFCUT_REFUSED(nvmlSystemGetCudaDriverVersion_v2)
#undef OFFCUT_REFUSED

}  // extern "C"
