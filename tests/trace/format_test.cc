// FORMAT.md's example is what the writer writes: the text is made here and must stand there.

#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/trace/chunk.h"
#include "allocator/trace/columns.h"
#include "allocator/trace/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"

namespace offcut {
namespace {

// Lines of "offset  bytes  meaning".
class HexDump {
 public:
  explicit HexDump(std::string bytes) : bytes_(std::move(bytes)) {}

  HexDump& Line(size_t count, absl::string_view meaning) {
    std::string hex;
    for (size_t i = 0; i < count; ++i) {
      absl::StrAppend(&hex, i == 0 ? "" : " ", absl::BytesToHexString(bytes_.substr(at_ + i, 1)));
    }
    absl::StrAppendFormat(&text_, "%3d  %-47s  %s\n", at_, hex, meaning);
    at_ += count;
    return *this;
  }

  std::string Text() const {
    EXPECT_EQ(at_, bytes_.size()) << "the example leaves bytes out";
    return text_;
  }

 private:
  const std::string bytes_;
  size_t at_ = 0;
  std::string text_;
};

const std::vector<Event> kExample = {
    {.time_ns = 1000,
     .address = 0x7F0000000000,
     .bytes = 1000,
     .extra = 2,
     .pool = 0,
     .kind = EventKind::kBlockAllocated},
    {.time_ns = 1500,
     .address = 0x7F0000000400,
     .bytes = 512,
     .extra = 1,
     .pool = 0,
     .kind = EventKind::kBlockAllocated},
    {.time_ns = 9000,
     .address = 0x7F0000000000,
     .bytes = 1000,
     .extra = 2,
     .pool = 0,
     .kind = EventKind::kBlockFreed},
    {.time_ns = 9100, .bytes = 7, .kind = EventKind::kStepMarked},
};

std::string HeaderText() {
  ChunkEncoder encoder(3);
  std::string chunk;
  EXPECT_TRUE(encoder
                  .Encode(kExample,
                          {.first_index = 65536, .live_bytes = 4096, .reserved_bytes = 2 * kMiB},
                          &chunk)
                  .ok());
  ChunkHeader header;
  std::memcpy(&header, chunk.data(), sizeof(header));
  // What depends on the version of zstd.
  header.payload_bytes = 0;
  header.checksum = 0;
  return HexDump(std::string(reinterpret_cast<const char*>(&header), sizeof(header)))
      .Line(8, "magic: 89 \"OFCHNK\" 0A")
      .Line(2, "version 1")
      .Line(2, "header_bytes 80")
      .Line(4, "flags: none")
      .Line(4, "event_count 4")
      .Line(4, "columns_bytes")
      .Line(4, "payload_bytes, here 0")
      .Line(4, "reserved")
      .Line(8, "first_index 65536")
      .Line(8, "first_time_ns 1000")
      .Line(8, "last_time_ns 9100")
      .Line(8, "live_bytes 4096")
      .Line(8, "reserved_bytes 2097152")
      .Line(8, "checksum, here 0")
      .Text();
}

std::string ColumnsText() {
  ColumnEncoder encoder;
  encoder.Encode(kExample);
  std::string bytes;
  std::vector<size_t> lengths;
  for (size_t i = 0; i < kColumnCount; ++i) {
    const uint32_t length = static_cast<uint32_t>(encoder.column(static_cast<Column>(i)).size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    lengths.push_back(length);
  }
  for (size_t i = 0; i < kColumnCount; ++i) {
    const auto column = encoder.column(static_cast<Column>(i));
    bytes.append(reinterpret_cast<const char*>(column.data()), column.size());
  }
  HexDump dump(bytes);
  dump.Line(16, "lengths of kind, time_low, time, reference")
      .Line(16, "lengths of pool, address, bytes, extra");
  const char* const meanings[] = {
      "kind: allocated, allocated, freed, step",
      "time_low: the low bytes of 2000, 1000, 15000, 200",
      "time: the rest",
      "reference: the second-newest allocation",
      "pool: 0, 0, none, each plus one",
      "address: 7F0000000000 / 512, twice, twice; +2; 0",
      "bytes: 1000, 512, 7",
      "extra: as expected, each time",
  };
  for (size_t i = 0; i < kColumnCount; ++i) dump.Line(lengths[i], meanings[i]);
  return dump.Text();
}

TEST(FormatTest, TheExampleInTheSpecificationIsWhatTheWriterWrites) {
  const std::string specification = ReadFile("allocator/trace/FORMAT.md");
  EXPECT_THAT(specification, ::testing::HasSubstr("```\n" + HeaderText() + "```\n"));
  EXPECT_THAT(specification, ::testing::HasSubstr("```\n" + ColumnsText() + "```\n"));
}

TEST(FormatTest, MagicsAreTheBytesThatTheSpecificationNames) {
  const std::string specification = ReadFile("allocator/trace/FORMAT.md");
  for (const auto& [magic, name] :
       {std::pair(kFileMagic, "OFFCUT"), std::pair(kRingMagic, "OFRING"),
        std::pair(kChunkMagic, "OFCHNK"), std::pair(kIndexMagic, "OFFIDX"),
        std::pair(kEndMagic, "OFFEND")}) {
    const std::string bytes(reinterpret_cast<const char*>(&magic), sizeof(magic));
    EXPECT_EQ(bytes, absl::StrCat("\x89", name, "\n"));
    EXPECT_THAT(specification, ::testing::HasSubstr(absl::StrCat("89 \"", name, "\" 0A")));
  }
}

}  // namespace
}  // namespace offcut
