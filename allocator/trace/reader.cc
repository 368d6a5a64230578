#include "allocator/trace/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/chunk_scanner.h"
#include "allocator/trace/file.h"
#include "allocator/trace/format.h"
#include "allocator/trace/metadata.h"
#include "allocator/trace/recording_directory.h"
#include "allocator/trace/ring_file.h"

namespace offcut {
namespace {

using Visitor = std::function<void(absl::Span<const Event>)>;

// One reading of a file and its ring, from the beginning.
class Reading {
 public:
  Reading(const FileDescriptor& file, const std::string& path, const std::string& file_header,
          const TraceMetadata& metadata, const Visitor& visit)
      : ring_path_(absl::StrCat(absl::StripSuffix(path, kChunkFileSuffix), kRingFileSuffix)),
        file_(file),
        path_(path),
        file_header_(file_header),
        visit_(visit),
        scanner_(file, path, file_header.size(), static_cast<uint8_t>(metadata.device)) {}

  TraceSummary Run();

 private:
  // Goes once through chunks and ring. False if it has to be done again.
  absl::StatusOr<bool> Pass();
  // Delivers the chunks that are there now.
  absl::Status ReadChunks();
  // Delivers what the ring holds beyond the chunks. False if chunks have come meanwhile, so that
  // these are to be read first.
  absl::StatusOr<bool> ReadRing(const RingFile& ring);

  void Deliver(uint64_t first_index, absl::Span<const Event> events);
  // Goes on at event `index`, and reports the events in between as lost.
  void SkipTo(uint64_t index);
  void AddProblem(absl::string_view problem);

  const std::string ring_path_;
  const FileDescriptor& file_;
  const std::string& path_;
  const std::string& file_header_;
  const Visitor& visit_;
  ChunkScanner scanner_;

  uint64_t next_index_ = 0;
  std::optional<uint64_t> enough_;  // the ring's head at the start
  uint64_t dropped_in_events_ = 0;
  std::string damage_;  // the newest, while it is not known whether events were lost by it
  int problems_ = 0;
  TraceSummary summary_;
};

TraceSummary Reading::Run() {
  absl::StatusOr<bool> done = false;
  while (done.ok() && !*done) done = Pass();
  if (!done.ok()) AddProblem(done.status().message());
  if (summary_.closed) SkipTo(std::max(next_index_, scanner_.index().header.event_count));
  summary_.dropped_events = std::max(summary_.dropped_events, dropped_in_events_);
  if (problems_ > 1) absl::StrAppend(&summary_.problem, " (and ", problems_ - 1, " more problems)");
  return std::move(summary_);
}

absl::StatusOr<bool> Reading::Pass() {
  // In this order, no event can slip through: what leaves the ring stands in a chunk before.
  const absl::StatusOr<RingFile> ring = RingFile::Open(ring_path_, file_header_);
  const absl::StatusOr<RingFile::Position> before =
      ring.ok() ? ring->ReadPosition() : absl::StatusOr<RingFile::Position>(ring.status());
  OFFCUT_RETURN_IF_ERROR(ReadChunks());
  if (summary_.closed) return true;
  if (absl::IsNotFound(before.status())) {
    return absl::DataLossError(absl::StrCat("it was not closed, and ", ring_path_,
                                            " is missing: events from ", next_index_,
                                            " on, if there were any, are lost"));
  }
  OFFCUT_RETURN_IF_ERROR(before.status());
  if (next_index_ < before->tail) SkipTo(before->tail);
  OFFCUT_ASSIGN_OR_RETURN(const bool complete, ReadRing(*ring));
  // A writer that is faster than this reader shall not keep it for ever: what was there when it
  // began is enough.
  if (!enough_.has_value()) enough_ = before->head;
  return complete || next_index_ >= *enough_;
}

absl::Status Reading::ReadChunks() {
  OFFCUT_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(file_, path_));
  while (scanner_.offset() < file_bytes) {
    OFFCUT_ASSIGN_OR_RETURN(const ChunkScanner::Found found, scanner_.Next());
    damage_ = scanner_.damage();
    if (found == ChunkScanner::Found::kEnd) break;
    if (found == ChunkScanner::Found::kIndex) {
      summary_.closed = true;
      summary_.dropped_events = scanner_.index().header.dropped_events;
      break;
    }
    ++summary_.chunks;
    summary_.chunk_bytes += scanner_.chunk_bytes();
    Deliver(scanner_.header().first_index, scanner_.events());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Reading::ReadRing(const RingFile& ring) {
  OFFCUT_ASSIGN_OR_RETURN(const RingFile::Position position, ring.ReadPosition());
  summary_.dropped_events = position.dropped_events;
  if (position.tail > next_index_) return false;
  if (position.head < next_index_) {
    return absl::DataLossError(
        absl::StrCat(ring_path_, " ends at event ", position.head, ", before the chunks do"));
  }
  if (position.head - next_index_ > ring.capacity_events()) {
    // The head was read after the tail: in a run still going, both may have moved in between.
    OFFCUT_ASSIGN_OR_RETURN(const RingFile::Position later, ring.ReadPosition());
    if (later.tail > next_index_) return false;
    return absl::DataLossError(absl::StrCat(ring_path_, ": head ", position.head, " and tail ",
                                            later.tail, " are too far apart"));
  }
  std::vector<Event> events;
  OFFCUT_RETURN_IF_ERROR(ring.Read(next_index_, position.head, &events));
  OFFCUT_ASSIGN_OR_RETURN(const RingFile::Position after, ring.ReadPosition());
  if (after.tail > next_index_) return false;
  summary_.ring_events += events.size();
  Deliver(next_index_, events);
  return true;
}

void Reading::Deliver(uint64_t first_index, absl::Span<const Event> events) {
  if (first_index > next_index_) SkipTo(first_index);
  // A chunk that was written again after a failure may tell of events that we have.
  events.remove_prefix(std::min<uint64_t>(events.size(), next_index_ - first_index));
  if (events.empty()) return;
  for (const Event& event : events) {
    if (event.kind == EventKind::kEventsDropped) dropped_in_events_ += event.bytes;
    if (DescribeEvent(event.kind) == nullptr) ++summary_.unknown_events;
  }
  next_index_ += events.size();
  summary_.events += events.size();
  visit_(events);
}

void Reading::SkipTo(uint64_t index) {
  if (index == next_index_) return;
  AddProblem(absl::StrCat("events ", next_index_, " to ", index - 1, " are missing"));
  next_index_ = index;
}

void Reading::AddProblem(absl::string_view problem) {
  if (++problems_ > 1) return;
  summary_.problem = absl::StrCat(path_, ": ", problem);
  if (!damage_.empty()) absl::StrAppend(&summary_.problem, "; ", damage_);
}

class TraceReaderImpl final : public TraceReader {
 public:
  TraceReaderImpl(FileDescriptor file, std::string path, std::string file_header,
                  TraceMetadata metadata)
      : file_(std::move(file)),
        path_(std::move(path)),
        file_header_(std::move(file_header)),
        metadata_(std::move(metadata)) {}

  const TraceMetadata& metadata() const override { return metadata_; }
  const std::string& path() const override { return path_; }

  absl::StatusOr<TraceSummary> ForEach(const Visitor& visit) override {
    return Reading(file_, path_, file_header_, metadata_, visit).Run();
  }

  absl::StatusOr<std::vector<TraceChunk>> Chunks() override;

 private:
  absl::StatusOr<ChunkIndex> ReadIndexFromEnd() const;

  const FileDescriptor file_;
  const std::string path_;
  const std::string file_header_;
  const TraceMetadata metadata_;
};

absl::StatusOr<ChunkIndex> TraceReaderImpl::ReadIndexFromEnd() const {
  OFFCUT_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(file_, path_));
  IndexEnd end;
  if (file_bytes < sizeof(end)) return absl::DataLossError("too short for an index");
  OFFCUT_RETURN_IF_ERROR(ReadAt(file_, path_, file_bytes - sizeof(end),
                                absl::MakeSpan(reinterpret_cast<uint8_t*>(&end), sizeof(end)))
                             .status());
  return ReadChunkIndex(file_, path_, end.index_offset);
}

absl::StatusOr<std::vector<TraceChunk>> TraceReaderImpl::Chunks() {
  std::vector<TraceChunk> chunks;
  if (const absl::StatusOr<ChunkIndex> index = ReadIndexFromEnd(); index.ok()) {
    for (const IndexEntry& entry : index->entries) {
      chunks.push_back({entry.offset, entry.first_index, entry.event_count, entry.first_time_ns,
                        entry.last_time_ns, entry.live_bytes, entry.reserved_bytes});
    }
    return chunks;
  }
  ChunkScanner scanner(file_, path_, file_header_.size(), static_cast<uint8_t>(metadata_.device));
  for (;;) {
    OFFCUT_ASSIGN_OR_RETURN(const ChunkScanner::Found found, scanner.Next());
    if (found != ChunkScanner::Found::kChunk) return chunks;
    const ChunkHeader& header = scanner.header();
    chunks.push_back({scanner.chunk_offset(), header.first_index, header.event_count,
                      header.first_time_ns, header.last_time_ns, header.live_bytes,
                      header.reserved_bytes});
  }
}

// The header of a chunk file, with its metadata.
absl::StatusOr<std::string> ReadFileHeader(const FileDescriptor& file, const std::string& path) {
  FileHeader header;
  OFFCUT_ASSIGN_OR_RETURN(
      size_t got,
      ReadAt(file, path, 0, absl::MakeSpan(reinterpret_cast<uint8_t*>(&header), sizeof(header))));
  if (got == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is empty: its recording ended before the first event"));
  }
  if (got < sizeof(header) || header.magic != kFileMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not a trace of Offcut (those begin with the bytes 89 'OFFCUT' 0A)"));
  }
  if (header.format_version != kFormatVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has format version ", header.format_version,
                     ", but this offcut reads ", "version ", kFormatVersion, ": ",
                     header.format_version > kFormatVersion
                         ? "update it (pip install --upgrade offcut)"
                         : "such a version was never released, so the file is damaged"));
  }
  std::string json(std::min(header.metadata_bytes, kMaxMetadataBytes), '\0');
  OFFCUT_ASSIGN_OR_RETURN(
      got, ReadAt(file, path, sizeof(header),
                  absl::MakeSpan(reinterpret_cast<uint8_t*>(json.data()), json.size())));
  if (got != header.metadata_bytes || header.checksum != FileHeaderChecksum(header, json)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its head of ", header.metadata_bytes,
                                                   " bytes of metadata from offset ",
                                                   sizeof(header), " is damaged or cut short"));
  }
  return FileHeaderBytes(json);
}

bool IsTraceFile(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  return entry.path().extension() == kChunkFileSuffix && entry.is_regular_file(error);
}

void AddTraceFiles(const std::string& directory, std::vector<std::string>* files) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsTraceFile(*entry)) files->push_back(entry->path().string());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(absl::string_view file) {
  const std::string path(file);
  OFFCUT_ASSIGN_OR_RETURN(FileDescriptor descriptor, OpenToRead(path));
  OFFCUT_ASSIGN_OR_RETURN(std::string file_header, ReadFileHeader(descriptor, path));
  absl::StatusOr<TraceMetadata> metadata =
      MetadataFromJson(absl::string_view(file_header).substr(sizeof(FileHeader)));
  if (!metadata.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", metadata.status().message()));
  }
  return std::make_unique<TraceReaderImpl>(std::move(descriptor), path, std::move(file_header),
                                           *std::move(metadata));
}

absl::StatusOr<std::vector<std::string>> FindTraceFiles(absl::string_view path_view) {
  const std::string path(path_view);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (status.type() != std::filesystem::file_type::directory) {
    return std::vector<std::string>{path};
  }
  std::vector<std::string> files;
  AddTraceFiles(path, &files);
  if (files.empty()) {
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_directory(ignored)) AddTraceFiles(entry->path().string(), &files);
    }
  }
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, " holds no trace: neither *", kChunkFileSuffix,
                     " files nor directories of such (record one with OFFCUT_RECORD=DIR)"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace offcut
