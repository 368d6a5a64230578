#include "visualizer/cli/report_chunks.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

void AppendColumn(const std::vector<uint64_t>& values, std::string& out) {
  uint64_t all_bits = 0;
  for (uint64_t value : values) all_bits |= value;
  const int width = (std::bit_width(all_bits) + 7) / 8;
  out.push_back(static_cast<char>(width));
  for (int plane = 0; plane < width; ++plane) {
    for (uint64_t value : values) out.push_back(static_cast<char>(value >> (8 * plane)));
  }
}

absl::StatusOr<std::string> DeflateRaw(const std::string& plain) {
  z_stream stream{};
  // Negative window bits: no zlib header, which is what DecompressionStream('deflate-raw') reads.
  if (deflateInit2(&stream, 6, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("deflateInit2 failed: out of memory");
  }
  std::string out(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) {
    return absl::InternalError(absl::StrCat("deflate of ", plain.size(), " bytes: ", result));
  }
  return out;
}

}  // namespace

bool ReportChunks::HasRow(EventKind kind) {
  switch (kind) {
    case EventKind::kBlockAllocated:
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended:
    case EventKind::kPendingFreeFinished:
    case EventKind::kGranuleCreated:
    case EventKind::kGranuleReleased:
    case EventKind::kDriverPoolGrown:
    case EventKind::kDriverPoolShrunk:
    case EventKind::kDeviceUsedSampled:
      return true;
    default:
      return false;
  }
}

EventKind ReportChunks::KindOfRow(EventKind kind) {
  switch (kind) {
    case EventKind::kDriverPoolGrown:
      return EventKind::kGranuleCreated;
    case EventKind::kDriverPoolShrunk:
      return EventKind::kGranuleReleased;
    default:
      return kind;
  }
}

absl::Status ReportChunks::Add(const Event& event, const ReportLevels& before) {
  if (open_.rows == 0) {
    open_.before = before;
    open_.first_allocation = allocations_;
    open_.begin_ns = last_ns_ = std::max(event.time_ns, last_ns_);
    last_unit_ = 0;
  }
  kinds_.push_back(static_cast<uint64_t>(KindOfRow(event.kind)));
  // Times that run backwards, which a corrupt file may hold, are drawn as standing still.
  const uint64_t time_ns = std::max(event.time_ns, last_ns_);
  times_.push_back(time_ns - last_ns_);
  last_ns_ = open_.end_ns = time_ns;
  switch (event.kind) {
    case EventKind::kBlockAllocated:
      addresses_.push_back(
          ZigZag(static_cast<int64_t>(event.address / kBlockAlignment - last_unit_)));
      last_unit_ = event.address / kBlockAlignment;
      requested_.push_back(event.bytes);
      blocks_.push_back(event.extra);
      pools_.push_back(event.pool);
      numbers_[event.address] = allocations_++;
      ++open_.allocations;
      break;
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended:
    case EventKind::kPendingFreeFinished: {
      const auto number = numbers_.find(event.address);
      // 0, "no allocation of this recording", cannot come from events that agree with the state.
      frees_.push_back(number == numbers_.end() ? 0 : allocations_ - number->second);
      if (number != numbers_.end() && event.kind != EventKind::kBlockFreePended) {
        numbers_.erase(number);
      }
      break;
    }
    default:
      values_.push_back(event.bytes);
  }
  return ++open_.rows == kMaxRows ? FinishChunk() : absl::OkStatus();
}

absl::Status ReportChunks::Finish() { return open_.rows > 0 ? FinishChunk() : absl::OkStatus(); }

absl::Status ReportChunks::FinishChunk() {
  std::string plain;
  for (std::vector<uint64_t>* column :
       {&kinds_, &times_, &addresses_, &requested_, &blocks_, &pools_, &frees_, &values_}) {
    AppendColumn(*column, plain);
    column->clear();
  }
  OFFCUT_ASSIGN_OR_RETURN(open_.deflated, DeflateRaw(plain));
  chunks_.push_back(std::exchange(open_, {}));
  return absl::OkStatus();
}

}  // namespace offcut
