// The bytes on disk that writer and reader share: magic numbers, headers and limits of format
// version 1. FORMAT.md explains them. FROZEN: a change of meaning is a new kFormatVersion.
//
// All integers are little-endian; every struct here is stored as it lies in memory, and has no
// padding that is not a field.

#ifndef OFFCUT_ALLOCATOR_TRACE_FORMAT_H_
#define OFFCUT_ALLOCATOR_TRACE_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allocator/base/units.h"
#include "allocator/events/event.h"

namespace offcut {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr uint32_t kFormatVersion = 1;

// As numbers, so that they compare in one step. The first byte is no text, the last is a line feed:
// a transfer in text mode shows.
inline constexpr uint64_t kFileMagic = 0x0A545543'46464F89;   // 89 "OFFCUT" 0A
inline constexpr uint64_t kRingMagic = 0x0A474E49'52464F89;   // 89 "OFRING" 0A
inline constexpr uint64_t kChunkMagic = 0x0A4B4E48'43464F89;  // 89 "OFCHNK" 0A
inline constexpr uint64_t kIndexMagic = 0x0A584449'46464F89;  // 89 "OFFIDX" 0A
inline constexpr uint64_t kEndMagic = 0x0A444E45'46464F89;    // 89 "OFFEND" 0A

inline constexpr uint32_t kMaxMetadataBytes = 1 << 20;
inline constexpr uint32_t kMaxChunkEvents = 1 << 16;
inline constexpr uint64_t kMaxRingEvents = uint64_t{1} << 26;
// No recording has more: it keeps the sum of a first index and a count from overflowing.
inline constexpr uint64_t kMaxEventIndex = uint64_t{1} << 62;

// At offset 0 of a chunk file; the metadata, JSON in UTF-8, follows.
struct FileHeader {
  uint64_t magic = kFileMagic;
  uint32_t format_version = kFormatVersion;
  uint32_t metadata_bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of the 16 bytes before and of the metadata
};
static_assert(sizeof(FileHeader) == 24 && std::has_unique_object_representations_v<FileHeader>);

// Then chunks, one after the other: this, and a zstd frame of `payload_bytes`.
struct ChunkHeader {
  uint64_t magic = kChunkMagic;
  uint16_t version = kFormatVersion;
  uint16_t header_bytes = 80;  // the frame begins here, counted from the chunk's start
  uint32_t flags = 0;  // none is known; a reader passes over a chunk with one it does not know
  uint32_t event_count = 0;    // 1 .. kMaxChunkEvents
  uint32_t columns_bytes = 0;  // of the frame, decompressed
  uint32_t payload_bytes = 0;  // of the frame
  uint32_t reserved = 0;
  uint64_t first_index = 0;  // of the chunk's first event, counted from the recording's start
  uint64_t first_time_ns = 0;
  uint64_t last_time_ns = 0;
  int64_t live_bytes = 0;      // before the chunk's first event
  int64_t reserved_bytes = 0;  // likewise
  uint64_t checksum = 0;       // XXH3-64 of the 72 bytes before and of the frame
};
static_assert(sizeof(ChunkHeader) == 80 && std::has_unique_object_representations_v<ChunkHeader>);

// After the last chunk, if the recorder closed the file: this, `entry_count` entries, and IndexEnd.
struct IndexHeader {
  uint64_t magic = kIndexMagic;
  uint32_t entry_bytes = 56;
  uint32_t reserved = 0;
  uint64_t entry_count = 0;
  uint64_t event_count = 0;     // of the whole recording
  uint64_t dropped_events = 0;  // likewise
};
static_assert(sizeof(IndexHeader) == 40 && std::has_unique_object_representations_v<IndexHeader>);

struct IndexEntry {
  uint64_t offset = 0;  // of the chunk's header in the file; the rest as it says there
  uint64_t first_index = 0;
  uint64_t event_count = 0;
  uint64_t first_time_ns = 0;
  uint64_t last_time_ns = 0;
  int64_t live_bytes = 0;
  int64_t reserved_bytes = 0;
};
static_assert(sizeof(IndexEntry) == 56 && std::has_unique_object_representations_v<IndexEntry>);

// The last bytes of a closed file.
struct IndexEnd {
  uint64_t index_offset = 0;  // of IndexHeader
  uint64_t checksum = 0;      // XXH3-64 of the index's header and entries, and of index_offset
  uint64_t magic = kEndMagic;
};
static_assert(sizeof(IndexEnd) == 24 && std::has_unique_object_representations_v<IndexEnd>);

// At offset 0 of a ring file; at kRingFileHeaderOffset a copy of the chunk file's header and
// metadata; at slots_offset `capacity_events` slots. Event i lies in slot i modulo the capacity.
// Each word that changes has a cache line of its own, and is accessed atomically.
struct RingHeader {
  uint64_t magic = kRingMagic;
  uint32_t format_version = kFormatVersion;
  uint32_t event_bytes = sizeof(Event);
  uint64_t capacity_events = 0;  // a power of two
  uint64_t slots_offset = 0;     // a multiple of 4096
  uint64_t file_header_bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of the 40 bytes before
  uint64_t padding_0[2] = {};
  uint64_t head = 0;  // index of the next event to come: those below it are complete
  uint64_t padding_1[7] = {};
  uint64_t tail = 0;  // index of the oldest event that is not in a chunk
  uint64_t padding_2[7] = {};
  uint64_t dropped_events = 0;
  uint64_t padding_3[7] = {};
};
static_assert(sizeof(RingHeader) == 256 && std::has_unique_object_representations_v<RingHeader>);
static_assert(offsetof(RingHeader, head) == 64 && offsetof(RingHeader, tail) == 128 &&
              offsetof(RingHeader, dropped_events) == 192);

inline constexpr size_t kRingFileHeaderOffset = sizeof(RingHeader);
inline constexpr Bytes kRingPageBytes = 4096;

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_FORMAT_H_
