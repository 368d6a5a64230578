#include "allocator/trace/recorder.h"

#include <signal.h>

#include <array>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/device_recording.h"
#include "allocator/trace/metadata.h"
#include "allocator/trace/recording_directory.h"

namespace offcut {
namespace {

// The writer looks at the rings this often by itself. Nothing depends on it being short: a ring of
// the default size takes 5 million events per second in between.
constexpr std::chrono::milliseconds kDrainInterval{50};

// Event::device is a byte.
constexpr int kMaxDevices = 256;

absl::Status CheckOptions(const RecorderOptions& options) {
  if (!std::has_single_bit(options.ring_events) || options.ring_events < 16 ||
      options.ring_events > kMaxRingEvents) {
    return absl::InvalidArgumentError(absl::StrCat("ring_events is ", options.ring_events,
                                                   "; right is a power of two from 16 to ",
                                                   kMaxRingEvents));
  }
  if (options.chunk_events < 1 || options.chunk_events > kMaxChunkEvents) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_events is ", options.chunk_events,
                                                   "; right is 1 to ", kMaxChunkEvents));
  }
  if (options.compression_level < 1 || options.compression_level > 19) {
    return absl::InvalidArgumentError(
        absl::StrCat("compression_level is ", options.compression_level, "; right is 1 to 19"));
  }
  return absl::OkStatus();
}

class RecorderImpl final : public Recorder {
 public:
  RecorderImpl(std::string directory, TraceMetadata metadata, const RecorderOptions& options)
      : state_(new State(std::move(directory), std::move(metadata), options)) {
    // The program's signal handlers are the business of its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    state_->writer = std::thread([state = state_] { state->Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~RecorderImpl() override {
    // A child has neither the thread nor the files, and a lock or condition that the thread was
    // using at the fork cannot even be destroyed: what the parent's copy owns is left as it is.
    if (state_->detached) return;
    state_->Stop();
    delete state_;
  }

  absl::StatusOr<EventSink*> SinkFor(DeviceIndex device, absl::string_view device_name,
                                     Bytes device_total_bytes) override {
    return state_->SinkFor(device, device_name, device_total_bytes);
  }
  const std::string& directory() const override { return state_->directory; }
  void Flush() override { state_->Flush(); }
  void DetachInChild() override { state_->DetachInChild(); }

 private:
  struct State {
    State(std::string directory_in, TraceMetadata metadata_in, const RecorderOptions& options_in)
        : directory(std::move(directory_in)),
          metadata(std::move(metadata_in)),
          options(options_in) {}

    absl::StatusOr<EventSink*> SinkFor(DeviceIndex device, absl::string_view device_name,
                                       Bytes device_total_bytes);
    void Flush();
    void Stop();
    void DetachInChild();
    void Run();

    const std::string directory;
    const TraceMetadata metadata;  // without what differs between devices
    const RecorderOptions options;

    // Set in a child only, which has no other thread.
    bool detached = false;

    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable flushed;
    // By device; most are null. Guarded by `mutex`; a recording, once here, stays until the end, so
    // the writer uses it without.
    std::array<std::unique_ptr<DeviceRecording>, kMaxDevices> devices;
    uint64_t flushes_asked = 0;
    uint64_t flushes_done = 0;
    bool stopping = false;

    std::thread writer;
  };

  State* const state_;
};

absl::StatusOr<EventSink*> RecorderImpl::State::SinkFor(DeviceIndex device,
                                                        absl::string_view device_name,
                                                        Bytes device_total_bytes) {
  if (detached) return absl::FailedPreconditionError("the recording belongs to the parent process");
  if (device < 0 || device >= kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, "; a recording has 0 to ", kMaxDevices - 1));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<DeviceRecording>& recording = devices[device];
  if (recording == nullptr) {
    TraceMetadata head = metadata;
    head.device = device;
    head.device_name = std::string(device_name);
    head.device_total_bytes = device_total_bytes;
    OFFCUT_ASSIGN_OR_RETURN(
        recording, DeviceRecording::Create(directory, device, MetadataToJson(head), options));
  }
  return recording.get();
}

void RecorderImpl::State::Run() {
  std::unique_lock<std::mutex> lock(mutex);
  std::vector<DeviceRecording*> recordings;
  for (bool last = false; !last;) {
    wake.wait_for(lock, kDrainInterval,
                  [this] { return stopping || flushes_asked != flushes_done; });
    last = stopping;
    const uint64_t asked = flushes_asked;
    const bool everything = last || asked != flushes_done;
    recordings.clear();
    for (const auto& recording : devices) {
      if (recording != nullptr) recordings.push_back(recording.get());
    }

    lock.unlock();
    for (DeviceRecording* recording : recordings) recording->Drain(everything);
    lock.lock();

    flushes_done = asked;
    flushed.notify_all();
  }
}

void RecorderImpl::State::Flush() {
  if (detached) return;
  std::unique_lock<std::mutex> lock(mutex);
  const uint64_t mine = ++flushes_asked;
  wake.notify_one();
  flushed.wait(lock, [this, mine] { return flushes_done >= mine; });
}

void RecorderImpl::State::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_one();
  writer.join();
  for (const auto& recording : devices) {
    if (recording != nullptr) recording->Close();
  }
}

void RecorderImpl::State::DetachInChild() {
  detached = true;
  // The lock may be held by a thread that does not exist here. A device that was being added at the
  // fork may be missed: its sink was not handed out.
  for (const auto& recording : devices) {
    if (recording != nullptr) recording->Detach();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(absl::string_view parent,
                                                          absl::string_view options_json,
                                                          const Clock& clock,
                                                          const RecorderOptions& options) {
  OFFCUT_RETURN_IF_ERROR(CheckOptions(options));
  RecordingProcess process = RecordingProcess::Current();
  const uint64_t start_unix_ns = static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  OFFCUT_ASSIGN_OR_RETURN(std::string directory,
                          CreateRecordingDirectory(parent, process, start_unix_ns));
  TraceMetadata metadata;
  metadata.format_version = kFormatVersion;
  metadata.offcut_version = OFFCUT_VERSION_TEXT;
  metadata.host = std::move(process.host);
  metadata.pid = process.pid;
  metadata.command_line = std::move(process.command_line);
  metadata.epoch_unix_ns = clock.EpochUnixNs();
  metadata.options_json = std::string(options_json);
  return std::make_unique<RecorderImpl>(std::move(directory), std::move(metadata), options);
}

}  // namespace offcut
