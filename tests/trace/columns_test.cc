#include "allocator/trace/columns.h"

#include <cstring>
#include <random>

#include "allocator/trace/varint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> Joined(const ColumnEncoder& encoder) {
  std::vector<uint8_t> bytes(kColumnLengthsBytes);
  for (size_t i = 0; i < kColumnCount; ++i) {
    const auto column = encoder.column(static_cast<Column>(i));
    const uint32_t length = static_cast<uint32_t>(column.size());
    std::memcpy(bytes.data() + i * 4, &length, 4);
    bytes.insert(bytes.end(), column.begin(), column.end());
  }
  return bytes;
}

std::vector<uint8_t> Encoded(absl::Span<const Event> events) {
  ColumnEncoder encoder;
  encoder.Encode(events);
  return Joined(encoder);
}

TEST(VarintTest, EveryNumberOfBytesReadsBack) {
  for (int bits = 0; bits <= 64; ++bits) {
    for (const uint64_t value : {bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1,
                                 bits == 64 ? UINT64_MAX - 1 : uint64_t{1} << bits}) {
      uint8_t bytes[kMaxVarintBytes];
      const uint8_t* const end = WriteVarint(bytes, value);
      uint64_t back = 0;
      EXPECT_EQ(ReadVarint(bytes, end, &back), end);
      EXPECT_EQ(back, value);
      EXPECT_EQ(ReadVarint(bytes, end - 1, &back), nullptr) << "cut short: " << value;
    }
  }
}

TEST(VarintTest, RefusesWhatExceeds64Bits) {
  const uint8_t too_large[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02};
  const uint8_t too_long[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
  uint64_t value = 0;
  EXPECT_EQ(ReadVarint(std::begin(too_large), std::end(too_large), &value), nullptr);
  EXPECT_EQ(ReadVarint(std::begin(too_long), std::end(too_long), &value), nullptr);
}

TEST(VarintTest, ZigZagMakesSmallNegativesSmall) {
  EXPECT_EQ(ZigZag(0), 0);
  EXPECT_EQ(ZigZag(static_cast<uint64_t>(-1)), 1);
  EXPECT_EQ(ZigZag(1), 2);
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX, (uint64_t{1} << 63) - 1}) {
    EXPECT_EQ(UnZigZag(ZigZag(value)), value);
  }
}

TEST(ColumnsTest, AnyEventsReadBack) {
  const uint64_t first_seed = std::random_device{}();
  ColumnEncoder encoder;
  std::vector<Event> back;
  for (uint64_t seed = first_seed; seed < first_seed + 200; ++seed) {
    const std::vector<Event> events = RandomEvents(seed, 1 + seed % 300, /*device=*/7);
    encoder.Encode(events);
    ASSERT_EQ(DecodeColumns(Joined(encoder), events.size(), 7, &back), absl::OkStatus());
    ASSERT_EQ(back, events) << "seed " << seed;
  }
}

TEST(ColumnsTest, AFreeTakesAddressBytesAndPoolFromItsAllocation) {
  const Event allocated = {.time_ns = 5,
                           .address = 0x7F1234567800,
                           .bytes = 1000000,
                           .extra = 1954,
                           .pool = 3,
                           .kind = EventKind::kBlockAllocated};
  Event freed = allocated;
  freed.kind = EventKind::kBlockFreed;
  ColumnEncoder encoder;
  encoder.Encode({allocated});
  const size_t alone = Joined(encoder).size();
  encoder.Encode({allocated, freed});
  // Kind, two bytes of time, distance.
  EXPECT_EQ(Joined(encoder).size(), alone + 4);
}

TEST(ColumnsTest, ADistanceBeyondTheFirstAllocationIsRefused) {
  Event freed = EventNumber(1);
  std::vector<uint8_t> bytes = Encoded({freed});
  bytes[kColumnLengthsBytes + 3] = 1;  // kind, low time, time, distance
  std::vector<Event> events;
  EXPECT_THAT(DecodeColumns(bytes, 1, 0, &events).message(), HasSubstr("reference"));
}

TEST(ColumnsTest, AnotherCountOrLengthIsRefused) {
  const std::vector<Event> sent = EventNumbers(0, 20);
  std::vector<uint8_t> bytes = Encoded(sent);
  std::vector<Event> events;
  EXPECT_THAT(DecodeColumns(bytes, 19, 0, &events).message(), HasSubstr("goes on after"));
  EXPECT_THAT(DecodeColumns(bytes, 21, 0, &events).message(), HasSubstr("event 20 of 21"));
  bytes.push_back(0);
  EXPECT_THAT(DecodeColumns(bytes, 20, 0, &events).message(), HasSubstr("1 bytes follow"));
  bytes[3] = 0xFF;
  EXPECT_THAT(DecodeColumns(bytes, 20, 0, &events).message(), HasSubstr("column kind claims"));
  EXPECT_THAT(DecodeColumns({}, 0, 0, &events).message(), HasSubstr("too few"));
}

TEST(ColumnsTest, ArbitraryBytesNeverDoHarm) {
  std::mt19937_64 random(20260131);
  const std::vector<Event> sent = RandomEvents(1, 50);
  const std::vector<uint8_t> good = Encoded(sent);
  std::vector<Event> events;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t i = 0; i <= random() % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    }
    // Any outcome, but for undefined behaviour, is right: checksums are a chunk's business.
    const bool accepted = DecodeColumns(bytes, sent.size(), 0, &events).ok();
    EXPECT_TRUE(!accepted || events.size() == sent.size());
  }
}

}  // namespace
}  // namespace offcut
