#include "allocator/replay/text_reader.h"

#include <zstd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "allocator/base/status_macros.h"

namespace offcut {
namespace {

constexpr size_t kReadBytes = 1 << 18;
constexpr uint8_t kZstdMagic[] = {0x28, 0xB5, 0x2F, 0xFD};

}  // namespace

void TextReader::FreeZstd::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

TextReader::TextReader(std::string path, FileDescriptor file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(const std::string& path) {
  OFFCUT_ASSIGN_OR_RETURN(FileDescriptor file, OpenToRead(path));
  std::unique_ptr<TextReader> reader(new TextReader(path, std::move(file)));
  char magic[sizeof(kZstdMagic)];
  OFFCUT_ASSIGN_OR_RETURN(const size_t got, reader->ReadFile(magic, sizeof(magic)));
  reader->file_offset_ = 0;
  if (got == sizeof(magic) && std::memcmp(magic, kZstdMagic, sizeof(magic)) == 0) {
    reader->zstd_.reset(ZSTD_createDCtx());
    if (reader->zstd_ == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
  }
  return reader;
}

absl::StatusOr<bool> TextReader::NextLine(absl::string_view* line) {
  size_t searched = begin_;
  size_t end = buffer_.find('\n', searched);
  while (end == std::string::npos && !end_of_text_) {
    if (buffer_.size() - begin_ > kLineMax) break;
    buffer_.erase(0, std::exchange(begin_, 0));
    searched = buffer_.size();
    OFFCUT_RETURN_IF_ERROR(Fill());
    end = buffer_.find('\n', searched);
  }
  if (end == std::string::npos) {
    if (buffer_.size() == begin_) return false;
    end = buffer_.size();
  }
  ++line_number_;
  if (end - begin_ > kLineMax) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", line_number_, ": more than ",
                                                   kLineMax,
                                                   " bytes in one line; this is no trace"));
  }
  *line = absl::string_view(buffer_).substr(begin_, end - begin_);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  begin_ = end < buffer_.size() ? end + 1 : end;
  return true;
}

absl::Status TextReader::Fill() {
  const size_t before = buffer_.size();
  if (zstd_ == nullptr) {
    buffer_.resize(before + kReadBytes);
    OFFCUT_ASSIGN_OR_RETURN(const size_t got, ReadFile(buffer_.data() + before, kReadBytes));
    buffer_.resize(before + got);
    end_of_text_ = got == 0;
    return absl::OkStatus();
  }
  while (buffer_.size() == before && !end_of_text_) {
    if (compressed_begin_ == compressed_.size()) {
      compressed_.resize(kReadBytes);
      OFFCUT_ASSIGN_OR_RETURN(const size_t got, ReadFile(compressed_.data(), kReadBytes));
      compressed_.resize(got);
      compressed_begin_ = 0;
      if (got == 0 && in_frame_) {
        return absl::DataLossError(
            absl::StrCat(path_, ": the compressed text ends in its middle; the file is cut short"));
      }
      if (got == 0) {
        end_of_text_ = true;
        break;
      }
    }
    buffer_.resize(before + kReadBytes);
    ZSTD_inBuffer in = {compressed_.data(), compressed_.size(), compressed_begin_};
    ZSTD_outBuffer out = {buffer_.data(), buffer_.size(), before};
    const size_t result = ZSTD_decompressStream(zstd_.get(), &out, &in);
    compressed_begin_ = in.pos;
    buffer_.resize(out.pos);
    if (ZSTD_isError(result) != 0) {
      return absl::DataLossError(absl::StrCat(
          path_, ": the compressed text is damaged before byte ",
          file_offset_ - compressed_.size() + in.pos, ": ", ZSTD_getErrorName(result)));
    }
    in_frame_ = result != 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> TextReader::ReadFile(char* to, size_t size) {
  OFFCUT_ASSIGN_OR_RETURN(
      const size_t got,
      ReadAt(file_, path_, file_offset_, absl::MakeSpan(reinterpret_cast<uint8_t*>(to), size)));
  file_offset_ += got;
  return got;
}

}  // namespace offcut
