#include "allocator/trace/ring.h"

#include <sys/stat.h>

#include <thread>

#include "allocator/trace/metadata.h"
#include "allocator/trace/ring_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"
#include "tests/trace/test_events.h"

namespace offcut {
namespace {

class RingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ring = Ring::Create(path_, file_header_, kCapacity);
    ASSERT_TRUE(ring.ok()) << ring.status();
    ring_ = *std::move(ring);
  }

  std::vector<Event> Take(uint64_t count) {
    std::vector<Event> events(count);
    ring_->Copy(ring_->tail(), absl::MakeSpan(events));
    ring_->Advance(ring_->tail() + count);
    return events;
  }

  static constexpr uint64_t kCapacity = 16;
  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("device0.ring");
  const std::string file_header_ = FileHeaderBytes("{}");
  std::unique_ptr<Ring> ring_;
};

TEST_F(RingTest, FileIsPrivateAndItsBlocksAreAllocated) {
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
  EXPECT_GE(status.st_blocks * 512, status.st_size);
}

TEST_F(RingTest, EventsComeOutInOrderAcrossTheSeam) {
  for (uint64_t i = 0; i < 200; i += 10) {
    for (uint64_t k = i; k < i + 10; ++k) ring_->Push(EventNumber(k));
    EXPECT_EQ(Take(10), EventNumbers(i, i + 10));
  }
  EXPECT_EQ(ring_->dropped_events(), 0);
}

TEST_F(RingTest, FullRingDropsAndSaysSoBeforeTheNextEvent) {
  for (uint64_t i = 0; i < kCapacity + 5; ++i) ring_->Push(EventNumber(i));
  EXPECT_EQ(ring_->head(), kCapacity);
  EXPECT_EQ(ring_->dropped_events(), 5);
  EXPECT_EQ(Take(kCapacity), EventNumbers(0, kCapacity));
  ring_->Push(EventNumber(100));
  const std::vector<Event> after = Take(2);
  EXPECT_EQ(after[0].kind, EventKind::kEventsDropped);
  EXPECT_EQ(after[0].bytes, 5);
  EXPECT_EQ(after[0].time_ns, EventNumber(kCapacity + 4).time_ns) << "that of the last drop";
  EXPECT_EQ(after[1], EventNumber(100));
}

TEST_F(RingTest, RoomForOneIsNotRoomForTheDropRecordAndTheEvent) {
  for (uint64_t i = 0; i < kCapacity + 1; ++i) ring_->Push(EventNumber(i));
  Take(1);
  ring_->Push(EventNumber(50));
  EXPECT_EQ(ring_->dropped_events(), 2);
  Take(1);
  ring_->Push(EventNumber(51));
  EXPECT_EQ(ring_->dropped_events(), 2);
  Take(kCapacity - 2);
  const std::vector<Event> after = Take(2);
  EXPECT_EQ(after[0].bytes, 2);
  EXPECT_EQ(after[1], EventNumber(51));
}

TEST_F(RingTest, DropsAtTheEndAreToldOnRequest) {
  EXPECT_TRUE(ring_->PushDropRecord());
  EXPECT_EQ(ring_->head(), 0) << "nothing to tell";
  for (uint64_t i = 0; i < kCapacity + 3; ++i) ring_->Push(EventNumber(i));
  EXPECT_FALSE(ring_->PushDropRecord());
  Take(1);
  EXPECT_TRUE(ring_->PushDropRecord());
  EXPECT_EQ(Take(kCapacity).back().bytes, 3);
}

TEST_F(RingTest, DetachedRingIgnoresEvents) {
  ring_->Push(EventNumber(0));
  ring_->Detach();
  for (uint64_t i = 1; i < 2 * kCapacity; ++i) ring_->Push(EventNumber(i));
  EXPECT_EQ(ring_->head(), 1);
  EXPECT_EQ(ring_->dropped_events(), 0);
}

TEST_F(RingTest, ConsumerOnAnotherThreadSeesWholeEvents) {
  constexpr uint64_t kEvents = 20000;
  uint64_t torn = 0;
  std::thread consumer([&] {
    for (uint64_t taken = 0; taken < kEvents;) {
      for (const Event& event : Take(ring_->head() - ring_->tail())) {
        if (event != EventNumber(taken++)) ++torn;
      }
    }
  });
  for (uint64_t i = 0; i < kEvents; ++i) {
    while (ring_->head() - ring_->tail() == kCapacity) std::this_thread::yield();
    ring_->Push(EventNumber(i));
  }
  consumer.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(ring_->dropped_events(), 0);
}

TEST_F(RingTest, ReadsFromOutside) {
  for (uint64_t i = 0; i < 20; ++i) {
    if (i == 10) Take(10);
    ring_->Push(EventNumber(i));
  }
  auto file = RingFile::Open(path_, file_header_);
  ASSERT_TRUE(file.ok()) << file.status();
  auto position = file->ReadPosition();
  ASSERT_TRUE(position.ok());
  EXPECT_EQ(position->tail, 10);
  EXPECT_EQ(position->head, 20);
  std::vector<Event> events;
  ASSERT_TRUE(file->Read(10, 20, &events).ok());
  EXPECT_EQ(events, EventNumbers(10, 20));
}

TEST_F(RingTest, RefusesTheRingOfAnotherRecording) {
  const auto file = RingFile::Open(path_, FileHeaderBytes("[]"));
  EXPECT_THAT(file.status().message(), ::testing::HasSubstr("another recording"));
}

TEST_F(RingTest, RefusesAFileCutShort) {
  const std::string bytes = ReadFile(path_);
  for (const size_t size : {size_t{0}, size_t{47}, size_t{300}, bytes.size() - 1}) {
    WriteFile(directory_.File("cut.ring"), bytes.substr(0, size));
    EXPECT_FALSE(RingFile::Open(directory_.File("cut.ring"), file_header_).ok()) << size;
  }
}

TEST_F(RingTest, CreationFailsWhereAFileIs) {
  const auto again = Ring::Create(path_, file_header_, kCapacity);
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  EXPECT_TRUE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace offcut
