// Ring: the shared ring of one device, through which events leave the program's threads.
//
// Owns the mapping of a file whose blocks are allocated before use: storing into a page of a sparse
// file on a full disk would kill the process (SIGBUS). What Push has stored lies in the page cache,
// so it survives the death of the process at any instruction; only the loss of the machine's power
// or kernel loses it. One producer (Push), one consumer (the writer thread): each side may be a
// different thread over time, if their calls are ordered by a lock. Push makes no system call,
// allocates nothing and never waits: when the ring is full it drops the event and counts it, and
// says so in an EventsDropped event before the next one that fits. (A first store into a page that
// the kernel is writing back faults, about 1 us per 128 events; no file-backed memory is free of
// that.)

#ifndef OFFCUT_ALLOCATOR_TRACE_RING_H_
#define OFFCUT_ALLOCATOR_TRACE_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/optimization.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/events/event.h"
#include "allocator/trace/format.h"

namespace offcut {

class Ring {
 public:
  // Creates the file at `path`. `file_header`: the first bytes of the chunk file that the ring
  // belongs to. Requires a power of two of at most kMaxRingEvents. On an error no file is left
  // behind.
  static absl::StatusOr<std::unique_ptr<Ring>> Create(const std::string& path,
                                                      absl::string_view file_header,
                                                      uint64_t capacity_events);
  // The file stays; see Remove.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // ---- Producer

  void Push(const Event& event) {
    // Equal when the ring was full at the last look, when drops await their record, and when
    // detached.
    if (ABSL_PREDICT_FALSE(head_ == limit_)) {
      PushSlow(event);
    } else {
      Store(event);
    }
  }

  // The same for an event in registers, see Event::last_word.
  void PushWords(uint64_t time_ns, uint64_t address, uint64_t bytes, uint64_t last_word) {
    if (ABSL_PREDICT_FALSE(head_ == limit_)) {
      PushSlow(Event::OfWords(time_ns, address, bytes, last_word));
      return;
    }
    uint64_t* const words = reinterpret_cast<uint64_t*>(slots_ + (head_ & mask_));
    words[0] = time_ns;
    words[1] = address;
    words[2] = bytes;
    words[3] = last_word;
    Word(header_->head).store(++head_, std::memory_order_release);
  }

  // Both do nothing from now on. For a forked child, where the mapping is the parent's.
  void Detach() {
    limit_ = head_;
    detached_ = true;
  }

  // Records the drops that no event has told of yet. False if there is no room for that.
  bool PushDropRecord();

  // ---- Consumer

  uint64_t capacity_events() const { return mask_ + 1; }
  uint64_t head() const { return Word(header_->head).load(std::memory_order_acquire); }
  uint64_t tail() const { return Word(header_->tail).load(std::memory_order_relaxed); }
  uint64_t dropped_events() const {
    return Word(header_->dropped_events).load(std::memory_order_relaxed);
  }

  // Copies the events from index `first` on; they must lie in [tail, head).
  void Copy(uint64_t first, absl::Span<Event> events) const;

  // The events below `tail` stand elsewhere: their slots may be overwritten.
  void Advance(uint64_t tail) { Word(header_->tail).store(tail, std::memory_order_release); }

  // Removes the file; the mapping stays usable.
  void Remove();

 private:
  Ring(std::string path, void* mapping, Bytes mapping_bytes, Bytes slots_offset,
       uint64_t capacity_events);

  static std::atomic_ref<uint64_t> Word(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

  void Store(const Event& event) {
    slots_[head_ & mask_] = event;
    Word(header_->head).store(++head_, std::memory_order_release);
  }
  void StoreDropRecord();
  void PushSlow(const Event& event);

  // Read by both sides, never written after creation.
  RingHeader* const header_;
  Event* const slots_;
  const uint64_t mask_;
  const std::string path_;
  const Bytes mapping_bytes_;

  // The producer's.
  alignas(ABSL_CACHELINE_SIZE) uint64_t head_ = 0;
  uint64_t limit_;  // first index for which there was no room at the last look at the tail
  bool detached_ = false;
  uint64_t untold_drops_ = 0;
  Event last_drop_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_RING_H_
