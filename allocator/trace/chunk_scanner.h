// ChunkScanner: goes through a chunk file, chunk by chunk, and finds its way past damage.
//
// Trusts nothing in the file. A run still going may be scanned: kEnd is the end for now, and the
// next call looks again from there. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_CHUNK_SCANNER_H_
#define OFFCUT_ALLOCATOR_TRACE_CHUNK_SCANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/events/event.h"
#include "allocator/trace/chunk.h"
#include "allocator/trace/file.h"
#include "allocator/trace/format.h"

namespace offcut {

// The index of a closed file.
struct ChunkIndex {
  IndexHeader header;
  std::vector<IndexEntry> entries;
};

// DataLoss, in words, if no whole index begins at `offset` and ends with the file.
absl::StatusOr<ChunkIndex> ReadChunkIndex(const FileDescriptor& file, const std::string& path,
                                          uint64_t offset);

class ChunkScanner {
 public:
  enum class Found { kChunk, kIndex, kEnd };

  // `file` and `path` must outlive the scanner. `offset`: where the first chunk begins.
  ChunkScanner(const FileDescriptor& file, const std::string& path, uint64_t offset, uint8_t device)
      : file_(file), path_(path), device_(device), offset_(offset) {}

  // The next whole chunk, or the index, after whatever has to be passed over. An error only if the
  // system does not let us read.
  absl::StatusOr<Found> Next();

  // Where Next will look.
  uint64_t offset() const { return offset_; }

  // After kChunk.
  const ChunkHeader& header() const { return header_; }
  absl::Span<const Event> events() const { return events_; }
  uint64_t chunk_offset() const { return offset_ - chunk_bytes(); }
  uint64_t chunk_bytes() const { return sizeof(ChunkHeader) + header_.payload_bytes; }

  // After kIndex.
  const ChunkIndex& index() const { return index_; }

  // What the last Next passed over, or what is wrong at the end, with the offset; "" if nothing.
  const std::string& damage() const { return damage_; }

 private:
  // Reads what begins at `offset`: a DataLoss error if that is neither a whole chunk nor the index.
  absl::StatusOr<Found> ReadPiece(uint64_t offset);
  absl::StatusOr<Found> ReadChunk(uint64_t offset, const ChunkHeader& header);
  // The same for the first piece that begins behind `offset`; sets `offset_` to where that is.
  absl::StatusOr<Found> SearchPiece(uint64_t offset);

  const FileDescriptor& file_;
  const std::string& path_;
  const uint8_t device_;
  uint64_t offset_;

  ChunkDecoder decoder_;
  std::vector<uint8_t> payload_;
  ChunkHeader header_;
  std::vector<Event> events_;
  ChunkIndex index_;
  std::string damage_;
  int search_attempts_left_ = 1000;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_CHUNK_SCANNER_H_
