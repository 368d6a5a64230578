// The event: one fact about the allocator's state, in one fixed record of 32 bytes.
//
// Owns no state. The same bytes pass from the core to every observer and into the shared ring;
// their meaning per kind stands in events.def, and nowhere else.

#ifndef OFFCUT_ALLOCATOR_EVENTS_EVENT_H_
#define OFFCUT_ALLOCATOR_EVENTS_EVENT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"

namespace offcut {

enum class EventKind : uint8_t {
#define OFFCUT_EVENT(name, kind, address, bytes, extra, sentence) k##name = kind,
#include "allocator/events/events.def"
#undef OFFCUT_EVENT
};

// The steps of the reclaim ladder and the reasons of failure, as ReclaimStepTaken and RequestFailed
// carry them.
enum class ReclaimStep : uint32_t {
#define OFFCUT_RECLAIM_STEP(name, number, sentence) k##name = number,
#include "allocator/events/reclaim_steps.def"
#undef OFFCUT_RECLAIM_STEP
};
enum class FailureReason : uint32_t {
#define OFFCUT_FAILURE_REASON(name, number, sentence) k##name = number,
#include "allocator/events/failure_reasons.def"
#undef OFFCUT_FAILURE_REASON
};

// The sentence of a step or reason, or "" for a number that this version does not know.
absl::string_view Describe(ReclaimStep step);
absl::string_view Describe(FailureReason reason);

// The pool of an event that concerns none.
inline constexpr uint16_t kNoPool = 0xFFFF;

// Set in a granule's id (Granule* events, `extra`) if it was made for an arena of small requests.
inline constexpr uint32_t kSmallGranuleBit = 1u << 31;

struct Event {
  uint64_t time_ns =
      0;  // since the process's clock began (base/clock.h); not decreasing per device
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t extra = 0;
  uint16_t pool = kNoPool;  // index of the pool on its device
  EventKind kind{};
  uint8_t device = 0;

  // The last four fields as one word, and the event of such words: what is passed on in registers
  // costs less than what is built in memory field by field and copied from there at once.
  uint64_t last_word() const {
    return uint64_t{extra} | uint64_t{pool} << 32 | uint64_t{static_cast<uint8_t>(kind)} << 48 |
           uint64_t{device} << 56;
  }
  static Event OfWords(uint64_t time_ns, uint64_t address, uint64_t bytes, uint64_t last_word) {
    return {.time_ns = time_ns,
            .address = address,
            .bytes = bytes,
            .extra = static_cast<uint32_t>(last_word),
            .pool = static_cast<uint16_t>(last_word >> 32),
            .kind = static_cast<EventKind>(last_word >> 48 & 0xFF),
            .device = static_cast<uint8_t>(last_word >> 56)};
  }

  Bytes block_bytes() const { return static_cast<Bytes>(extra) * kBlockAlignment; }
  bool operator==(const Event&) const = default;
};
static_assert(std::endian::native == std::endian::little, "Event::last_word is the record's");
static_assert(sizeof(Event) == 32 && std::is_trivially_copyable_v<Event>,
              "the ring and its readers hold events as 32 raw bytes");

// What events.def says of one kind, for readers, JSON and documentation.
struct EventDescription {
  EventKind kind;
  absl::string_view name;
  absl::string_view address;  // "" where the field is unused
  absl::string_view bytes;
  absl::string_view extra;
  absl::string_view sentence;
};

// All kinds, in the order of events.def.
absl::Span<const EventDescription> EventDescriptions();

// The description of `kind`, or nullptr if this version knows none: a trace from elsewhere may hold
// any byte.
const EventDescription* DescribeEvent(EventKind kind);

// "BlockAllocated time_ns=12 device=0 pool=1 address=0x7f00 bytes=100 extra=1", for test failures
// and for people.
std::string ToString(const Event& event);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_EVENT_H_
