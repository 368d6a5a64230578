#include "allocator/trace/ring_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/checksum.h"
#include "allocator/trace/format.h"

namespace offcut {
namespace {

absl::Status CheckHeader(const RingHeader& header, const std::string& path, uint64_t file_bytes,
                         size_t file_header_bytes) {
  if (header.magic != kRingMagic || header.checksum != Checksum(BytesBeforeChecksum(header))) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not the ring of a recording"));
  }
  const bool sizes_fit =
      header.format_version == kFormatVersion && header.event_bytes == sizeof(Event) &&
      header.capacity_events <= kMaxRingEvents && std::has_single_bit(header.capacity_events) &&
      header.file_header_bytes == file_header_bytes &&
      header.slots_offset >= kRingFileHeaderOffset + file_header_bytes &&
      header.slots_offset <= file_bytes &&
      header.capacity_events * sizeof(Event) <= file_bytes - header.slots_offset;
  if (!sizes_fit) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a ring of ", header.capacity_events, " events of ", header.event_bytes,
        " bytes at offset ", header.slots_offset, " does not fit this file of ", file_bytes,
        " bytes, or the chunk file beside it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RingFile> RingFile::Open(const std::string& path, absl::string_view file_header) {
  OFFCUT_ASSIGN_OR_RETURN(FileDescriptor descriptor, OpenToRead(path));
  OFFCUT_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(descriptor, path));
  RingFile file(path, std::move(descriptor));
  RingHeader header;
  OFFCUT_RETURN_IF_ERROR(file.ReadExactly(0, &header, sizeof(header)));
  OFFCUT_RETURN_IF_ERROR(CheckHeader(header, path, file_bytes, file_header.size()));
  std::string copy(file_header.size(), '\0');
  OFFCUT_RETURN_IF_ERROR(file.ReadExactly(kRingFileHeaderOffset, copy.data(), copy.size()));
  if (copy != file_header) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is the ring of another recording than the chunk file beside it"));
  }
  file.capacity_events_ = header.capacity_events;
  file.slots_offset_ = header.slots_offset;
  return file;
}

absl::Status RingFile::ReadExactly(uint64_t offset, void* bytes, size_t size) const {
  OFFCUT_ASSIGN_OR_RETURN(
      const size_t got,
      ReadAt(file_, path_, offset, absl::MakeSpan(static_cast<uint8_t*>(bytes), size)));
  if (got != size) {
    return absl::DataLossError(absl::StrCat(path_, " ends at offset ", offset + got, ", where ",
                                            size - got, " bytes more belong"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RingFile::Position> RingFile::ReadPosition() const {
  // Three reads, the tail first: in this order the head can only be too far ahead, never behind.
  Position position;
  OFFCUT_RETURN_IF_ERROR(ReadExactly(offsetof(RingHeader, tail), &position.tail, 8));
  OFFCUT_RETURN_IF_ERROR(ReadExactly(offsetof(RingHeader, head), &position.head, 8));
  OFFCUT_RETURN_IF_ERROR(
      ReadExactly(offsetof(RingHeader, dropped_events), &position.dropped_events, 8));
  if (position.head < position.tail || position.head > kMaxEventIndex) {
    return absl::DataLossError(absl::StrCat(path_, ": head ", position.head, " and tail ",
                                            position.tail, " contradict each other"));
  }
  return position;
}

absl::Status RingFile::Read(uint64_t first, uint64_t end, std::vector<Event>* events) const {
  events->resize(end - first);
  const uint64_t slot = first & (capacity_events_ - 1);
  const uint64_t until_end = std::min<uint64_t>(events->size(), capacity_events_ - slot);
  OFFCUT_RETURN_IF_ERROR(
      ReadExactly(slots_offset_ + slot * sizeof(Event), events->data(), until_end * sizeof(Event)));
  return ReadExactly(slots_offset_, events->data() + until_end,
                     (events->size() - until_end) * sizeof(Event));
}

}  // namespace offcut
