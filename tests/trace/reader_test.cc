#include "allocator/trace/reader.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "allocator/trace/chunk.h"
#include "allocator/trace/chunk_file.h"
#include "allocator/trace/format.h"
#include "allocator/trace/metadata.h"
#include "allocator/trace/ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Makes files as a recorder would have left them, by the pieces that it is made of.
class ReaderTest : public ::testing::Test {
 protected:
  // Events 0 to `events`, in chunks of `per_chunk`.
  void WriteChunks(uint64_t events, uint64_t per_chunk) {
    auto file = ChunkFile::Create(path_, file_header_);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    ends_.push_back(std::filesystem::file_size(path_));
    ChunkEncoder encoder(3);
    std::string chunk;
    for (uint64_t i = 0; i < events; i += per_chunk) {
      ASSERT_TRUE(encoder.Encode(EventNumbers(i, i + per_chunk), {.first_index = i}, &chunk).ok());
      ASSERT_TRUE(file_->Append(chunk).ok());
      ends_.push_back(std::filesystem::file_size(path_));
    }
  }

  void Close(uint64_t events) { ASSERT_TRUE(file_->Close(events, 0).ok()); }

  // A ring whose head and tail are as given.
  void WriteRing(uint64_t tail, uint64_t head) {
    auto ring = Ring::Create(ring_path_, file_header_, 1024);
    ASSERT_TRUE(ring.ok()) << ring.status();
    for (uint64_t i = 0; i < head; ++i) {
      (*ring)->Push(EventNumber(i));
      if (i < tail) (*ring)->Advance(i + 1);
    }
  }

  void FlipByte(uint64_t offset) {
    std::string bytes = ReadFile(path_);
    bytes[offset] ^= 0x40;
    WriteFile(path_, bytes);
  }

  absl::Status OpenError(absl::string_view bytes) {
    WriteFile(path_, bytes);
    return TraceReader::Open(path_).status();
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("device0.offcut");
  const std::string ring_path_ = directory_.File("device0.ring");
  const std::string file_header_ =
      FileHeaderBytes(MetadataToJson({.format_version = kFormatVersion, .host = "h"}));
  std::unique_ptr<ChunkFile> file_;
  std::vector<uint64_t> ends_;  // of the head and of each chunk
};

TEST_F(ReaderTest, ReadsAgainWhatHasComeSince) {
  WriteChunks(100, 50);
  WriteRing(100, 120);
  auto reader = TraceReader::Open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ReadAll(**reader).events, EventNumbers(0, 120));
  std::filesystem::remove(ring_path_);
  WriteRing(100, 130);
  EXPECT_EQ(ReadAll(**reader).events, EventNumbers(0, 130));
}

TEST_F(ReaderTest, EventsInBothChunkAndRingAreDeliveredOnce) {
  WriteChunks(100, 50);
  WriteRing(/*tail=*/50, /*head=*/120);
  const ReadBack read = ReadAll(path_);
  EXPECT_EQ(read.events, EventNumbers(0, 120));
  EXPECT_EQ(read.summary.ring_events, 20);
  EXPECT_EQ(read.summary.problem, "");
}

TEST_F(ReaderTest, ATornLastChunkIsTakenFromTheRing) {
  WriteChunks(100, 50);
  WriteRing(/*tail=*/50, /*head=*/120);
  for (uint64_t size = ends_[1]; size < ends_[2]; ++size) {
    std::filesystem::resize_file(path_, size);
    const ReadBack read = ReadAll(path_);
    ASSERT_EQ(read.events, EventNumbers(0, 120)) << size;
    ASSERT_EQ(read.summary.problem, "") << size;
  }
}

TEST_F(ReaderTest, AFileCutAnywhereGivesAPrefixAndSaysSo) {
  WriteChunks(60, 20);
  Close(60);
  const std::string whole = ReadFile(path_);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path_, whole.substr(0, size));
    auto reader = TraceReader::Open(path_);
    if (size < file_header_.size()) {
      ASSERT_TRUE(absl::IsInvalidArgument(reader.status())) << size;
      continue;
    }
    ASSERT_TRUE(reader.ok()) << size;
    const ReadBack read = ReadAll(**reader);
    ASSERT_EQ(read.events, EventNumbers(0, read.events.size())) << size;
    ASSERT_EQ(read.events.size() % 20, 0) << size;
    ASSERT_THAT(read.summary.problem, HasSubstr("device0.ring is missing")) << size;
    ASSERT_FALSE(read.summary.closed);
  }
}

TEST_F(ReaderTest, AFlippedBitIsNoticedWhereverItIs) {
  WriteChunks(60, 20);
  Close(60);
  const std::string whole = ReadFile(path_);
  std::mt19937_64 random(77);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    const uint64_t bit = random() % (whole.size() * 8);
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteFile(path_, bytes);
    auto reader = TraceReader::Open(path_);
    if (!reader.ok()) continue;
    const ReadBack read = ReadAll(**reader);
    ASSERT_NE(read.summary.problem, "") << "bit " << bit;
    for (const Event& event : read.events) ASSERT_EQ(event, EventNumber(event.bytes));
  }
}

TEST_F(ReaderTest, ACorruptMiddleIsPassedOverAndItsEventsAreNamed) {
  WriteChunks(100, 20);
  Close(100);
  FlipByte(ends_[2] + sizeof(ChunkHeader) + 3);
  const ReadBack read = ReadAll(path_);
  std::vector<Event> expected = EventNumbers(0, 40);
  const std::vector<Event> rest = EventNumbers(60, 100);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(read.events, expected);
  EXPECT_THAT(read.summary.problem,
              AllOf(HasSubstr(path_), HasSubstr("events 40 to 59 are missing"),
                    HasSubstr("at offset " + std::to_string(ends_[2])), HasSubstr("checksum")));
  EXPECT_TRUE(read.summary.closed);
}

TEST_F(ReaderTest, SeveralGapsAreCounted) {
  WriteChunks(100, 20);
  Close(100);
  FlipByte(ends_[1]);
  FlipByte(ends_[3]);
  FlipByte(ends_[4] + 90);
  const ReadBack read = ReadAll(path_);
  EXPECT_EQ(read.events.size(), 40);
  EXPECT_THAT(read.summary.problem,
              AllOf(HasSubstr("events 20 to 39"), HasSubstr("(and 1 more problems)")));
}

TEST_F(ReaderTest, ALostLastChunkOfAClosedFileIsNamed) {
  WriteChunks(40, 20);
  Close(40);
  FlipByte(ends_[1] + 100);
  EXPECT_THAT(ReadAll(path_).summary.problem, HasSubstr("events 20 to 39 are missing"));
}

TEST_F(ReaderTest, EventsThatLeftTheRingIntoADamagedChunkAreNamed) {
  WriteChunks(100, 50);
  WriteRing(/*tail=*/100, /*head=*/110);
  FlipByte(ends_[1] + 100);
  const ReadBack read = ReadAll(path_);
  EXPECT_EQ(read.events.size(), 60);
  EXPECT_EQ(read.events.back(), EventNumber(109));
  EXPECT_THAT(read.summary.problem, HasSubstr("events 50 to 99 are missing"));
}

TEST_F(ReaderTest, AChunkRepeatedAfterAFailureIsDeliveredOnce) {
  WriteChunks(40, 20);
  const std::string bytes = ReadFile(path_);
  WriteFile(path_, bytes + bytes.substr(ends_[1]));
  WriteRing(40, 40);
  const ReadBack read = ReadAll(path_);
  EXPECT_EQ(read.events, EventNumbers(0, 40));
  EXPECT_EQ(read.summary.problem, "");
}

TEST_F(ReaderTest, AHostileRingIsAProblemAndNotACrash) {
  WriteChunks(40, 20);
  WriteRing(40, 60);
  const std::string good = ReadFile(ring_path_);
  const auto with = [&good](size_t offset, uint64_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  };
  for (const std::string& ring :
       {with(offsetof(RingHeader, head), UINT64_MAX), with(offsetof(RingHeader, head), 10000),
        with(offsetof(RingHeader, head), 30), with(offsetof(RingHeader, tail), 61),
        with(offsetof(RingHeader, capacity_events), 1 << 30),
        with(offsetof(RingHeader, slots_offset), 0), std::string("short"), std::string()}) {
    WriteFile(ring_path_, ring);
    const ReadBack read = ReadAll(path_);
    EXPECT_EQ(read.events, EventNumbers(0, 40));
    EXPECT_THAT(read.summary.problem, HasSubstr("device0.ring"));
  }
}

TEST_F(ReaderTest, FlippedBitsInTheRingDoNoHarm) {
  WriteChunks(40, 20);
  WriteRing(40, 60);
  const std::string good = ReadFile(ring_path_);
  std::mt19937_64 random(78);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    bytes[random() % 300] ^= static_cast<char>(1 << random() % 8);
    WriteFile(ring_path_, bytes);
    // Slots have no checksum, and head and tail may move: only harm is ruled out.
    EXPECT_LE(ReadAll(path_).events.size(), 40 + 1024);
  }
}

TEST_F(ReaderTest, UnknownKindsArePassedThroughAndCounted) {
  WriteChunks(20, 20);
  std::vector<Event> events = EventNumbers(20, 24);
  events[1].kind = static_cast<EventKind>(200);
  events[3].kind = static_cast<EventKind>(0);
  ChunkEncoder encoder(3);
  std::string chunk;
  ASSERT_TRUE(encoder.Encode(events, {.first_index = 20}, &chunk).ok());
  ASSERT_TRUE(file_->Append(chunk).ok());
  Close(24);
  const ReadBack read = ReadAll(path_);
  EXPECT_EQ(read.summary.unknown_events, 2);
  EXPECT_EQ(read.events[21], events[1]);
  EXPECT_EQ(read.summary.problem, "");
}

TEST_F(ReaderTest, ChunksComeFromTheIndexOrFromTheFileAlike) {
  WriteChunks(100, 20);
  auto reader = TraceReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  const auto scanned = (*reader)->Chunks();
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  ASSERT_EQ(scanned->size(), 5);
  EXPECT_EQ(scanned->at(2).offset, ends_[2]);
  EXPECT_EQ(scanned->at(2).first_index, 40);
  EXPECT_EQ(scanned->at(2).first_time_ns, EventNumber(40).time_ns);
  Close(100);
  EXPECT_EQ(*(*reader)->Chunks(), *scanned);
}

TEST_F(ReaderTest, ANewerVersionIsRefusedWithBothVersionsAndTheRemedy) {
  std::string bytes = file_header_;
  bytes[8] = 2;
  EXPECT_THAT(OpenError(bytes).message(),
              AllOf(HasSubstr(path_), HasSubstr("format version 2"), HasSubstr("reads version 1"),
                    HasSubstr("pip install --upgrade offcut")));
}

TEST_F(ReaderTest, WhatIsNoTraceIsRefusedInWords) {
  EXPECT_THAT(OpenError("").message(), HasSubstr("is empty"));
  EXPECT_THAT(OpenError("time_us,action,address,size\n").message(), HasSubstr("not a trace"));
  std::string bytes = file_header_;
  bytes[bytes.size() - 1] ^= 1;
  EXPECT_THAT(OpenError(bytes).message(), HasSubstr("damaged"));
  bytes = file_header_;
  bytes[15] = 0x7F;
  EXPECT_THAT(OpenError(bytes).message(), HasSubstr("damaged"));
  EXPECT_THAT(OpenError(FileHeaderBytes("[1]")).message(), HasSubstr("no JSON object"));
  EXPECT_TRUE(absl::IsNotFound(TraceReader::Open(directory_.File("none")).status()));
  EXPECT_THAT(TraceReader::Open(directory_.path()).status().message(),
              HasSubstr("not a regular file"));
}

TEST_F(ReaderTest, FindsFilesByFileByProcessAndByParent) {
  EXPECT_TRUE(absl::IsNotFound(FindTraceFiles(directory_.File("none")).status()));
  EXPECT_THAT(FindTraceFiles(directory_.path()).status().message(), HasSubstr("OFFCUT_RECORD"));
  std::filesystem::create_directory(directory_.File("run-b"));
  std::filesystem::create_directory(directory_.File("run-a"));
  const std::string b = directory_.File("run-b/device0.offcut");
  const std::string a = directory_.File("run-a/device1.offcut");
  for (const std::string& file : {a, b, directory_.File("run-a/device1.ring")})
    WriteFile(file, "x");
  EXPECT_EQ(*FindTraceFiles(a), std::vector<std::string>{a});
  EXPECT_EQ(*FindTraceFiles(directory_.File("run-b")), std::vector<std::string>{b});
  EXPECT_EQ(*FindTraceFiles(directory_.path()), (std::vector<std::string>{a, b}));
}

TEST_F(ReaderTest, AFileOfFalseChunksIsGivenUpSoon) {
  ChunkHeader header;
  header.event_count = kMaxChunkEvents;
  header.columns_bytes = 1 << 21;
  header.payload_bytes = 1 << 21;
  std::string bytes = file_header_;
  for (int i = 0; i < 40000; ++i) {
    bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  WriteFile(path_, bytes);
  EXPECT_NE(ReadAll(path_).summary.problem, "");
}

}  // namespace
}  // namespace offcut
