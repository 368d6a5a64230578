#include "allocator/trace/recorder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class RecorderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Recorder> Start(const RecorderOptions& options = {}) {
    auto recorder = Recorder::Start(directory_.path(), R"([{"name":"remap"}])", clock_, options);
    EXPECT_TRUE(recorder.ok()) << recorder.status();
    return *std::move(recorder);
  }

  // Runs `body` in a forked child and returns its exit status.
  template <typename Body>
  static int InChild(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  TemporaryDirectory directory_;
  std::atomic<uint64_t> now_ns_{0};
  const Clock clock_{&now_ns_};
};

EventSink* SinkOf(Recorder& recorder, DeviceIndex device = 0) {
  auto sink = recorder.SinkFor(device, "H200", 141 * kGiB);
  EXPECT_TRUE(sink.ok()) << sink.status();
  return *sink;
}

void Emit(EventSink* sink, uint64_t first, uint64_t end, uint8_t device = 0) {
  for (uint64_t i = first; i < end; ++i) sink->OnEvent(EventNumber(i, device));
}

TEST_F(RecorderTest, AClosedRecordingReadsBackWhole) {
  std::string file;
  {
    auto recorder = Start({.ring_events = 1 << 12, .chunk_events = 1000});
    file = recorder->directory() + "/device0.offcut";
    EventSink* const sink = SinkOf(*recorder);
    for (uint64_t i = 0; i < 20000; i += 2000) {
      Emit(sink, i, i + 2000);
      recorder->Flush();
    }
  }
  const ReadBack read = ReadAll(file);
  EXPECT_EQ(read.events, EventNumbers(0, 20000));
  EXPECT_TRUE(read.summary.closed);
  EXPECT_EQ(read.summary.problem, "");
  EXPECT_EQ(read.summary.ring_events, 0);
  EXPECT_GE(read.summary.chunks, 20);
  EXPECT_EQ(read.summary.dropped_events, 0);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).replace_extension(".ring")));
}

TEST_F(RecorderTest, DirectoryAndFilesArePrivateAndNamedAfterStartHostAndProcess) {
  auto recorder = Start();
  SinkOf(*recorder, 3);
  const std::string name = std::filesystem::path(recorder->directory()).filename();
  EXPECT_THAT(name, MatchesRegex("20[0-9]{6}T[0-9]{6}\\.[0-9]{3}Z-.+-[0-9]+"));
  EXPECT_THAT(name, EndsWith("-" + std::to_string(getpid())));
  struct stat status;
  ASSERT_EQ(stat(recorder->directory().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700);
  for (const char* file : {"/device3.offcut", "/device3.ring"}) {
    ASSERT_EQ(stat((recorder->directory() + file).c_str(), &status), 0) << file;
    EXPECT_EQ(status.st_mode & 0777, 0600) << file;
  }
}

TEST_F(RecorderTest, HeadTellsWhatWasRecordedWhere) {
  auto recorder = Start();
  SinkOf(*recorder, 2);
  auto reader = TraceReader::Open(recorder->directory() + "/device2.offcut");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const TraceMetadata& metadata = (*reader)->metadata();
  EXPECT_EQ(metadata.format_version, 1);
  EXPECT_EQ(metadata.pid, getpid());
  EXPECT_EQ(metadata.device, 2);
  EXPECT_EQ(metadata.device_name, "H200");
  EXPECT_EQ(metadata.device_total_bytes, 141 * kGiB);
  EXPECT_EQ(metadata.options_json, R"([{"name":"remap"}])");
  EXPECT_THAT(metadata.command_line, HasSubstr("recorder_test"));
  EXPECT_NE(metadata.offcut_version, "");
  EXPECT_NE(metadata.host, "");
}

TEST_F(RecorderTest, OneSinkForEachDevice) {
  std::string path;
  {
    auto recorder = Start();
    path = recorder->directory();
    EventSink* const first = SinkOf(*recorder, 0);
    EventSink* const second = SinkOf(*recorder, 1);
    EXPECT_NE(first, second);
    EXPECT_EQ(SinkOf(*recorder, 0), first);
    Emit(first, 0, 10, 0);
    Emit(second, 10, 30, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(recorder->SinkFor(-1, "", 0).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(recorder->SinkFor(256, "", 0).status()));
  }
  auto files = FindTraceFiles(directory_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*files, (std::vector<std::string>{path + "/device0.offcut", path + "/device1.offcut"}));
  EXPECT_EQ(ReadAll(files->at(0)).events, EventNumbers(0, 10));
  const ReadBack second = ReadAll(files->at(1));
  ASSERT_EQ(second.events.size(), 20);
  EXPECT_EQ(second.events[0], EventNumber(10, 1));
}

TEST_F(RecorderTest, ALiveRecordingReadsFromChunksAndRing) {
  auto recorder = Start();
  EventSink* const sink = SinkOf(*recorder);
  const std::string file = recorder->directory() + "/device0.offcut";
  Emit(sink, 0, 100);
  ReadBack read = ReadAll(file);
  EXPECT_EQ(read.events, EventNumbers(0, 100));
  EXPECT_EQ(read.summary.ring_events, 100);
  EXPECT_EQ(read.summary.problem, "");
  EXPECT_FALSE(read.summary.closed);

  recorder->Flush();
  Emit(sink, 100, 150);
  read = ReadAll(file);
  EXPECT_EQ(read.events, EventNumbers(0, 150));
  EXPECT_EQ(read.summary.ring_events, 50);
  EXPECT_EQ(read.summary.chunks, 1);
}

TEST_F(RecorderTest, ReadingBesideTheWriterSeesAPrefixWithoutGaps) {
  auto recorder = Start({.ring_events = 1 << 10, .chunk_events = 100});
  EventSink* const sink = SinkOf(*recorder);
  auto reader = TraceReader::Open(recorder->directory() + "/device0.offcut");
  ASSERT_TRUE(reader.ok()) << reader.status();
  constexpr uint64_t kEvents = 30000;
  std::atomic<uint64_t> emitted{0};
  std::thread producer([&] {
    for (uint64_t i = 0; i < kEvents; ++i) {
      sink->OnEvent(EventNumber(i));
      emitted = i + 1;
      if (i % 512 == 511) recorder->Flush();
    }
  });
  for (bool last = false; !last;) {
    const uint64_t at_least = emitted;
    last = at_least == kEvents;
    const ReadBack read = ReadAll(**reader);
    EXPECT_EQ(read.summary.problem, "");
    EXPECT_GE(read.events.size(), at_least);
    EXPECT_EQ(read.events, EventNumbers(0, read.events.size()));
  }
  producer.join();
}

TEST_F(RecorderTest, FlushMovesEverythingIntoChunks) {
  auto recorder = Start();
  EventSink* const sink = SinkOf(*recorder);
  for (uint64_t i = 0; i < 10; ++i) {
    Emit(sink, i * 7, i * 7 + 7);
    recorder->Flush();
    const ReadBack read = ReadAll(recorder->directory() + "/device0.offcut");
    EXPECT_EQ(read.summary.ring_events, 0);
    EXPECT_EQ(read.summary.events, i * 7 + 7);
  }
  recorder->Flush();
}

TEST_F(RecorderTest, ManyThreadsMayFlush) {
  auto recorder = Start();
  SinkOf(*recorder);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) recorder->Flush();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RecorderTest, ABurstBeyondTheRingIsCountedAndToldInPlace) {
  std::string file;
  uint64_t emitted = 0;
  {
    auto recorder = Start({.ring_events = 16, .chunk_events = 16});
    file = recorder->directory() + "/device0.offcut";
    EventSink* const sink = SinkOf(*recorder);
    for (; emitted < 5000; ++emitted) sink->OnEvent(EventNumber(emitted));
  }
  const ReadBack read = ReadAll(file);
  EXPECT_EQ(read.summary.problem, "");
  EXPECT_TRUE(read.summary.closed);
  EXPECT_GT(read.summary.dropped_events, 0);
  // Every event is there, or counted by the record that stands in its place.
  uint64_t expected = 0;
  for (const Event& event : read.events) {
    if (event.kind == EventKind::kEventsDropped) {
      expected += event.bytes;
    } else {
      ASSERT_EQ(event, EventNumber(expected++));
    }
  }
  EXPECT_EQ(expected, emitted);
}

TEST_F(RecorderTest, AForkedChildLeavesTheRecordingAlone) {
  std::string file;
  {
    auto recorder = Start();
    file = recorder->directory() + "/device0.offcut";
    EventSink* const sink = SinkOf(*recorder);
    Emit(sink, 0, 10);
    EXPECT_EQ(InChild([&] {
                recorder->DetachInChild();
                Emit(sink, 500, 600);
                recorder->Flush();
                EXPECT_TRUE(absl::IsFailedPrecondition(recorder->SinkFor(1, "", 0).status()));
                recorder.reset();  // as at exit: neither joins, nor closes, nor removes
              }),
              0);
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(file).replace_extension(".ring")));
    Emit(sink, 10, 20);
  }
  const ReadBack read = ReadAll(file);
  EXPECT_EQ(read.events, EventNumbers(0, 20));
  EXPECT_TRUE(read.summary.closed);
}

TEST_F(RecorderTest, AChildMayRecordOnItsOwn) {
  auto recorder = Start();
  Emit(SinkOf(*recorder), 0, 10);
  EXPECT_EQ(InChild([&] {
              recorder->DetachInChild();
              auto own = Start();
              Emit(SinkOf(*own), 100, 110);
              const std::string file = own->directory() + "/device0.offcut";
              own.reset();
              EXPECT_EQ(ReadAll(file).events, EventNumbers(100, 110));
            }),
            0);
  EXPECT_EQ(ReadAll(recorder->directory() + "/device0.offcut").events, EventNumbers(0, 10));
}

TEST_F(RecorderTest, TwoRecordersOfOneMomentHaveDirectoriesOfTheirOwn) {
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    recorders.push_back(Start());
    names.push_back(recorders.back()->directory());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST_F(RecorderTest, MissingParentsAreCreatedPrivately) {
  const std::string deep = directory_.File("a/b/c");
  const mode_t before = umask(0);
  auto recorder = Recorder::Start(deep + "//", "{}", clock_);
  umask(before);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  EXPECT_THAT((*recorder)->directory(), StartsWith(deep + "/20"));
  struct stat status;
  ASSERT_EQ(stat(directory_.File("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700);
}

TEST_F(RecorderTest, APlaceThatCannotBeWrittenIsAnErrorWithPathAndRemedy) {
  WriteFile(directory_.File("file"), "");
  for (const std::string& parent :
       {directory_.File("file"), directory_.File("file/below"), std::string("/proc/offcut")}) {
    const auto recorder = Recorder::Start(parent, "{}", clock_);
    ASSERT_FALSE(recorder.ok()) << parent;
    EXPECT_THAT(std::string(recorder.status().message()),
                AllOf(HasSubstr(parent), HasSubstr("record into a directory that you may write")));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Recorder::Start("", "{}", clock_).status()));
}

TEST_F(RecorderTest, OptionsOutOfRangeAreNamedWithTheRightOnes) {
  const auto error = [this](const RecorderOptions& options) {
    return std::string(
        Recorder::Start(directory_.path(), "{}", clock_, options).status().message());
  };
  EXPECT_THAT(error({.ring_events = 1000}), HasSubstr("ring_events is 1000; right is a power"));
  EXPECT_THAT(error({.chunk_events = 0}), HasSubstr("chunk_events is 0"));
  EXPECT_THAT(error({.chunk_events = 1 << 17}), HasSubstr("chunk_events is 131072"));
  EXPECT_THAT(error({.compression_level = 20}), HasSubstr("compression_level is 20"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "checked before anything is made";
}

TEST_F(RecorderTest, AMissingDirectoryAfterTheStartIsAnErrorOfTheSink) {
  auto recorder = Start();
  std::filesystem::remove_all(recorder->directory());
  const auto sink = recorder->SinkFor(0, "H200", 0);
  EXPECT_THAT(std::string(sink.status().message()), HasSubstr(recorder->directory()));
}

TEST_F(RecorderTest, ChunksTellLiveAndReservedAtTheirStart) {
  std::string file;
  {
    auto recorder = Start();
    file = recorder->directory() + "/device0.offcut";
    EventSink* const sink = SinkOf(*recorder);
    sink->OnEvent({.bytes = 2 * kMiB, .extra = 1, .kind = EventKind::kGranuleCreated});
    sink->OnEvent({.address = 512, .bytes = 1000, .extra = 2, .kind = EventKind::kBlockAllocated});
    recorder->Flush();
    sink->OnEvent({.address = 512, .bytes = 1000, .extra = 2, .kind = EventKind::kBlockFreed});
  }
  auto reader = TraceReader::Open(file);
  ASSERT_TRUE(reader.ok());
  const auto chunks = (*reader)->Chunks();
  ASSERT_TRUE(chunks.ok() && chunks->size() == 2) << chunks.status();
  EXPECT_EQ(chunks->at(0).live_bytes, 0);
  EXPECT_EQ(chunks->at(1).live_bytes, 1000);
  EXPECT_EQ(chunks->at(1).reserved_bytes, 2 * kMiB);
}

}  // namespace
}  // namespace offcut
