// One chunk: some events as a header and a zstd frame of columns, and back again.
//
// Knows no files. The encoder and the decoder keep their working memory from one chunk to the next;
// neither is thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_CHUNK_H_
#define OFFCUT_ALLOCATOR_TRACE_CHUNK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "allocator/events/event.h"
#include "allocator/trace/columns.h"
#include "allocator/trace/format.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace offcut {

// What the events themselves do not say about a chunk.
struct ChunkStart {
  uint64_t first_index = 0;
  int64_t live_bytes = 0;
  int64_t reserved_bytes = 0;
};

class ChunkEncoder {
 public:
  // `level`: zstd's, 1 to 19.
  explicit ChunkEncoder(int level);
  ~ChunkEncoder();
  ChunkEncoder(const ChunkEncoder&) = delete;
  ChunkEncoder& operator=(const ChunkEncoder&) = delete;

  // Replaces `chunk` with the header and the frame. Requires 1 to kMaxChunkEvents events. An error
  // only if memory is out.
  absl::Status Encode(absl::Span<const Event> events, const ChunkStart& start, std::string* chunk);

 private:
  ZSTD_CCtx_s* const zstd_;
  ColumnEncoder columns_;
};

// What is wrong with `header`, or OkStatus. Bounds all its sizes; does not look at the checksum.
absl::Status CheckChunkHeader(const ChunkHeader& header);

class ChunkDecoder {
 public:
  ChunkDecoder();
  ~ChunkDecoder();
  ChunkDecoder(const ChunkDecoder&) = delete;
  ChunkDecoder& operator=(const ChunkDecoder&) = delete;

  // Replaces `events`. `rest`: what follows the 80 bytes of `header` up to the chunk's end.
  // Requires that CheckChunkHeader said yes; trusts nothing else.
  absl::Status Decode(const ChunkHeader& header, absl::Span<const uint8_t> rest, uint8_t device,
                      std::vector<Event>* events);

 private:
  ZSTD_DCtx_s* const zstd_;
  std::vector<uint8_t> columns_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_CHUNK_H_
