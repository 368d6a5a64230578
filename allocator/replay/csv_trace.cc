#include "allocator/replay/csv_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "allocator/base/status_macros.h"
#include "allocator/replay/text_reader.h"

namespace offcut {
namespace {

constexpr absl::string_view kHeader = "time_us,action,address,size,stream";
constexpr absl::string_view kColumns[] = {"time_us", "action", "address", "size", "stream"};
constexpr size_t kColumnCount = std::size(kColumns);

constexpr std::pair<absl::string_view, CsvAction> kActions[] = {
    {"alloc", CsvAction::kAlloc},
    {"free_requested", CsvAction::kFreeRequested},
    {"free_completed", CsvAction::kFreeCompleted},
    {"segment_alloc", CsvAction::kSegmentAlloc}};

std::string Quote(absl::string_view text) {
  constexpr size_t kShown = 60;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "..." : "", "'");
}

// Digits only: no sign, no space, nothing behind them.
std::optional<uint64_t> ParseNumber(absl::string_view text, int base, uint64_t max) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stopped != end || value > max) return std::nullopt;
  return value;
}

// Reads the lines of one file as entries.
class CsvParser {
 public:
  explicit CsvParser(const TextReader& reader) : reader_(reader) {}

  absl::Status CheckHeader(absl::string_view line) const {
    if (line == kHeader) return absl::OkStatus();
    return Wrong(absl::StrCat("the first line must be '", kHeader, "', not ", Quote(line)));
  }

  absl::StatusOr<CsvEntry> Parse(absl::string_view line) {
    OFFCUT_RETURN_IF_ERROR(Split(line));
    CsvEntry entry;
    const auto time_us = ParseNumber(fields_[0], 10, ProgramBuilder::kTimeMaxNs / 1000);
    if (!time_us.has_value()) return WrongField(0, "a whole number of microseconds");
    if (*time_us < last_time_us_) {
      return WrongField(0,
                        absl::StrCat("at least ", last_time_us_, ", the time of the line before"));
    }
    entry.time_us = last_time_us_ = *time_us;

    const auto* const action =
        std::find_if(std::begin(kActions), std::end(kActions),
                     [this](const auto& known) { return known.first == fields_[1]; });
    if (action == std::end(kActions)) {
      return WrongField(1, "alloc, free_requested, free_completed or segment_alloc");
    }
    entry.action = action->second;

    const auto address = fields_[2].substr(0, 2) == "0x"
                             ? ParseNumber(fields_[2].substr(2), 16, UINT64_MAX)
                             : std::nullopt;
    if (!address.has_value() || *address == 0) {
      return WrongField(2, "a hexadecimal number with 0x before it, not zero");
    }
    entry.address = *address;

    const auto bytes = ParseNumber(fields_[3], 10, ProgramBuilder::kBytesMax);
    if (!bytes.has_value() || *bytes == 0) {
      return WrongField(
          3, absl::StrCat("a whole number of bytes from 1 to ", ProgramBuilder::kBytesMax));
    }
    entry.bytes = *bytes;

    const auto stream = ParseNumber(fields_[4], 10, UINT32_MAX);
    if (!stream.has_value()) return WrongField(4, "the number of a stream, 0 or more");
    entry.stream = static_cast<uint32_t>(*stream);
    return entry;
  }

  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(reader_.path(), ":", reader_.line_number(), ": ", what));
  }

 private:
  absl::Status Split(absl::string_view line) {
    size_t count = 0;
    for (size_t begin = 0; begin <= line.size(); ++count) {
      const size_t end = std::min(line.find(',', begin), line.size());
      if (count < kColumnCount) {
        fields_[count] = line.substr(begin, end - begin);
        columns_[count] = begin + 1;
      }
      begin = end + 1;
    }
    if (count == kColumnCount) return absl::OkStatus();
    return Wrong(absl::StrCat(count, " fields where ", kColumnCount, " must be, ", kHeader, ": ",
                              Quote(line)));
  }

  absl::Status WrongField(size_t field, absl::string_view allowed) const {
    return Wrong(absl::StrCat("column ", columns_[field], ": ", kColumns[field], " must be ",
                              allowed, ", not ", Quote(fields_[field])));
  }

  const TextReader& reader_;
  std::array<absl::string_view, kColumnCount> fields_;
  std::array<size_t, kColumnCount> columns_{};  // where each begins, from 1
  uint64_t last_time_us_ = 0;
};

// Gives entries of the same microsecond different times.
class Nanoseconds {
 public:
  uint64_t Next(uint64_t time_us) {
    same_ = time_us == last_us_ ? std::min<uint64_t>(same_ + 1, 999) : 0;
    last_us_ = time_us;
    return time_us * 1000 + same_;
  }

 private:
  uint64_t last_us_ = UINT64_MAX;
  uint64_t same_ = 0;
};

}  // namespace

absl::Status ReadCsvEntries(const std::string& path,
                            absl::FunctionRef<absl::Status(const CsvEntry&)> visit) {
  OFFCUT_ASSIGN_OR_RETURN(const std::unique_ptr<TextReader> reader, TextReader::Open(path));
  CsvParser parser(*reader);
  absl::string_view line;
  OFFCUT_ASSIGN_OR_RETURN(bool more, reader->NextLine(&line));
  if (!more) return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  OFFCUT_RETURN_IF_ERROR(parser.CheckHeader(line));
  while (true) {
    OFFCUT_ASSIGN_OR_RETURN(more, reader->NextLine(&line));
    if (!more) return absl::OkStatus();
    OFFCUT_ASSIGN_OR_RETURN(const CsvEntry entry, parser.Parse(line));
    if (const absl::Status status = visit(entry); !status.ok()) {
      return parser.Wrong(status.message());
    }
  }
}

absl::StatusOr<Program> LoadCsvTrace(const std::string& path) {
  ProgramBuilder builder;
  Nanoseconds nanoseconds;
  OFFCUT_RETURN_IF_ERROR(ReadCsvEntries(path, [&](const CsvEntry& entry) {
    const uint64_t time_ns = nanoseconds.Next(entry.time_us);
    switch (entry.action) {
      case CsvAction::kAlloc:
        return builder.Allocate(time_ns, entry.address, entry.bytes, entry.stream,
                                /*default_stream=*/entry.stream == 0);
      case CsvAction::kFreeRequested:
        return builder.Free(time_ns, entry.address);
      case CsvAction::kFreeCompleted:
        return builder.FinishFree(time_ns, entry.address);
      case CsvAction::kSegmentAlloc:
        return builder.AddSegment(
            {.address = entry.address, .bytes = entry.bytes, .time_ns = time_ns});
    }
    return absl::OkStatus();
  }));
  return std::move(builder).Finish();
}

}  // namespace offcut
