// EventScript: writes the events of a small run as an allocator would, one call per thing that
// happens, 10 ns apart.

#ifndef OFFCUT_TESTS_CLI_EVENT_SCRIPT_H_
#define OFFCUT_TESTS_CLI_EVENT_SCRIPT_H_

#include <map>
#include <utility>
#include <vector>

#include "allocator/events/event.h"

namespace offcut {

inline constexpr DevicePtr kBase = DevicePtr{0x7f0000000000};
inline constexpr Bytes kGranule = 2 * kMiB;

class EventScript {
 public:
  // A stream with a default pool, pool 0, and address space of 1 GiB at kBase.
  EventScript() {
    Add({.address = 7, .bytes = 0, .extra = 0, .kind = EventKind::kStreamSeen});
    Add({.pool = 0, .kind = EventKind::kPoolCreated});
    Add({.address = kBase, .bytes = kGiB, .pool = 0, .kind = EventKind::kAddressRangeReserved});
  }

  // Any event; time is filled in.
  EventScript& Add(Event event) {
    event.time_ns = 10 * (events_.size() + 1);
    events_.push_back(event);
    return *this;
  }

  // Creates and maps granule `id` at kBase + id granules.
  EventScript& Grow(uint32_t id) {
    reserved_ += kGranule;
    Add({.bytes = kGranule, .extra = id, .pool = 0, .kind = EventKind::kGranuleCreated});
    Add({.address = kBase + id * kGranule,
         .bytes = kGranule,
         .extra = id,
         .pool = 0,
         .kind = EventKind::kGranuleMapped});
    return Sample();
  }

  EventScript& Shrink(uint32_t id) {
    reserved_ -= kGranule;
    Add({.address = kBase + id * kGranule,
         .bytes = kGranule,
         .extra = id,
         .pool = 0,
         .kind = EventKind::kGranuleUnmapped});
    Add({.bytes = kGranule, .extra = id, .pool = 0, .kind = EventKind::kGranuleReleased});
    return Sample();
  }

  // Blocks are named by their offset from kBase.
  EventScript& Allocate(Bytes offset, Bytes requested) {
    requested_[offset] = requested;
    return AddBlock(EventKind::kBlockAllocated, offset);
  }
  EventScript& Free(Bytes offset) { return AddBlock(EventKind::kBlockFreed, offset); }
  EventScript& Pend(Bytes offset) { return AddBlock(EventKind::kBlockFreePended, offset); }
  EventScript& FinishPending(Bytes offset) {
    return AddBlock(EventKind::kPendingFreeFinished, offset);
  }
  EventScript& Step(uint64_t number) {
    return Add({.bytes = number, .kind = EventKind::kStepMarked});
  }

  const std::vector<Event>& events() const { return events_; }

 private:
  static constexpr Bytes kOutside = 500 * kMiB;

  EventScript& AddBlock(EventKind kind, Bytes offset) {
    const Bytes requested = requested_[offset];
    return Add(
        {.address = kBase + offset,
         .bytes = requested,
         .extra = static_cast<uint32_t>(RoundUp(requested, kBlockAlignment) / kBlockAlignment),
         .pool = 0,
         .kind = kind});
  }
  EventScript& Sample() {
    return Add({.address = 80 * kGiB,
                .bytes = reserved_ + kOutside,
                .kind = EventKind::kDeviceUsedSampled});
  }

  std::vector<Event> events_;
  std::map<Bytes, Bytes> requested_;
  Bytes reserved_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_CLI_EVENT_SCRIPT_H_
