// Recorder: writes the events of this process to disk, whatever happens to the process.
//
// Owns the recording's directory, one shared ring and one chunk file per device, and the writer
// thread that turns the rings into chunks. Promises: OnEvent of its sinks makes no system call,
// allocates nothing and never blocks; every event whose OnEvent returned is readable after the
// death of the process at any instruction; when the disk is full or slow the program runs on,
// events are dropped and counted. Does not know the allocator. Thread-safe, except that one sink is
// called by one thread at a time (under its device's lock).

#ifndef OFFCUT_ALLOCATOR_TRACE_RECORDER_H_
#define OFFCUT_ALLOCATOR_TRACE_RECORDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "allocator/events/emitter.h"

namespace offcut {

struct RecorderOptions {
  // Ring capacity per device, in events of 32 bytes; a power of two. 2^18 events are 8 MiB, some
  // seconds of the busiest allocation rates seen.
  uint32_t ring_events = 1u << 18;
  // Events per chunk at most.
  uint32_t chunk_events = 1u << 16;
  // zstd's level, 1 to 19.
  int compression_level = 3;
};

class Recorder {
 public:
  // Creates `parent`/<UTC start>-<host>-<pid>/ (mode 0700; files 0600) and starts the writer
  // thread. `options_json`: the allocator's options with their origins, kept in every file's
  // header.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(absl::string_view parent,
                                                         absl::string_view options_json,
                                                         const Clock& clock,
                                                         const RecorderOptions& options = {});

  // Closes the files with an index. Sinks must not be called any more.
  virtual ~Recorder() = default;

  // The sink for one device, created at the first call; it lives as long as the recorder. An error
  // (disk full: the ring's blocks are allocated before use) leaves the rest of the recording alone.
  virtual absl::StatusOr<EventSink*> SinkFor(DeviceIndex device, absl::string_view device_name,
                                             Bytes device_total_bytes) = 0;

  virtual const std::string& directory() const = 0;

  // Returns once all events that were emitted before the call stand in chunks, or were dropped.
  virtual void Flush() = 0;

  // In a forked child: sinks ignore events from now on, no thread is joined, no file is touched.
  // Safe in a pthread_atfork child handler.
  virtual void DetachInChild() = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_RECORDER_H_
