// The recording on a disk that is full: the program goes on, losses are counted, room is used
// again.

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "allocator/trace/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr RecorderOptions kSmall = {.ring_events = 1 << 10, .chunk_events = 256};

// The process's limit on the size of a file: a full disk that every machine has. Beyond it a write
// is cut short, and then fails, with a signal that ends the program unless the recorder prevents
// it.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

class DiskFullTest : public ::testing::Test {
 protected:
  absl::StatusOr<EventSink*> Start(const std::string& parent, const RecorderOptions& options) {
    auto recorder = Recorder::Start(parent, "{}", clock_, options);
    if (!recorder.ok()) return recorder.status();
    recorder_ = *std::move(recorder);
    file_ = recorder_->directory() + "/device0.offcut";
    return recorder_->SinkFor(0, "simulated", 0);
  }

  void Emit(EventSink* sink, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) sink->OnEvent(EventNumber(emitted_++));
  }

  // Every event emitted is there in order, or counted by the record in its place. Returns how many
  // were dropped.
  uint64_t ExpectComplete(const ReadBack& read) {
    uint64_t expected = 0, dropped = 0;
    for (const Event& event : read.events) {
      if (event.kind == EventKind::kEventsDropped) {
        expected += event.bytes;
        dropped += event.bytes;
      } else {
        EXPECT_EQ(event, EventNumber(expected++));
      }
    }
    EXPECT_EQ(expected, emitted_);
    EXPECT_EQ(read.summary.dropped_events, dropped);
    EXPECT_EQ(read.summary.problem, "");
    return dropped;
  }

  TemporaryDirectory directory_;
  std::atomic<uint64_t> now_ns_{0};
  const Clock clock_{&now_ns_};
  std::unique_ptr<Recorder> recorder_;
  std::string file_;
  uint64_t emitted_ = 0;
};

TEST_F(DiskFullTest, TheProgramGoesOnAndTheRecordingResumesWhenThereIsRoom) {
  auto sink = Start(directory_.path(), kSmall);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Emit(*sink, 700);
  recorder_->Flush();
  const uint64_t size = std::filesystem::file_size(file_);

  testing::internal::CaptureStderr();
  {
    const FileSizeLimit full(size + 300);  // so that a write is first cut short
    for (int i = 0; i < 5; ++i) {
      Emit(*sink, 1000);
      recorder_->Flush();
    }
    EXPECT_EQ(std::filesystem::file_size(file_), size) << "cut back to the last whole chunk";
    const ReadBack read = ReadAll(file_);
    EXPECT_EQ(read.events, EventNumbers(0, 700 + kSmall.ring_events));
    EXPECT_EQ(read.summary.dropped_events, 5000 - kSmall.ring_events);
    EXPECT_EQ(read.summary.problem, "");
  }
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, AllOf(HasSubstr("offcut: recording to " + file_), HasSubstr("cannot write"),
                             HasSubstr("the program goes on")));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << "said once: " << message;

  recorder_->Flush();
  Emit(*sink, 500);
  recorder_.reset();
  const ReadBack read = ReadAll(file_);
  EXPECT_TRUE(read.summary.closed);
  EXPECT_EQ(ExpectComplete(read), 5000 - kSmall.ring_events);
}

TEST_F(DiskFullTest, AnEndWithoutRoomLeavesTheRestInTheRing) {
  auto sink = Start(directory_.path(), kSmall);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Emit(*sink, 300);
  recorder_->Flush();
  testing::internal::CaptureStderr();
  {
    const FileSizeLimit full(std::filesystem::file_size(file_));
    Emit(*sink, 400);
    recorder_.reset();
  }
  testing::internal::GetCapturedStderr();
  const ReadBack read = ReadAll(file_);
  EXPECT_FALSE(read.summary.closed);
  EXPECT_EQ(read.summary.ring_events, 400);
  EXPECT_EQ(ExpectComplete(read), 0);
}

TEST_F(DiskFullTest, NoRoomForTheRingIsAnErrorAndLeavesNothingBehind) {
  auto sink = Start(directory_.path(), kSmall);
  ASSERT_TRUE(sink.ok()) << sink.status();
  absl::Status status;
  {
    const FileSizeLimit full(20000);
    status = recorder_->SinkFor(1, "simulated", 0).status();
  }
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("device1.ring"), HasSubstr("cannot allocate")));
  EXPECT_FALSE(std::filesystem::exists(recorder_->directory() + "/device1.ring"));
  EXPECT_FALSE(std::filesystem::exists(recorder_->directory() + "/device1.offcut"));
  // The rest of the recording is as before, and a second attempt may succeed.
  Emit(*sink, 10);
  EXPECT_TRUE(recorder_->SinkFor(1, "simulated", 0).ok());
  recorder_.reset();
  EXPECT_EQ(ExpectComplete(ReadAll(file_)), 0);
}

// A file system of its own, as only root can make one.
class TinyFileSystemTest : public DiskFullTest {
 protected:
  void SetUp() override {
    if (mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
      GTEST_SKIP() << "mounting a file system takes root";
    }
    mounted_ = true;
  }
  void TearDown() override {
    recorder_.reset();
    if (mounted_) umount2(directory_.path().c_str(), MNT_DETACH);
  }
  bool mounted_ = false;
};

TEST_F(TinyFileSystemTest, RoomThatComesBackIsUsed) {
  auto sink = Start(directory_.path(), kSmall);
  ASSERT_TRUE(sink.ok()) << sink.status();
  testing::internal::CaptureStderr();
  // Until nothing more fits.
  const std::string hog = directory_.File("hog");
  Emit(*sink, 100);
  recorder_->Flush();
  std::ofstream(hog) << std::string(256 * 1024, 'x');
  Emit(*sink, 20000);
  recorder_->Flush();
  std::filesystem::remove(hog);
  recorder_->Flush();
  Emit(*sink, 100);
  recorder_.reset();
  testing::internal::GetCapturedStderr();
  const ReadBack read = ReadAll(file_);
  EXPECT_TRUE(read.summary.closed);
  EXPECT_GT(ExpectComplete(read), 0);
}

TEST_F(TinyFileSystemTest, ARingTooLargeForTheDiskIsAnError) {
  const auto sink = Start(directory_.path(), {.ring_events = 1 << 14});
  EXPECT_TRUE(absl::IsResourceExhausted(sink.status())) << sink.status();
  EXPECT_FALSE(std::filesystem::exists(recorder_->directory() + "/device0.ring"));
}

}  // namespace
}  // namespace offcut
