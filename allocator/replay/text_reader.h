// TextReader: the lines of a text file, plain or compressed with zstd (told apart by their first
// bytes).
//
// Reads piece by piece, whatever the file's size. Hostile input is an error that names the file: no
// regular file, damaged or cut compression, a line longer than kLineMax. Not thread-safe.

#ifndef OFFCUT_ALLOCATOR_REPLAY_TEXT_READER_H_
#define OFFCUT_ALLOCATOR_REPLAY_TEXT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/trace/file.h"

struct ZSTD_DCtx_s;

namespace offcut {

class TextReader {
 public:
  static constexpr size_t kLineMax = 4096;

  static absl::StatusOr<std::unique_ptr<TextReader>> Open(const std::string& path);

  // Puts the next line into `*line`, without its end ("\n" or "\r\n"), valid until the next call.
  // False at the end of the file.
  absl::StatusOr<bool> NextLine(absl::string_view* line);
  // Of the line that NextLine returned last, counted from 1.
  uint64_t line_number() const { return line_number_; }
  const std::string& path() const { return path_; }

 private:
  struct FreeZstd {
    void operator()(ZSTD_DCtx_s* context) const;
  };

  TextReader(std::string path, FileDescriptor file);

  // More of the text at the end of buffer_; end_of_text_ if there is none.
  absl::Status Fill();
  // Up to `size` bytes of the file; fewer only at its end.
  absl::StatusOr<size_t> ReadFile(char* to, size_t size);

  const std::string path_;
  const FileDescriptor file_;
  uint64_t file_offset_ = 0;
  std::unique_ptr<ZSTD_DCtx_s, FreeZstd> zstd_;  // nullptr for a plain file
  std::string compressed_;
  size_t compressed_begin_ = 0;
  bool in_frame_ = false;  // the compressed text goes on
  std::string buffer_;
  size_t begin_ = 0;  // of what is not consumed
  bool end_of_text_ = false;
  uint64_t line_number_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_TEXT_READER_H_
