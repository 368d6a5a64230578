// ChunkFile: the file of chunks that the writer thread appends to.
//
// Owns the file and knows where its last whole chunk ends. A failing append leaves the file as it
// was before, so it can be tried again. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_TRACE_CHUNK_FILE_H_
#define OFFCUT_ALLOCATOR_TRACE_CHUNK_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/trace/file.h"
#include "allocator/trace/format.h"

namespace offcut {

class ChunkFile {
 public:
  // Creates the file at `path` with `file_header` (see FileHeaderBytes). On an error no file is
  // left behind, unless it was there before.
  static absl::StatusOr<std::unique_ptr<ChunkFile>> Create(const std::string& path,
                                                           absl::string_view file_header);

  // Appends what a ChunkEncoder made, with one write.
  absl::Status Append(absl::string_view chunk);

  // Appends the index. Nothing may be appended after that.
  absl::Status Close(uint64_t event_count, uint64_t dropped_events);

  const std::string& path() const { return path_; }

 private:
  ChunkFile(std::string path, FileDescriptor file, uint64_t end);

  absl::Status AppendBytes(absl::string_view bytes);

  const std::string path_;
  const FileDescriptor file_;
  uint64_t end_;
  std::vector<IndexEntry> index_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_CHUNK_FILE_H_
