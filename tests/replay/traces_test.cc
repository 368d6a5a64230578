// The traces of bench/traces, and what their README says of them.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "allocator/replay/csv_trace.h"
#include "allocator/replay/replay.h"
#include "gtest/gtest.h"

namespace offcut {
namespace {

struct Row {
  std::string name;
  uint64_t entries = 0;
  std::string peak_requested;  // GiB, as in the README
  std::string peak_reserved;   // likewise
};

// The README's table: | `name` | run | entries | peak requested GiB | peak reserved GiB |
std::vector<Row> ReadTable() {
  std::ifstream file("bench/traces/README.md");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() != 7 || !absl::StrContains(cells[1], '`')) continue;
    Row row;
    row.name = absl::StrReplaceAll(absl::StripAsciiWhitespace(cells[1]), {{"`", ""}});
    EXPECT_TRUE(absl::SimpleAtoi(absl::StrReplaceAll(cells[3], {{",", ""}}), &row.entries));
    row.peak_requested = std::string(absl::StripAsciiWhitespace(cells[4]));
    row.peak_reserved = std::string(absl::StripAsciiWhitespace(cells[5]));
    rows.push_back(row);
  }
  return rows;
}

std::string PathOf(const Row& row) { return absl::StrCat("bench/traces/", row.name, ".csv.zst"); }

TEST(TracesTest, TheReadmeListsEight) { EXPECT_EQ(ReadTable().size(), 8); }

TEST(TracesTest, HoldAsManyEntriesAsTheReadmeSays) {
  for (const Row& row : ReadTable()) {
    uint64_t entries = 0;
    const absl::Status status = ReadCsvEntries(PathOf(row), [&entries](const CsvEntry&) {
      ++entries;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(entries, row.entries) << row.name;
  }
}

// PyTorch's peak counts a block until its free is completed, and so do the active bytes here: they
// are equal only if every late free is late by as much as in the recorded run.
TEST(TracesTest, ReplayedHaveTheRecordedPeak) {
  for (const Row& row : ReadTable()) {
    const absl::StatusOr<Program> program = LoadCsvTrace(PathOf(row));
    ASSERT_TRUE(program.ok()) << program.status();
    const absl::StatusOr<ReplayResult> result = Replay(*program, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->completed()) << row.name;
    EXPECT_EQ(result->whole.events, program->events) << row.name;
    EXPECT_EQ(result->peak_live_bytes, program->peak_live_bytes) << row.name;
    const int64_t peak = result->counters.active_requested_bytes[0].peak;
    EXPECT_EQ(absl::StrFormat("%.3f", static_cast<double>(peak) / kGiB), row.peak_requested)
        << row.name;
    EXPECT_GT(result->live_over_reserved(), 0.8) << row.name;
  }
}

// PyTorch's algorithm, step for step: each segment that the recorded run got from cudaMalloc, in
// order and of its size, and so the reserved peak of the README.
TEST(TracesTest, TheSegmentsLayoutDoesWhatPytorchDid) {
  const Config config = *Config::Parse({.offcut_conf = "expandable_segments:False"});
  for (const Row& row : ReadTable()) {
    const absl::StatusOr<Program> program = LoadCsvTrace(PathOf(row));
    ASSERT_TRUE(program.ok()) << program.status();
    Bytes recorded = 0;
    for (const RecordedSegment& segment : program->segments) recorded += segment.bytes;
    EXPECT_EQ(absl::StrFormat("%.3f", static_cast<double>(recorded) / kGiB), row.peak_reserved)
        << row.name;
    const absl::StatusOr<ReplayResult> result = Replay(*program, {.config = config});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->completed()) << row.name;
    EXPECT_TRUE(CheckSegments(*program, *result).ok())
        << row.name << ": " << CheckSegments(*program, *result);
  }
}

}  // namespace
}  // namespace offcut
