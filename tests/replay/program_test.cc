#include "allocator/replay/program.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Allocates and frees a block at `address`, both at `time_ns`; it is finished later.
void AddLateFree(ProgramBuilder& builder, uint64_t time_ns, DevicePtr address) {
  ASSERT_TRUE(builder.Allocate(time_ns, address, 1, 0, true).ok());
  ASSERT_TRUE(builder.Free(time_ns, address).ok());
}

std::vector<std::pair<uint64_t, uint16_t>> Uses(const Program& program) {
  std::vector<std::pair<uint64_t, uint16_t>> uses;
  for (const Operation& operation : program.operations) {
    if (operation.kind == OperationKind::kFree && operation.done_ns != 0) {
      uses.emplace_back(operation.done_ns, operation.stream);
    }
  }
  return uses;
}

TEST(ProgramTest, SlotsAreReused) {
  ProgramBuilder builder;
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(builder.Allocate(i, 0x1000, 10, 0, true).ok());
    ASSERT_TRUE(builder.Allocate(i, 0x2000, 10, 0, true).ok());
    for (const DevicePtr address : {0x1000, 0x2000}) {
      ASSERT_TRUE(builder.Free(i, address).ok());
      ASSERT_TRUE(builder.FinishFree(i, address).ok());
    }
  }
  const Program program = std::move(builder).Finish();
  EXPECT_EQ(program.slots, 2);
  EXPECT_EQ(program.events, 400);
  EXPECT_EQ(program.peak_live_bytes, 20);
  EXPECT_EQ(program.use_streams, 0);
}

TEST(ProgramTest, BlocksDoneInTheOrderOfTheirFreesShareAUseStream) {
  ProgramBuilder builder;
  AddLateFree(builder, 1, 0x1000);
  AddLateFree(builder, 2, 0x2000);
  ASSERT_TRUE(builder.FinishFree(10, 0x1000).ok());
  AddLateFree(builder, 11, 0x3000);
  ASSERT_TRUE(builder.EmptyCache(12).ok());
  ASSERT_TRUE(builder.FinishFree(20, 0x2000).ok());
  ASSERT_TRUE(builder.FinishFree(20, 0x3000).ok());
  const Program program = std::move(builder).Finish();
  EXPECT_THAT(Uses(program), ElementsAre(std::pair(10, 0), std::pair(20, 0), std::pair(20, 0)));
  EXPECT_EQ(program.use_streams, 1);
}

TEST(ProgramTest, ABlockThatOvertakesAnotherIsOnAnotherUseStream) {
  ProgramBuilder builder;
  AddLateFree(builder, 1, 0x1000);
  AddLateFree(builder, 2, 0x2000);
  AddLateFree(builder, 3, 0x3000);
  ASSERT_TRUE(builder.EmptyCache(4).ok());
  ASSERT_TRUE(builder.FinishFree(10, 0x2000).ok());
  ASSERT_TRUE(builder.FinishFree(20, 0x1000).ok());
  ASSERT_TRUE(builder.FinishFree(30, 0x3000).ok());
  const Program program = std::move(builder).Finish();
  // The third follows the one whose use ends latest.
  EXPECT_THAT(Uses(program), ElementsAre(std::pair(20, 0), std::pair(10, 1), std::pair(30, 0)));
}

TEST(ProgramTest, HoweverManyOvertakeEachOtherUseStreamsAreBounded) {
  ProgramBuilder builder;
  constexpr int kBlocks = 1000;
  for (int i = 0; i < kBlocks; ++i) AddLateFree(builder, i, 0x1000 * (i + 1));
  for (int i = kBlocks; i-- > 0;) {
    ASSERT_TRUE(builder.FinishFree(3 * kBlocks - i, 0x1000 * (i + 1)).ok());
  }
  const Program program = std::move(builder).Finish();
  EXPECT_EQ(program.use_streams, ProgramBuilder::kUseStreamsMax);
  EXPECT_THAT(Uses(program), SizeIs(kBlocks - 1));  // the last was finished at once
}

TEST(ProgramTest, ABlockThatIsNeverDoneIsInUseBeyondTheEnd) {
  ProgramBuilder builder;
  AddLateFree(builder, 1, 0x1000);
  ASSERT_TRUE(builder.Allocate(77, 0x2000, 1, 0, true).ok());
  EXPECT_THAT(Uses(std::move(builder).Finish()), ElementsAre(std::pair(78, 0)));
}

TEST(ProgramTest, MoreStreamsThanAnOperationCanNameAreAnError) {
  ProgramBuilder builder;
  absl::Status status;
  uint64_t stream = 0;
  for (; status.ok() && stream <= ProgramBuilder::kStreamsMax; ++stream) {
    status = builder.Allocate(1, 0x1000 + stream, 1, stream, stream == 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(stream, ProgramBuilder::kStreamsMax + 1);
}

}  // namespace
}  // namespace offcut
