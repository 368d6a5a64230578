#include "allocator/trace/device_recording.h"

#include <stdio.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/metadata.h"
#include "allocator/trace/recording_directory.h"

namespace offcut {
namespace {

// Between attempts while the disk is full: each writes up to a chunk and takes it back.
constexpr std::chrono::seconds kRetryInterval{1};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRecording>> DeviceRecording::Create(
    const std::string& directory, DeviceIndex device, absl::string_view metadata_json,
    const RecorderOptions& options) {
  if (metadata_json.size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the recording's metadata takes ",
                                                   metadata_json.size(), " bytes; at most ",
                                                   kMaxMetadataBytes, " are allowed"));
  }
  const std::string stem = absl::StrCat(directory, "/device", device);
  const std::string file_header = FileHeaderBytes(metadata_json);
  // The ring first: a reader takes a chunk file that is neither closed nor has a ring for damaged.
  OFFCUT_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring,
                          Ring::Create(stem + kRingFileSuffix, file_header, options.ring_events));
  absl::StatusOr<std::unique_ptr<ChunkFile>> file =
      ChunkFile::Create(stem + kChunkFileSuffix, file_header);
  if (!file.ok()) {
    ring->Remove();
    return file.status();
  }
  return std::unique_ptr<DeviceRecording>(
      new DeviceRecording(std::move(ring), *std::move(file), options));
}

DeviceRecording::DeviceRecording(std::unique_ptr<Ring> ring, std::unique_ptr<ChunkFile> file,
                                 const RecorderOptions& options)
    : ring_(std::move(ring)),
      file_(std::move(file)),
      chunk_events_(options.chunk_events),
      worthwhile_events_(std::min<uint64_t>(options.chunk_events, options.ring_events / 4)),
      encoder_(options.compression_level) {}

absl::Status DeviceRecording::WriteChunk() {
  if (chunk_.empty()) {
    OFFCUT_RETURN_IF_ERROR(encoder_.Encode(
        events_,
        {.first_index = ring_->tail(),
         .live_bytes = counters_.live_bytes[static_cast<int>(SizeClassOf::kAll)].current,
         .reserved_bytes = counters_.reserved_bytes[static_cast<int>(SizeClassOf::kAll)].current},
        &chunk_));
  }
  OFFCUT_RETURN_IF_ERROR(file_->Append(chunk_));
  for (const Event& event : events_) counters_.Apply(event);
  // Only now: a reader that finds the tail moved finds the chunk too.
  ring_->Advance(ring_->tail() + events_.size());
  events_.clear();
  chunk_.clear();
  return absl::OkStatus();
}

void DeviceRecording::Drain(bool everything) {
  if (!everything && std::chrono::steady_clock::now() < next_attempt_) return;
  const uint64_t head = ring_->head();
  while (ring_->tail() < head) {
    const uint64_t pending = head - ring_->tail();
    if (events_.empty()) {
      if (!everything && pending < worthwhile_events_) return;
      events_.resize(std::min(pending, chunk_events_));
      ring_->Copy(ring_->tail(), absl::MakeSpan(events_));
    }
    const absl::Status written = WriteChunk();
    if (!written.ok()) return NoteFailure(written);
  }
}

void DeviceRecording::NoteFailure(const absl::Status& status) {
  next_attempt_ = std::chrono::steady_clock::now() + kRetryInterval;
  if (std::exchange(failure_reported_, true)) return;
  fprintf(stderr,
          "offcut: recording to %s: %s; the program goes on, and events are dropped (and counted) "
          "until there is room\n",
          file_->path().c_str(), std::string(status.message()).c_str());
}

void DeviceRecording::Close() {
  Drain(/*everything=*/true);
  const bool told = ring_->PushDropRecord();
  Drain(/*everything=*/true);
  if (!told || ring_->tail() != ring_->head()) return;
  const absl::Status closed = file_->Close(ring_->head(), ring_->dropped_events());
  if (!closed.ok()) return NoteFailure(closed);
  ring_->Remove();
}

}  // namespace offcut
