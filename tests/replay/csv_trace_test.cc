#include "allocator/replay/csv_trace.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kHeader[] = "time_us,action,address,size,stream\n";

class CsvTraceTest : public testing::Test {
 protected:
  absl::StatusOr<Program> Load(const std::string& entries,
                               const std::string& header = kHeader) const {
    const std::string path = directory_.File("t.csv");
    WriteFile(path, header + entries);
    return LoadCsvTrace(path);
  }
  std::string Error(const std::string& entries, const std::string& header = kHeader) const {
    return std::string(Load(entries, header).status().message());
  }

  TemporaryDirectory directory_;
};

TEST_F(CsvTraceTest, EntriesBecomeOperations) {
  const Program program = *Load(
      "0,segment_alloc,0x7f00,2097152,0\n"
      "3,alloc,0x7f00,1000,0\n"
      "5,alloc,0x8000,7,4\n"
      "9,free_requested,0x7f00,1000,0\n"
      "9,free_completed,0x7f00,1000,0\n");
  ASSERT_THAT(program.operations, SizeIs(3));
  const Operation& first = program.operations[0];
  EXPECT_EQ(first.kind, OperationKind::kAllocate);
  EXPECT_EQ(first.bytes, 1000);
  EXPECT_EQ(first.time_ns, 3000);
  EXPECT_EQ(program.operations[1].stream, 1);
  EXPECT_EQ(program.operations[2].kind, OperationKind::kFree);
  EXPECT_EQ(program.operations[2].slot, first.slot);
  EXPECT_EQ(program.operations[2].done_ns, 0);
  EXPECT_EQ(program.stream_is_default, std::vector<bool>({true, false}));
  EXPECT_EQ(program.events, 3);
  EXPECT_EQ(program.span_ns, 9001);
  EXPECT_EQ(program.peak_live_bytes, 1007);
  EXPECT_THAT(program.segments,
              ElementsAre(RecordedSegment{.address = 0x7f00, .bytes = 2 * kMiB, .time_ns = 0}));
  EXPECT_THAT(program.caveats, ElementsAre());
}

TEST_F(CsvTraceTest, EntriesOfOneMicrosecondKeepTheirOrder) {
  const Program program =
      *Load("7,alloc,0x1000,1,0\n7,alloc,0x2000,1,0\n7,alloc,0x3000,1,0\n8,alloc,0x4000,1,0\n");
  std::vector<uint64_t> times;
  for (const Operation& operation : program.operations) times.push_back(operation.time_ns);
  EXPECT_THAT(times, ElementsAre(7000, 7001, 7002, 8000));
}

TEST_F(CsvTraceTest, ALateFreeCarriesTheTimeOfItsEnd) {
  const Program program = *Load(
      "1,alloc,0x1000,1,0\n2,free_requested,0x1000,1,0\n3,alloc,0x2000,1,0\n"
      "4,free_completed,0x1000,1,0\n");
  EXPECT_EQ(program.operations[1].done_ns, 4000);
  EXPECT_EQ(program.use_streams, 1);
}

TEST_F(CsvTraceTest, AnEmptyTraceIsAProgramOfNothing) { EXPECT_EQ(Load("")->events, 0); }

TEST_F(CsvTraceTest, FaultsNameFileLineColumnAndWhatIsRight) {
  const std::string path = directory_.File("t.csv");
  const std::string good = "1,alloc,0x1000,1,0\n";
  const auto at = [&](int line, const std::string& what) {
    return absl::StrCat(path, ":", line, ": ", what);
  };
  EXPECT_EQ(Error("", "a,b\n"),
            at(1, "the first line must be 'time_us,action,address,size,stream', not 'a,b'"));
  EXPECT_EQ(Error("", ""), path + ": the file is empty");
  EXPECT_EQ(Error(good + "1,alloc,0x2000,1\n"),
            at(3,
               "4 fields where 5 must be, time_us,action,address,size,stream: "
               "'1,alloc,0x2000,1'"));
  EXPECT_THAT(Error(good + "\n"), HasSubstr(at(3, "1 fields where 5 must be")));
  EXPECT_EQ(Error("-1,alloc,0x1000,1,0\n"),
            at(2, "column 1: time_us must be a whole number of microseconds, not '-1'"));
  EXPECT_EQ(Error(good + "0,alloc,0x2000,1,0\n"),
            at(3, "column 1: time_us must be at least 1, the time of the line before, not '0'"));
  EXPECT_EQ(Error("1,segment_free,0x1000,1,0\n"),
            at(2,
               "column 3: action must be alloc, free_requested, free_completed or "
               "segment_alloc, not 'segment_free'"));
  EXPECT_EQ(Error("1,alloc,1000,1,0\n"),
            at(2,
               "column 9: address must be a hexadecimal number with 0x before it, not zero, "
               "not '1000'"));
  EXPECT_THAT(Error("1,alloc,0x,1,0\n"), HasSubstr("column 9: address must be"));
  EXPECT_THAT(Error("1,alloc,0x10000000000000000,1,0\n"), HasSubstr("column 9: address must be"));
  EXPECT_EQ(Error("1,alloc,0x1000,0,0\n"),
            at(2,
               "column 16: size must be a whole number of bytes from 1 to 140737488355328, "
               "not '0'"));
  EXPECT_THAT(Error("1,alloc,0x1000,99999999999999999999999,0\n"), HasSubstr("column 16: size"));
  EXPECT_EQ(Error("1,alloc,0x1000,1,x\n"),
            at(2, "column 18: stream must be the number of a stream, 0 or more, not 'x'"));
}

TEST_F(CsvTraceTest, EntriesThatCannotBeAreErrors) {
  const std::string alloc = "1,alloc,0x1000,1,0\n";
  const std::string free = "2,free_requested,0x1000,1,0\n";
  EXPECT_THAT(Error(alloc + alloc), EndsWith(":3: 0x1000 is allocated and was not freed since"));
  EXPECT_THAT(Error(alloc + free + "3,alloc,0x1000,1,0\n"),
              EndsWith(":4: 0x1000 was freed, and its free was not completed since"));
  EXPECT_THAT(Error(alloc + free + free), EndsWith(":4: 0x1000 was freed before"));
  EXPECT_THAT(Error(alloc + "2,free_completed,0x1000,1,0\n"),
              EndsWith(":3: 0x1000 was not freed before"));
}

TEST_F(CsvTraceTest, ForeignTextIsShownHarmlesslyAndShort) {
  const std::string error = Error("1,\x1b[31m" + std::string(500, 'x') + ",0x1000,1,0\n");
  EXPECT_THAT(error, HasSubstr("\\x1b[31mxxx"));
  EXPECT_LT(error.size(), 300);
}

TEST_F(CsvTraceTest, FreesOfBlocksFromBeforeTheRecordingAreLeftOutAndTold) {
  const Program program =
      *Load("1,free_requested,0x1000,1,0\n1,free_completed,0x1000,1,0\n2,alloc,0x1000,1,0\n");
  EXPECT_EQ(program.events, 1);
  EXPECT_THAT(program.caveats, ElementsAre(HasSubstr("1 frees of blocks")));
}

TEST_F(CsvTraceTest, DamagedTracesAreErrorsOrOtherProgramsAndNeverWorse) {
  const std::string whole = std::string(kHeader) +
                            "0,segment_alloc,0x7fe3ca000000,197132288,0\n"
                            "1,alloc,0x7fe3ca000000,196608000,0\n"
                            "20,alloc,0x7fe3ca000200,4096,3\n"
                            "21,free_requested,0x7fe3ca000000,196608000,0\n"
                            "300,free_completed,0x7fe3ca000000,196608000,0\n";
  constexpr char kBytes[] = ",\n\r\0x0123456789abcdef-alloc\xff";
  std::mt19937 random(7);
  int loaded = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole;
    for (uint32_t edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char byte = kBytes[random() % (sizeof(kBytes) - 1)];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, random() % 8);
          break;
      }
    }
    const absl::StatusOr<Program> program = Load(text, "");
    if (program.ok()) {
      ++loaded;
      for (const Operation& operation : program->operations) {
        EXPECT_LT(operation.slot, program->slots);
      }
    } else {
      EXPECT_THAT(std::string(program.status().message()), HasSubstr("t.csv"));
    }
  }
  EXPECT_GT(loaded, 250);
}

}  // namespace
}  // namespace offcut
