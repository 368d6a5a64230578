#include "allocator/trace/chunk.h"

#include <zstd.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/trace/checksum.h"

namespace offcut {
namespace {

constexpr uint64_t kMaxColumnsBytes =
    kColumnLengthsBytes + uint64_t{kMaxChunkEvents} * kMaxEventColumnBytes;

// Each flush ends a block of the frame and adds a few bytes to what zstd calls the bound.
size_t FrameBound(size_t columns_bytes) { return ZSTD_compressBound(columns_bytes) + 64 * 10; }

absl::Span<const uint8_t> AsBytes(const char* data, size_t size) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data), size);
}

}  // namespace

ChunkEncoder::ChunkEncoder(int level) : zstd_(ZSTD_createCCtx()) {
  if (zstd_ != nullptr) ZSTD_CCtx_setParameter(zstd_, ZSTD_c_compressionLevel, level);
}

ChunkEncoder::~ChunkEncoder() { ZSTD_freeCCtx(zstd_); }

absl::Status ChunkEncoder::Encode(absl::Span<const Event> events, const ChunkStart& start,
                                  std::string* chunk) {
  OFFCUT_CHECK(!events.empty() && events.size() <= kMaxChunkEvents, "events per chunk");
  if (zstd_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  columns_.Encode(events);

  std::array<uint32_t, kColumnCount> lengths;
  size_t columns_bytes = kColumnLengthsBytes;
  for (size_t i = 0; i < kColumnCount; ++i) {
    lengths[i] = static_cast<uint32_t>(columns_.column(static_cast<Column>(i)).size());
    columns_bytes += lengths[i];
  }

  ZSTD_CCtx_reset(zstd_, ZSTD_reset_session_only);
  ZSTD_CCtx_setPledgedSrcSize(zstd_, columns_bytes);
  chunk->resize(sizeof(ChunkHeader) + FrameBound(columns_bytes));
  ZSTD_outBuffer out = {chunk->data(), chunk->size(), sizeof(ChunkHeader)};
  // A block of the frame for each column: zstd's tables of frequencies are per block.
  for (size_t i = 0; i <= kColumnCount; ++i) {
    const auto column =
        i == 0 ? AsBytes(reinterpret_cast<const char*>(lengths.data()), kColumnLengthsBytes)
               : columns_.column(static_cast<Column>(i - 1));
    ZSTD_inBuffer in = {column.data(), column.size(), 0};
    const size_t left =
        ZSTD_compressStream2(zstd_, &out, &in, i == kColumnCount ? ZSTD_e_end : ZSTD_e_flush);
    if (left != 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "zstd: ", ZSTD_isError(left) ? ZSTD_getErrorName(left) : "the frame exceeds its bound"));
    }
  }
  chunk->resize(out.pos);

  ChunkHeader header;
  header.event_count = static_cast<uint32_t>(events.size());
  header.columns_bytes = static_cast<uint32_t>(columns_bytes);
  header.payload_bytes = static_cast<uint32_t>(out.pos - sizeof(ChunkHeader));
  header.first_index = start.first_index;
  header.first_time_ns = events.front().time_ns;
  header.last_time_ns = events.back().time_ns;
  header.live_bytes = start.live_bytes;
  header.reserved_bytes = start.reserved_bytes;
  header.checksum = Checksum(BytesBeforeChecksum(header),
                             AsBytes(chunk->data() + sizeof(header), header.payload_bytes));
  std::memcpy(chunk->data(), &header, sizeof(header));
  return absl::OkStatus();
}

absl::Status CheckChunkHeader(const ChunkHeader& header) {
  if (header.magic != kChunkMagic) return absl::DataLossError("no chunk begins here");
  if (header.version != kFormatVersion || header.flags != 0 ||
      header.header_bytes != sizeof(ChunkHeader)) {
    return absl::DataLossError(absl::StrCat("a chunk of version ", header.version, " with flags ",
                                            header.flags, " and a header of ", header.header_bytes,
                                            " bytes; known are version ", kFormatVersion,
                                            ", no flags, ", sizeof(ChunkHeader), " bytes"));
  }
  if (header.event_count == 0 || header.event_count > kMaxChunkEvents) {
    return absl::DataLossError(absl::StrCat("a chunk of ", header.event_count,
                                            " events; right are 1 to ", kMaxChunkEvents));
  }
  if (header.columns_bytes > kMaxColumnsBytes ||
      header.payload_bytes > FrameBound(kMaxColumnsBytes)) {
    return absl::DataLossError(absl::StrCat("a chunk of ", header.payload_bytes, " bytes for ",
                                            header.columns_bytes,
                                            " bytes of columns, more than any chunk has"));
  }
  if (header.first_index > kMaxEventIndex) {
    return absl::DataLossError(absl::StrCat("a chunk from event ", header.first_index, " on"));
  }
  return absl::OkStatus();
}

ChunkDecoder::ChunkDecoder() : zstd_(ZSTD_createDCtx()) {}

ChunkDecoder::~ChunkDecoder() { ZSTD_freeDCtx(zstd_); }

absl::Status ChunkDecoder::Decode(const ChunkHeader& header, absl::Span<const uint8_t> rest,
                                  uint8_t device, std::vector<Event>* events) {
  if (zstd_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  if (Checksum(BytesBeforeChecksum(header), rest) != header.checksum) {
    return absl::DataLossError("the chunk's checksum does not fit its bytes");
  }
  columns_.resize(header.columns_bytes);
  const size_t size =
      ZSTD_decompressDCtx(zstd_, columns_.data(), columns_.size(), rest.data(), rest.size());
  if (ZSTD_isError(size)) {
    return absl::DataLossError(absl::StrCat("zstd: ", ZSTD_getErrorName(size)));
  }
  if (size != columns_.size()) {
    return absl::DataLossError(absl::StrCat("the chunk's frame holds ", size, " bytes, its header ",
                                            "says ", columns_.size()));
  }
  return DecodeColumns(columns_, header.event_count, device, events);
}

}  // namespace offcut
