// The head of a trace file: magic, version, and a JSON text that says what was recorded where, with
// the list of events as the writer knew it.

#ifndef OFFCUT_ALLOCATOR_TRACE_METADATA_H_
#define OFFCUT_ALLOCATOR_TRACE_METADATA_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/trace/format.h"
#include "allocator/trace/reader.h"

namespace offcut {

// `metadata` as JSON, with format and schema (the list of events) added. Text that is not UTF-8 is
// mended with U+FFFD; options that are no JSON are kept as a string.
std::string MetadataToJson(const TraceMetadata& metadata);

// The reverse; an error names what is missing or of the wrong type. Whatever else the JSON holds is
// ignored.
absl::StatusOr<TraceMetadata> MetadataFromJson(absl::string_view json);

// FileHeader and `json`, with the checksum: the first bytes of a chunk file. Requires `json` of at
// most kMaxMetadataBytes.
std::string FileHeaderBytes(absl::string_view json);

// The checksum that `header` ought to have.
uint64_t FileHeaderChecksum(const FileHeader& header, absl::string_view json);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_METADATA_H_
