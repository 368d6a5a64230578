#include "allocator/library.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/clock.h"
#include "allocator/base/status_macros.h"
#include "allocator/config/describe.h"
#include "allocator/driver/cuda_driver.h"

namespace offcut {
namespace {

void Tell(absl::string_view message) {
  std::fprintf(stderr, "offcut: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace

std::atomic<Library*> Library::instance_{nullptr};
std::atomic<bool> Library::in_forked_child_{false};

Library& Library::MakeSlow() {
  static Library* const instance = new Library();
  return *instance;
}

Library::Library() : driver_(std::make_unique<CudaDriver>()), pid_(getpid()) {
  fractions_.fill(-1.0);
  ReadOptions();
  StartRecording();
  instance_.store(this, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, &Library::AfterForkInChild);
  std::atexit([] {
    if (Library& library = Get(); getpid() == library.pid_) library.EndRecording();
  });
}

void Library::ReadOptions() {
  absl::StatusOr<Config> config = Config::FromEnvironment();
  if (config.ok()) {
    config_ = *std::move(config);
    for (const std::string& warning : config_.warnings()) Tell(warning);
  } else {
    // A run must not die of a typing error: it goes on with the defaults.
    start_status_ = config.status();
    Tell(absl::StrCat(start_status_.message(), "\noffcut: going on with the default options"));
  }
  options_json_ = DescribeJson(config_);
}

void Library::StartRecording() {
  const char* const parent = std::getenv("OFFCUT_RECORD");
  if (parent == nullptr || *parent == '\0') return;
  absl::StatusOr<std::unique_ptr<Recorder>> recorder =
      Recorder::Start(parent, options_json_, Clock::Real());
  if (!recorder.ok()) {
    Tell(absl::StrCat(recorder.status().message(), "\noffcut: going on without a recording"));
    if (start_status_.ok()) {
      start_status_ = absl::InvalidArgumentError(recorder.status().message());
    }
    return;
  }
  absl::MutexLock lock(&mutex_);
  recorder_ = *std::move(recorder);
  recorder_for_fork_ = recorder_.get();
  recording_directory_ = recorder_->directory();
  report_files_ = std::make_unique<ReportFiles>(recording_directory_);
}

void Library::EndRecording() {
  absl::MutexLock lock(&mutex_);
  if (recorder_ == nullptr) return;
  // Tensors may still be freed after this; those frees are no longer recorded.
  ForEachAllocator([](DeviceAllocator& allocator) { allocator.RemoveSinks(); });
  recorder_for_fork_ = nullptr;
  recorder_.reset();
}

void Library::FlushRecording() {
  absl::MutexLock lock(&mutex_);
  if (recorder_ != nullptr) recorder_->Flush();
}

std::string Library::SaveReport(absl::string_view text) {
  if (report_files_ == nullptr) return "";
  // The report itself, and what is recorded of the failure, are not lost by that.
  return report_files_->Save(text).value_or("");
}

void Library::AfterForkInChild() {
  Library& library = Get();
  bool in_use = false;
  library.ForEachAllocator([&](DeviceAllocator&) { in_use = true; });
  // A parent that has not used CUDA leaves the child free to.
  if (in_use) in_forked_child_.store(true, std::memory_order_relaxed);
  // Another thread of the parent may have held the lock, and no thread of the child will open it.
  if (Recorder* const recorder = library.recorder_for_fork_; recorder != nullptr) {
    recorder->DetachInChild();
  }
}

absl::StatusOr<DeviceAllocator*> Library::MakeAllocatorSlow(DeviceIndex device) {
  absl::MutexLock lock(&mutex_);
  if (DeviceAllocator* const allocator = FindAllocator(device); allocator != nullptr) {
    return allocator;
  }
  OFFCUT_RETURN_IF_ERROR(driver_->Initialize());
  OFFCUT_ASSIGN_OR_RETURN(const int devices, driver_->DeviceCount());
  if (device < 0 || device >= std::min<int>(devices, kMaxDevices)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " does not exist; there are ", devices, ", from 0 on"));
  }
  OFFCUT_ASSIGN_OR_RETURN(const DeviceProperties properties, driver_->GetProperties(device));
  std::vector<EventSink*> sinks;
  if (recorder_ != nullptr) {
    const absl::StatusOr<EventSink*> sink =
        recorder_->SinkFor(device, properties.name, properties.total_bytes);
    if (sink.ok()) {
      sinks.push_back(*sink);
    } else {
      Tell(absl::StrCat(sink.status().message(), "\noffcut: going on without recording device ",
                        device));
    }
  }
  if (EventSink* const observer = MakeChangeObserver(device)) sinks.push_back(observer);
  double& fraction = fractions_[static_cast<size_t>(device)];
  if (fraction < 0) fraction = config_.per_process_memory_fraction();
  OFFCUT_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceAllocator> allocator,
      DeviceAllocator::Create(*driver_, device, Clock::Real(), address_map_, config_,
                              std::move(sinks), LimitFor(fraction, properties.total_bytes)));
  if (!allocator->notice().empty()) Tell(allocator->notice());
  allocator->SetFreeMemoryCallback(free_memory_callback_);
  if (size_options_.has_value()) allocator->SetSizeOptions(*size_options_);
  allocator->SetWaitForPeer([this](DeviceIndex peer) {
    DeviceAllocator* const other = FindAllocator(peer);
    return other != nullptr ? other->WaitForDevice() : driver_->SynchronizeDevice(peer);
  });
  DeviceAllocator* const made = allocator.release();
  allocators_[static_cast<size_t>(device)].store(made, std::memory_order_release);
  return made;
}

void Library::ForEachAllocator(absl::FunctionRef<void(DeviceAllocator&)> visit) const {
  for (const std::atomic<DeviceAllocator*>& slot : allocators_) {
    if (DeviceAllocator* const allocator = slot.load(std::memory_order_acquire);
        allocator != nullptr) {
      visit(*allocator);
    }
  }
}

Bytes Library::LimitFor(double fraction, Bytes device_total) const {
  const Bytes option = config_.memory_limit_mb().bytes();
  if (fraction >= 1) return option;
  return std::min(option, static_cast<Bytes>(fraction * static_cast<double>(device_total)));
}

absl::Status Library::SetMemoryFraction(DeviceIndex device, double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a memory fraction of ", fraction, "; it must be from 0 to 1"));
  }
  OFFCUT_ASSIGN_OR_RETURN(DeviceAllocator* const allocator, AllocatorFor(device));
  absl::MutexLock lock(&mutex_);
  fractions_[static_cast<size_t>(device)] = fraction;
  allocator->SetLimit(LimitFor(fraction, allocator->properties().total_bytes));
  return absl::OkStatus();
}

void Library::SetSizeOptions(const SizeOptions& options) {
  absl::MutexLock lock(&mutex_);
  SizeOptions kept(config_);
  const auto take = [&](Option option, auto& value, const auto& wanted) {
    if (config_.origin(option) != Origin::kOffcutConf) value = wanted;
  };
  take(Option::max_split_size_mb, kept.split.max_split, options.split.max_split);
  take(Option::max_non_split_rounding_mb, kept.split.max_non_split_rounding,
       options.split.max_non_split_rounding);
  take(Option::large_segment_size_mb, kept.large_segment, options.large_segment);
  take(Option::roundup_power2_divisions, kept.divisions, options.divisions);
  take(Option::garbage_collection_threshold, kept.garbage_collection_threshold,
       options.garbage_collection_threshold);
  size_options_ = kept;
  ForEachAllocator([&](DeviceAllocator& allocator) { allocator.SetSizeOptions(kept); });
}

void Library::SetFreeMemoryCallback(std::function<bool()> callback) {
  absl::MutexLock lock(&mutex_);
  ForEachAllocator([&](DeviceAllocator& allocator) { allocator.SetFreeMemoryCallback(callback); });
  free_memory_callback_ = std::move(callback);
}

ChangeObserver* Library::MakeChangeObserver(DeviceIndex device) {
  std::unique_ptr<ChangeObserver>& observer = change_observers_[static_cast<size_t>(device)];
  observer = nullptr;
  if (change_callback_.call != nullptr) {
    observer = std::make_unique<ChangeObserver>(
        device, change_callback_, size_options_.value_or(SizeOptions(config_)).divisions);
  }
  return observer.get();
}

void Library::SetChangeCallback(ChangeCallback callback) {
  absl::MutexLock lock(&mutex_);
  change_callback_ = callback;
  for (DeviceIndex device = 0; device < kMaxDevices; ++device) {
    DeviceAllocator* const allocator = FindAllocator(device);
    if (allocator == nullptr) continue;
    if (const auto& former = change_observers_[static_cast<size_t>(device)]; former != nullptr) {
      allocator->RemoveSink(former.get());
    }
    if (ChangeObserver* const observer = MakeChangeObserver(device)) {
      allocator->AddSink(observer, [&](const StateView& view) { observer->Begin(view); });
    }
  }
}

double Library::MemoryFraction(DeviceIndex device) const {
  absl::MutexLock lock(&mutex_);
  const double fraction =
      device >= 0 && device < kMaxDevices ? fractions_[static_cast<size_t>(device)] : -1.0;
  return fraction < 0 ? config_.per_process_memory_fraction() : fraction;
}

}  // namespace offcut
