#include "allocator/trace/chunk_file.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/checksum.h"

namespace offcut {

absl::StatusOr<std::unique_ptr<ChunkFile>> ChunkFile::Create(const std::string& path,
                                                             absl::string_view file_header) {
  const FileSizeSignalBlocker no_signal;
  OFFCUT_ASSIGN_OR_RETURN(FileDescriptor file, CreateFile(path));
  const absl::Status written = WriteAt(file, path, 0, file_header);
  if (!written.ok()) {
    unlink(path.c_str());
    return written;
  }
  return std::unique_ptr<ChunkFile>(new ChunkFile(path, std::move(file), file_header.size()));
}

ChunkFile::ChunkFile(std::string path, FileDescriptor file, uint64_t end)
    : path_(std::move(path)), file_(std::move(file)), end_(end) {}

absl::Status ChunkFile::AppendBytes(absl::string_view bytes) {
  const FileSizeSignalBlocker no_signal;
  const absl::Status written = WriteAt(file_, path_, end_, bytes);
  if (!written.ok()) {
    // Should this fail too, the next append overwrites the torn piece, and readers pass over the
    // rest.
    [[maybe_unused]] const int truncated = ftruncate(file_.get(), static_cast<off_t>(end_));
    return written;
  }
  end_ += bytes.size();
  return absl::OkStatus();
}

absl::Status ChunkFile::Append(absl::string_view chunk) {
  ChunkHeader header;
  OFFCUT_CHECK(chunk.size() > sizeof(header), "a chunk of a ChunkEncoder");
  std::memcpy(&header, chunk.data(), sizeof(header));
  const uint64_t offset = end_;
  OFFCUT_RETURN_IF_ERROR(AppendBytes(chunk));
  index_.push_back(IndexEntry{.offset = offset,
                              .first_index = header.first_index,
                              .event_count = header.event_count,
                              .first_time_ns = header.first_time_ns,
                              .last_time_ns = header.last_time_ns,
                              .live_bytes = header.live_bytes,
                              .reserved_bytes = header.reserved_bytes});
  return absl::OkStatus();
}

absl::Status ChunkFile::Close(uint64_t event_count, uint64_t dropped_events) {
  IndexHeader header;
  header.entry_count = index_.size();
  header.event_count = event_count;
  header.dropped_events = dropped_events;
  std::string bytes(sizeof(header) + index_.size() * sizeof(IndexEntry), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!index_.empty()) {
    std::memcpy(bytes.data() + sizeof(header), index_.data(), index_.size() * sizeof(IndexEntry));
  }
  IndexEnd end;
  end.index_offset = end_;
  end.checksum =
      Checksum(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
               BytesBeforeChecksum(end));
  bytes.append(reinterpret_cast<const char*>(&end), sizeof(end));
  return AppendBytes(bytes);
}

}  // namespace offcut
