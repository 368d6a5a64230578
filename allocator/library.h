// Library: what one process has of Offcut, wired together.
//
// Owns the configuration, the driver, the recording and one DeviceAllocator per device in use. The
// only place that knows all of them; offcut.cc translates it to C. Created at the first use and
// never destroyed: tensors die in exit handlers and static destructors. Thread-safe.

#ifndef OFFCUT_ALLOCATOR_LIBRARY_H_
#define OFFCUT_ALLOCATOR_LIBRARY_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/optimization.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"
#include "allocator/change_observer.h"
#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/driver/driver.h"
#include "allocator/trace/recorder.h"
#include "allocator/trace/report_files.h"

namespace offcut {

class Library {
 public:
  // The first call reads the environment and starts the recording; it does not touch CUDA.
  static Library& Get() {
    Library* const library = instance_.load(std::memory_order_acquire);
    return ABSL_PREDICT_TRUE(library != nullptr) ? *library : MakeSlow();
  }

  // What was wrong with the environment, or OK. Told on stderr once, by Get.
  const absl::Status& start_status() const { return start_status_; }
  const std::string& options_json() const { return options_json_; }
  const Config& config() const { return config_; }

  // The allocator of a device, made at the first call. InvalidArgument for a device that does not
  // exist.
  absl::StatusOr<DeviceAllocator*> AllocatorFor(DeviceIndex device) {
    if (DeviceAllocator* const allocator = FindAllocator(device);
        ABSL_PREDICT_TRUE(allocator != nullptr)) {
      return allocator;
    }
    return MakeAllocatorSlow(device);
  }
  // The allocator of a device in use, or nullptr.
  DeviceAllocator* FindAllocator(DeviceIndex device) const {
    if (device < 0 || device >= kMaxDevices) return nullptr;
    return allocators_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  }
  // The device whose address ranges hold `address`.
  std::optional<DeviceIndex> FindDeviceOf(DevicePtr address) const {
    return address_map_.Find(address);
  }
  // Its allocator, or nullptr.
  DeviceAllocator* FindAllocatorOf(DevicePtr address) const {
    const std::optional<DeviceIndex> device = FindDeviceOf(address);
    return device.has_value() ? FindAllocator(*device) : nullptr;
  }
  void ForEachAllocator(absl::FunctionRef<void(DeviceAllocator&)> visit) const;

  // Reserved memory stays within `fraction` of the device, and within the option memory_limit_mb.
  absl::Status SetMemoryFraction(DeviceIndex device, double fraction);
  double MemoryFraction(DeviceIndex device) const;

  // Of all devices, those to come included; but what OFFCUT_CONF says stays.
  void SetSizeOptions(const SizeOptions& options);

  // See DeviceAllocator; of all devices, those to come included.
  void SetFreeMemoryCallback(std::function<bool()> callback);

  // Told of every change on all devices, those to come included; a callback of nullptr: nobody any
  // more, once this returns.
  void SetChangeCallback(ChangeCallback callback);

  // "" if nothing is recorded.
  const std::string& recording_directory() const { return recording_directory_; }
  void FlushRecording();
  // Writes why a request failed into the recording's directory; the path, or "" if nothing is
  // recorded or the file cannot be written.
  std::string SaveReport(absl::string_view text);

  // True in a child that was forked while a device was in use: CUDA is unusable there, and locks
  // may be held for ever by threads that it does not have.
  static bool InForkedChild() { return in_forked_child_.load(std::memory_order_relaxed); }

 private:
  static constexpr DeviceIndex kMaxDevices = 64;

  static Library& MakeSlow();
  Library();
  void ReadOptions();
  void StartRecording();
  void EndRecording();
  static void AfterForkInChild();
  absl::StatusOr<DeviceAllocator*> MakeAllocatorSlow(DeviceIndex device);
  // nullptr where nobody is to be told. The device's former one hears nothing any more.
  ChangeObserver* MakeChangeObserver(DeviceIndex device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Bytes LimitFor(double fraction, Bytes device_total) const;

  static std::atomic<Library*> instance_;  // set once there is one; never destroyed
  static std::atomic<bool> in_forked_child_;

  absl::Status start_status_;
  Config config_;
  std::string options_json_;
  std::string recording_directory_;
  std::unique_ptr<ReportFiles> report_files_;  // if a recording was started
  std::unique_ptr<Driver> driver_;
  AddressMap address_map_;
  const pid_t pid_;  // of the process that made this; a forked child has another
  std::atomic<Recorder*> recorder_for_fork_{nullptr};  // recorder_, for where no lock can be taken

  mutable absl::Mutex mutex_;  // taken before a device's lock, never after
  std::unique_ptr<Recorder> recorder_ ABSL_GUARDED_BY(mutex_);
  std::array<double, kMaxDevices> fractions_ ABSL_GUARDED_BY(mutex_);
  std::function<bool()> free_memory_callback_ ABSL_GUARDED_BY(mutex_);
  std::optional<SizeOptions> size_options_ ABSL_GUARDED_BY(mutex_);  // if they were changed
  ChangeCallback change_callback_ ABSL_GUARDED_BY(mutex_);
  std::array<std::unique_ptr<ChangeObserver>, kMaxDevices> change_observers_
      ABSL_GUARDED_BY(mutex_);
  // Written under mutex_, read without; never reset.
  std::array<std::atomic<DeviceAllocator*>, kMaxDevices> allocators_{};
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_LIBRARY_H_
