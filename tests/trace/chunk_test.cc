#include "allocator/trace/chunk.h"

#include <zstd.h>

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

std::string Chunk(absl::Span<const Event> events, uint64_t first_index = 0) {
  ChunkEncoder encoder(3);
  std::string chunk;
  EXPECT_EQ(encoder.Encode(events, {.first_index = first_index}, &chunk), absl::OkStatus());
  return chunk;
}

ChunkHeader HeaderOf(const std::string& chunk) {
  ChunkHeader header;
  std::memcpy(&header, chunk.data(), sizeof(header));
  return header;
}

absl::Span<const uint8_t> PayloadOf(const std::string& chunk) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(chunk.data()), chunk.size())
      .subspan(sizeof(ChunkHeader));
}

TEST(ChunkTest, HeaderTellsRangeTimesAndLevels) {
  ChunkEncoder encoder(3);
  std::string chunk;
  const std::vector<Event> events = EventNumbers(100, 300);
  ASSERT_TRUE(
      encoder.Encode(events, {.first_index = 100, .live_bytes = -5, .reserved_bytes = 7}, &chunk)
          .ok());
  const ChunkHeader header = HeaderOf(chunk);
  EXPECT_EQ(CheckChunkHeader(header), absl::OkStatus());
  EXPECT_EQ(header.first_index, 100);
  EXPECT_EQ(header.event_count, 200);
  EXPECT_EQ(header.first_time_ns, events.front().time_ns);
  EXPECT_EQ(header.last_time_ns, events.back().time_ns);
  EXPECT_EQ(header.live_bytes, -5);
  EXPECT_EQ(header.reserved_bytes, 7);
  EXPECT_EQ(header.payload_bytes, chunk.size() - sizeof(header));
}

TEST(ChunkTest, LargestChunkOfTheWorstEventsReadsBack) {
  const std::vector<Event> events = RandomEvents(3, kMaxChunkEvents, 2);
  const std::string chunk = Chunk(events);
  ASSERT_EQ(CheckChunkHeader(HeaderOf(chunk)), absl::OkStatus());
  ChunkDecoder decoder;
  std::vector<Event> back;
  ASSERT_EQ(decoder.Decode(HeaderOf(chunk), PayloadOf(chunk), 2, &back), absl::OkStatus());
  EXPECT_EQ(back, events);
}

TEST(ChunkTest, PayloadIsOneStandardFrameThatSaysItsSize) {
  const std::string chunk = Chunk(EventNumbers(0, 1000));
  const auto payload = PayloadOf(chunk);
  EXPECT_EQ(ZSTD_findFrameCompressedSize(payload.data(), payload.size()), payload.size());
  EXPECT_EQ(ZSTD_getFrameContentSize(payload.data(), payload.size()),
            HeaderOf(chunk).columns_bytes);
}

TEST(ChunkTest, EveryFlippedBitIsNoticed) {
  const std::string good = Chunk(EventNumbers(0, 50));
  ChunkDecoder decoder;
  std::vector<Event> events;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const ChunkHeader header = HeaderOf(bad);
    const bool accepted =
        CheckChunkHeader(header).ok() && decoder.Decode(header, PayloadOf(bad), 0, &events).ok();
    EXPECT_FALSE(accepted) << "bit " << bit;
  }
}

TEST(ChunkTest, HeaderSizesAreBounded) {
  const ChunkHeader good = HeaderOf(Chunk(EventNumbers(0, 5)));
  ChunkHeader header = good;
  header.event_count = kMaxChunkEvents + 1;
  EXPECT_THAT(CheckChunkHeader(header).message(), HasSubstr("65537 events"));
  header = good;
  header.event_count = 0;
  EXPECT_FALSE(CheckChunkHeader(header).ok());
  header = good;
  header.payload_bytes = 0xFFFFFFFF;
  EXPECT_THAT(CheckChunkHeader(header).message(), HasSubstr("4294967295 bytes"));
  header = good;
  header.columns_bytes = 0xFFFFFFFF;
  EXPECT_FALSE(CheckChunkHeader(header).ok());
  header = good;
  header.first_index = UINT64_MAX;
  EXPECT_FALSE(CheckChunkHeader(header).ok());
  header = good;
  header.flags = 4;
  EXPECT_THAT(CheckChunkHeader(header).message(), HasSubstr("flags 4"));
}

}  // namespace
}  // namespace offcut
