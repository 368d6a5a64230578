#include "allocator/trace/chunk_scanner.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/checksum.h"

namespace offcut {
namespace {

template <typename T>
absl::Span<uint8_t> BytesOf(T& value) {
  return absl::MakeSpan(reinterpret_cast<uint8_t*>(&value), sizeof(value));
}

// Damage is passed over; anything else that goes wrong ends the reading.
bool IsDamage(const absl::Status& status) { return absl::IsDataLoss(status); }

}  // namespace

absl::StatusOr<ChunkIndex> ReadChunkIndex(const FileDescriptor& file, const std::string& path,
                                          uint64_t offset) {
  OFFCUT_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(file, path));
  ChunkIndex index;
  IndexEnd end;
  if (offset > file_bytes || file_bytes - offset < sizeof(index.header) + sizeof(end)) {
    return absl::DataLossError("the index is cut short");
  }
  OFFCUT_ASSIGN_OR_RETURN(size_t got, ReadAt(file, path, offset, BytesOf(index.header)));
  const uint64_t entries_bytes = file_bytes - offset - sizeof(index.header) - sizeof(end);
  if (got != sizeof(index.header) || index.header.magic != kIndexMagic ||
      index.header.entry_bytes != sizeof(IndexEntry) ||
      index.header.entry_count != entries_bytes / sizeof(IndexEntry) ||
      entries_bytes % sizeof(IndexEntry) != 0) {
    return absl::DataLossError("the index does not fit the file's size");
  }
  // Bounded by the size of the file, which is there.
  std::vector<uint8_t> bytes(sizeof(index.header) + entries_bytes);
  OFFCUT_ASSIGN_OR_RETURN(got, ReadAt(file, path, offset, absl::MakeSpan(bytes)));
  OFFCUT_ASSIGN_OR_RETURN(const size_t end_got,
                          ReadAt(file, path, offset + bytes.size(), BytesOf(end)));
  if (got != bytes.size() || end_got != sizeof(end) || end.magic != kEndMagic ||
      end.index_offset != offset || end.checksum != Checksum(bytes, BytesBeforeChecksum(end))) {
    return absl::DataLossError("the index's checksum does not fit its bytes");
  }
  index.entries.resize(index.header.entry_count);
  if (entries_bytes != 0) {
    std::memcpy(index.entries.data(), bytes.data() + sizeof(index.header), entries_bytes);
  }
  return index;
}

absl::StatusOr<ChunkScanner::Found> ChunkScanner::ReadChunk(uint64_t offset,
                                                            const ChunkHeader& header) {
  OFFCUT_RETURN_IF_ERROR(CheckChunkHeader(header));
  payload_.resize(header.payload_bytes);
  OFFCUT_ASSIGN_OR_RETURN(const size_t got,
                          ReadAt(file_, path_, offset + sizeof(header), absl::MakeSpan(payload_)));
  if (got != payload_.size()) return absl::DataLossError("the chunk is cut short");
  OFFCUT_RETURN_IF_ERROR(decoder_.Decode(header, payload_, device_, &events_));
  header_ = header;
  return Found::kChunk;
}

absl::StatusOr<ChunkScanner::Found> ChunkScanner::ReadPiece(uint64_t offset) {
  ChunkHeader header;
  OFFCUT_ASSIGN_OR_RETURN(const size_t got, ReadAt(file_, path_, offset, BytesOf(header)));
  if (got == 0) return Found::kEnd;
  if (got >= sizeof(header.magic) && header.magic == kIndexMagic) {
    OFFCUT_ASSIGN_OR_RETURN(index_, ReadChunkIndex(file_, path_, offset));
    return Found::kIndex;
  }
  if (got != sizeof(header)) return absl::DataLossError("the chunk is cut short");
  return ReadChunk(offset, header);
}

absl::StatusOr<ChunkScanner::Found> ChunkScanner::SearchPiece(uint64_t offset) {
  constexpr size_t kWindowBytes = 1 << 20;
  constexpr size_t kMagicBytes = sizeof(uint64_t);
  std::vector<uint8_t> window(kWindowBytes);
  for (uint64_t start = offset + 1;; start += kWindowBytes - kMagicBytes + 1) {
    OFFCUT_ASSIGN_OR_RETURN(const size_t got, ReadAt(file_, path_, start, absl::MakeSpan(window)));
    for (size_t i = 0; i + kMagicBytes <= got; ++i) {
      uint64_t magic;
      std::memcpy(&magic, window.data() + i, sizeof(magic));
      if (magic != kChunkMagic && magic != kIndexMagic) continue;
      // A file made to look like many damaged chunks shall not keep us for hours.
      if (--search_attempts_left_ < 0) return Found::kEnd;
      absl::StatusOr<Found> found = ReadPiece(start + i);
      if (!found.ok() && IsDamage(found.status())) continue;
      offset_ = start + i;
      return found;
    }
    if (got < kWindowBytes) return Found::kEnd;
  }
}

absl::StatusOr<ChunkScanner::Found> ChunkScanner::Next() {
  damage_.clear();
  absl::StatusOr<Found> found = ReadPiece(offset_);
  if (!found.ok() && IsDamage(found.status())) {
    damage_ = absl::StrCat("at offset ", offset_, ": ", found.status().message());
    found = SearchPiece(offset_);
  }
  if (found.ok() && *found == Found::kChunk) offset_ += chunk_bytes();
  return found;
}

}  // namespace offcut
