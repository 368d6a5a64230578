// Columns: events as eight lists of small numbers, which is what a chunk compresses.
//
// The one definition of how an event is coded: CodeEvent in columns.cc is a single function that
// both directions run through, so writer and reader cannot drift apart. FORMAT.md says the same in
// prose. Each call stands alone: no state passes from one chunk to the next, so any chunk can be
// read without those before it. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_COLUMNS_H_
#define OFFCUT_ALLOCATOR_TRACE_COLUMNS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "allocator/events/event.h"

namespace offcut {

enum Column : uint8_t {
  kKindColumn,
  kTimeLowColumn,
  kTimeColumn,
  kReferenceColumn,
  kPoolColumn,
  kAddressColumn,
  kBytesColumn,
  kExtraColumn,
  kColumnCount,
};

// The most bytes that one event takes in all columns together, before compression.
inline constexpr size_t kMaxEventColumnBytes = 48;
// And those that say how long each column is.
inline constexpr size_t kColumnLengthsBytes = kColumnCount * sizeof(uint32_t);

class ColumnEncoder {
 public:
  // Replaces what columns() returns. `events` may hold anything, except that Event::device is left
  // out: it is the same in the whole file.
  void Encode(absl::Span<const Event> events);

  // Their bytes, valid until the next Encode.
  absl::Span<const uint8_t> column(Column column) const { return columns_[column]; }

 private:
  std::array<std::vector<uint8_t>, kColumnCount> buffers_;
  std::array<absl::Span<const uint8_t>, kColumnCount> columns_;
  absl::flat_hash_map<DevicePtr, uint32_t> newest_at_;
};

// The reverse. `bytes`: kColumnCount lengths (32 bits each), then the columns. Replaces `events`
// with `count` events of `device`; DataLoss, in words, if `bytes` is not exactly that many events.
absl::Status DecodeColumns(absl::Span<const uint8_t> bytes, size_t count, uint8_t device,
                           std::vector<Event>* events);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_COLUMNS_H_
