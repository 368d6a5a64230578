// The committed traces: this reader must read them, and this writer must write them, byte for byte.
// A failure means that the format has changed: traces that people have would no longer be read.
//
// OFFCUT_UPDATE_GOLDEN=1 writes the files anew from expected.json. That is right for a new format
// version only, in a directory of its own; the old ones stay and must still be read.

#include <zstd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "allocator/trace/chunk.h"
#include "allocator/trace/chunk_file.h"
#include "allocator/trace/metadata.h"
#include "allocator/trace/reader.h"
#include "allocator/trace/ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using Json = nlohmann::json;

const std::string kGolden = "tests/golden/v1/";
// Another version of zstd may compress the same columns into other bytes, equally right.
constexpr unsigned kGoldenZstdVersion = 10504;

uint64_t Number(const Json& text) { return std::stoull(text.get<std::string>()); }

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() : expected_(Json::parse(ReadFile(kGolden + "expected.json"))) {
    for (const Json& event : expected_["events"]) {
      events_.push_back({.time_ns = Number(event["time_ns"]),
                         .address = Number(event["address"]),
                         .bytes = Number(event["bytes"]),
                         .extra = event["extra"].get<uint32_t>(),
                         .pool = event["pool"].get<uint16_t>(),
                         .kind = static_cast<EventKind>(event["kind"].get<int>()),
                         .device = expected_["metadata"]["device"].get<uint8_t>()});
    }
  }

  // Writes `trace` of expected.json below `directory`.
  void Write(const Json& trace, const std::string& directory) {
    const std::string path = directory + trace["file"].get<std::string>();
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::filesystem::remove(path);
    const std::string file_header = FileHeaderBytes(expected_["metadata"].dump());
    auto file = ChunkFile::Create(path, file_header);
    ASSERT_TRUE(file.ok()) << file.status();
    ChunkEncoder encoder(3);
    std::string chunk;
    uint64_t written = 0;
    for (const uint64_t count : trace["chunks"]) {
      const auto events = absl::MakeConstSpan(events_).subspan(written, count);
      ASSERT_TRUE(encoder
                      .Encode(events,
                              {.first_index = written,
                               .live_bytes = 1000 + static_cast<int64_t>(written),
                               .reserved_bytes = -1},
                              &chunk)
                      .ok());
      ASSERT_TRUE((*file)->Append(chunk).ok());
      written += count;
    }
    if (trace["ring"] == 0) {
      ASSERT_TRUE((*file)->Close(events_.size(), Number(trace["dropped_events"])).ok());
      return;
    }
    const std::string ring_path = std::filesystem::path(path).replace_extension(".ring");
    std::filesystem::remove(ring_path);
    auto ring = Ring::Create(ring_path, file_header, 64);
    ASSERT_TRUE(ring.ok()) << ring.status();
    for (const Event& event : events_) (*ring)->Push(event);
    (*ring)->Advance(written);
  }

  const Json expected_;
  std::vector<Event> events_;
};

TEST_F(GoldenTest, ReadsWhatWasWrittenLongAgo) {
  for (const Json& trace : expected_["traces"]) {
    SCOPED_TRACE(trace["file"]);
    auto reader = TraceReader::Open(kGolden + trace["file"].get<std::string>());
    ASSERT_TRUE(reader.ok()) << reader.status();
    const TraceMetadata& metadata = (*reader)->metadata();
    EXPECT_EQ(metadata.host, expected_["metadata"]["host"]);
    EXPECT_EQ(metadata.epoch_unix_ns, expected_["metadata"]["epoch_unix_ns"]);
    EXPECT_EQ(metadata.device, expected_["metadata"]["device"]);
    EXPECT_EQ(metadata.options_json, expected_["metadata"]["options"].dump());

    const ReadBack read = ReadAll(**reader);
    EXPECT_EQ(read.events, events_);
    EXPECT_EQ(read.summary.problem, "");
    EXPECT_EQ(read.summary.closed, trace["ring"] == 0);
    EXPECT_EQ(read.summary.chunks, trace["chunks"].size());
    EXPECT_EQ(read.summary.ring_events, trace["ring"]);
    EXPECT_EQ(read.summary.dropped_events, Number(trace["dropped_events"]));
    EXPECT_EQ(read.summary.unknown_events, trace["unknown_events"]);
  }
}

// What does not depend on zstd: the head, then each chunk's header and columns.
std::vector<std::string> Pieces(const std::string& bytes) {
  FileHeader file_header;
  std::memcpy(&file_header, bytes.data(), sizeof(file_header));
  size_t offset = sizeof(file_header) + file_header.metadata_bytes;
  std::vector<std::string> pieces = {bytes.substr(0, offset)};
  ChunkHeader header;
  while (offset + sizeof(header) <= bytes.size()) {
    std::memcpy(&header, bytes.data() + offset, sizeof(header));
    if (header.magic != kChunkMagic) break;
    std::string columns(header.columns_bytes, '\0');
    EXPECT_EQ(ZSTD_decompress(columns.data(), columns.size(),
                              bytes.data() + offset + sizeof(header), header.payload_bytes),
              columns.size());
    offset += sizeof(header) + header.payload_bytes;
    header.payload_bytes = 0;
    header.checksum = 0;
    pieces.emplace_back(reinterpret_cast<const char*>(&header), sizeof(header));
    pieces.push_back(columns);
  }
  return pieces;
}

TEST_F(GoldenTest, WritesTheSameBytesAsLongAgo) {
  TemporaryDirectory directory;
  const bool update = std::getenv("OFFCUT_UPDATE_GOLDEN") != nullptr;
  const std::string out = update ? kGolden : directory.File("");
  for (const Json& trace : expected_["traces"]) {
    SCOPED_TRACE(trace["file"]);
    ASSERT_NO_FATAL_FAILURE(Write(trace, out));
    const std::string file = trace["file"];
    const std::string written = ReadFile(out + file);
    const std::string golden = ReadFile(kGolden + file);
    EXPECT_EQ(Pieces(written), Pieces(golden));
    EXPECT_TRUE(written == golden || ZSTD_versionNumber() != kGoldenZstdVersion);
    if (trace["ring"] == 0) continue;
    const std::string ring = std::filesystem::path(file).replace_extension(".ring");
    EXPECT_TRUE(ReadFile(out + ring) == ReadFile(kGolden + ring)) << ring;
  }
}

}  // namespace
}  // namespace offcut
