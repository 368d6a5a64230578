// DeviceRecording: the recording of one device, its ring and its chunk file.
//
// It is the sink that the device's emitter calls, and what the writer thread drains. OnEvent may be
// called by one thread at a time, beside one call of Drain. Close requires that OnEvent is over.

#ifndef OFFCUT_ALLOCATOR_TRACE_DEVICE_RECORDING_H_
#define OFFCUT_ALLOCATOR_TRACE_DEVICE_RECORDING_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/base/units.h"
#include "allocator/events/counters.h"
#include "allocator/events/emitter.h"
#include "allocator/trace/chunk.h"
#include "allocator/trace/chunk_file.h"
#include "allocator/trace/recorder.h"
#include "allocator/trace/ring.h"

namespace offcut {

class DeviceRecording final : public EventSink {
 public:
  // Creates DIRECTORY/device<N>.ring and .offcut, or neither. `metadata_json`: see MetadataToJson.
  static absl::StatusOr<std::unique_ptr<DeviceRecording>> Create(const std::string& directory,
                                                                 DeviceIndex device,
                                                                 absl::string_view metadata_json,
                                                                 const RecorderOptions& options);

  void OnEvent(const Event& event) override { ring_->Push(event); }
  void OnHotEvent(uint64_t time_ns, uint64_t address, uint64_t bytes, uint64_t last_word) override {
    ring_->PushWords(time_ns, address, bytes, last_word);
  }

  // Turns what is in the ring into chunks: all that was there at the call if `everything`, else
  // only when there is enough for a good chunk. What cannot be written stays in the ring.
  void Drain(bool everything);

  // Drains everything, adds the index and removes the ring. If something could not be written, the
  // ring stays beside the file, and holds it.
  void Close();

  // For a forked child.
  void Detach() { ring_->Detach(); }

 private:
  DeviceRecording(std::unique_ptr<Ring> ring, std::unique_ptr<ChunkFile> file,
                  const RecorderOptions& options);

  absl::Status WriteChunk();
  void NoteFailure(const absl::Status& status);

  const std::unique_ptr<Ring> ring_;
  const std::unique_ptr<ChunkFile> file_;
  const uint64_t chunk_events_;
  const uint64_t worthwhile_events_;  // as many make a chunk without being asked for

  ChunkEncoder encoder_;
  Counters counters_;  // of the events in chunks
  // The chunk to be written next; kept while the disk is full, so that it is encoded once.
  std::vector<Event> events_;
  std::string chunk_;

  bool failure_reported_ = false;
  std::chrono::steady_clock::time_point next_attempt_{};
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_DEVICE_RECORDING_H_
