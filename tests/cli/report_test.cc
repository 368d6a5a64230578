#include "visualizer/cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "allocator/events/memory_state.h"
#include "tests/cli/event_script.h"
#include "tests/cli/vector_trace_reader.h"
#include "visualizer/cli/analysis.h"
#include "visualizer/cli/report_device.h"
#include "visualizer/cli/report_series.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr char kGoldenReport[] = "tests/golden/report/report.html";
constexpr char kGoldenExpected[] = "tests/golden/report/expected.json";

ViewerTemplate Page() { return {"<head>", "<program>", "<end>"}; }

// A run with everything that the format can say, among it events that contradict each other.
std::vector<Event> GoldenEvents() {
  EventScript script;
  script.Add({.bytes = 3, .extra = 1, .pool = 1, .kind = EventKind::kPoolCreated});
  script.Grow(1).Step(0).Allocate(kGranule, 1000).Allocate(kGranule + 1024, 4096);
  script.Grow(2).Allocate(2 * kGranule, 1'000'000).Pend(kGranule + 1024).Step(1);
  script.Grow(3).Allocate(3 * kGranule, 512).Free(2 * kGranule).FinishPending(kGranule + 1024);
  script.Allocate(2 * kGranule, 700'000).Add({.bytes = kGiB, .kind = EventKind::kRequestFailed});
  script.Free(5 * kGranule);                     // never allocated
  script.Allocate(3 * kGranule, 2048);           // its free was lost
  script.Pend(3 * kGranule).Pend(3 * kGranule);  // twice
  script.Free(3 * kGranule);                     // is pending, not live
  script.Add({.bytes = 9, .kind = EventKind::kEventsDropped});
  script.Shrink(3).Shrink(3).Free(kGranule).Step(2);
  return script.events();
}

VectorTraceReader GoldenReader() {
  VectorTraceReader reader(GoldenEvents());
  reader.metadata_ = {.format_version = 1,
                      .offcut_version = "0.1.0",
                      .host = "host</script>",
                      .pid = 42,
                      .command_line = "python <!--train.py--> & \"more\"",
                      .epoch_unix_ns = 1'700'000'000'000'000'000,
                      .device_name = "Card",
                      .device_total_bytes = 80 * kGiB,
                      .options_json = "{}"};
  reader.summary_.dropped_events = 9;
  reader.path_ = "device0.offcut";
  return reader;
}

std::string Render(TraceReader& reader) {
  TraceReader* readers[] = {&reader};
  const absl::StatusOr<std::string> html = RenderReport(readers, {.title = "Golden"}, Page());
  EXPECT_TRUE(html.ok()) << html.status();
  return html.value_or("");
}

Json OverviewOf(const std::string& html) {
  const std::vector<std::string> parts =
      absl::StrSplit(html, "<script type=\"application/json\" id=\"offcut-overview\">");
  if (parts.size() != 2) return {};
  return Json::parse(parts[1].substr(0, parts[1].find("</script>")));
}

std::string Inflate(const std::string& deflated) {
  std::string plain(1 << 22, '\0');
  z_stream stream{};
  inflateInit2(&stream, -15);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(deflated.data()));
  stream.avail_in = static_cast<uInt>(deflated.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  plain.resize(stream.total_out);
  inflateEnd(&stream);
  return plain;
}

// The report without what depends on the version of zlib: the overview, and the chunks inflated.
Json Normalized(const std::string& html) {
  Json overview = OverviewOf(html);
  const std::vector<std::string> tags = absl::StrSplit(html, "class=\"offcut-data\">");
  for (Json& device : overview["devices"]) {
    for (Json& chunk : device["chunks"]) {
      const std::string text =
          tags.at(chunk["tag"].get<size_t>() + 1).substr(chunk["offset"], chunk["length"]);
      std::string deflated;
      EXPECT_TRUE(absl::Base64Unescape(text, &deflated));
      chunk["plain"] = absl::BytesToHexString(Inflate(deflated));
      chunk.erase("offset");
      chunk.erase("length");
    }
  }
  return overview;
}

// What the viewer must find in the golden report, by another way than the exporter's: from the
// states before and after each event.
Json ExpectedFromStates(const std::vector<Event>& events) {
  MemoryState state;
  Json rows = Json::array();
  for (const Event& event : events) {
    state.Apply(event);
    rows.push_back(
        {event.time_ns, state.live_bytes(), state.reserved_bytes(), state.device_used_bytes()});
  }
  VectorTraceReader reader(events);
  const absl::StatusOr<DeviceAnalysis> analysis = AnalyzeDevice(reader);
  EXPECT_TRUE(analysis.ok());
  Json blocks = Json::array();
  for (const LiveBlock& block : analysis->peak.blocks) {
    if (block.pending) continue;
    blocks.push_back({{"address", block.address},
                      {"requested_bytes", block.requested},
                      {"block_bytes", block.size},
                      {"allocated_ns", analysis->peak.time_ns - block.age_ns},
                      {"pool", block.pool}});
  }
  return {{"levels_after_each_event", rows}, {"live_at_peak", blocks}};
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReportTest, AgreesWithTheGoldenReport) {
  VectorTraceReader reader = GoldenReader();
  const std::string html = Render(reader);
  const std::string expected = absl::StrCat(ExpectedFromStates(GoldenEvents()).dump(1), "\n");
  if (std::getenv("OFFCUT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kGoldenReport) << html;
    std::ofstream(kGoldenExpected) << expected;
  }
  EXPECT_EQ(Normalized(html).dump(1), Normalized(ReadFile(kGoldenReport)).dump(1))
      << "if this is a change of the format, raise kReportVersion, and run with "
         "OFFCUT_UPDATE_GOLDEN=1";
  EXPECT_EQ(expected, ReadFile(kGoldenExpected));
}

TEST(ReportTest, SaysTheSameAsTheAnalysis) {
  VectorTraceReader reader = GoldenReader();
  const Json device = OverviewOf(Render(reader))["devices"][0];
  const absl::StatusOr<DeviceAnalysis> analysis = AnalyzeDevice(reader);
  ASSERT_TRUE(analysis.ok());
  EXPECT_EQ(device["live_peak"]["bytes"], analysis->peak_live_bytes);
  EXPECT_EQ(device["peak"]["time_ns"], analysis->peak.time_ns);
  EXPECT_EQ(device["peak"]["accounting"]["pinned_bytes"], analysis->peak.accounting.pinned_bytes);
  EXPECT_EQ(device["honesty"]["inconsistencies"], analysis->inconsistencies);
  EXPECT_EQ(device["honesty"]["dropped_events"], 9);
  EXPECT_EQ(device["counts"]["RequestFailed"], 1);
}

TEST(ReportTest, LetsNoTextLeaveItsElement) {
  VectorTraceReader reader = GoldenReader();
  reader.metadata_.command_line = "</script><img src=x onerror=alert(1)>\xff\xfe <!-- \u2028";
  const std::string html = Render(reader);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_THAT(html, Not(HasSubstr("\u2028")));
  // One end for the overview, one for the data.
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(html, "</script>")).size(), 3u);
  EXPECT_THAT(OverviewOf(html)["devices"][0]["command_line"].get<std::string>(),
              HasSubstr("</script><img src=x onerror=alert(1)>"));
}

TEST(ReportTest, HoldsAnEmptyRecording) {
  VectorTraceReader reader({});
  const Json device = OverviewOf(Render(reader))["devices"][0];
  EXPECT_EQ(device["rows"], 0);
  EXPECT_THAT(device["chunks"], IsEmpty());
  EXPECT_EQ(device["peak"]["accounting"]["reserved_bytes"], 0);
}

TEST(ReportTest, EachChunkBeginsWhereTheOneBeforeItEnded) {
  EventScript script;
  script.Grow(1);
  for (int i = 0; i < 40'000; ++i) script.Allocate(kGranule, 512 + i % 1000).Free(kGranule);
  script.Allocate(kGranule, 77).Grow(2);
  VectorTraceReader reader(script.events());
  const absl::StatusOr<DeviceReport> report = MakeDeviceReport(reader);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->chunks.size(), 2u);
  const ReportChunk& second = report->chunks[1];
  EXPECT_EQ(report->chunks[0].rows, ReportChunks::kMaxRows);
  EXPECT_EQ(second.first_allocation, report->chunks[0].allocations);
  EXPECT_EQ(second.before, (ReportLevels{0, kGranule, kGranule + 500 * kMiB}));
  EXPECT_EQ(second.rows + report->chunks[0].rows, report->overview["rows"]);
}

TEST(ReportTest, DoesNotReadPastTheEventsThatWereAnalysed) {
  // A recording that grows between the passes, as that of a run still going.
  class GrowingReader : public VectorTraceReader {
   public:
    using VectorTraceReader::VectorTraceReader;
    absl::StatusOr<TraceSummary> ForEach(
        const std::function<void(absl::Span<const Event>)>& visit) override {
      const absl::StatusOr<TraceSummary> summary = VectorTraceReader::ForEach(visit);
      events_.push_back(Event{.time_ns = 1000,
                              .address = kBase,
                              .bytes = 512,
                              .extra = 1,
                              .pool = 0,
                              .kind = EventKind::kBlockAllocated});
      return summary;
    }
  };
  EventScript script;
  GrowingReader reader(script.Grow(1).Allocate(kGranule, 512).events());
  const absl::StatusOr<DeviceReport> report = MakeDeviceReport(reader);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->overview["allocations"], 1);
}

// Adding up the rows must give what MemoryState gives, whatever the events are.
TEST(ReconcileTest, AddsUpToTheStateForAnyEvents) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  MemoryState truth, reconciled;
  Bytes live = 0, reserved = 0;
  const EventKind kinds[] = {EventKind::kBlockAllocated,  EventKind::kBlockFreed,
                             EventKind::kBlockFreePended, EventKind::kPendingFreeFinished,
                             EventKind::kGranuleCreated,  EventKind::kGranuleReleased,
                             EventKind::kDriverPoolGrown, EventKind::kDriverPoolShrunk};
  for (int i = 0; i < 20'000; ++i) {
    const Event event = {.time_ns = static_cast<uint64_t>(i),
                         .address = kBase + below(8) * kMiB,
                         .bytes = 512 * (1 + below(4)),
                         .extra = 4 + below(3),
                         .pool = 0,
                         .kind = kinds[below(std::size(kinds))]};
    for (const Event& row : Reconcile(reconciled, event)) {
      reconciled.Apply(row);
      if (row.kind == EventKind::kBlockAllocated) live += row.bytes;
      if (row.kind == EventKind::kBlockFreed) live -= row.bytes;
      if (row.kind == EventKind::kBlockFreePended) live -= row.bytes;
      if (row.kind == EventKind::kGranuleCreated) reserved += row.bytes;
      if (row.kind == EventKind::kGranuleReleased) reserved -= row.bytes;
      if (row.kind == EventKind::kDriverPoolGrown) reserved += row.bytes;
      if (row.kind == EventKind::kDriverPoolShrunk) reserved -= row.bytes;
    }
    truth.Apply(event);
    ASSERT_EQ(live, truth.live_bytes()) << i << ": " << ToString(event);
    ASSERT_EQ(reserved, truth.reserved_bytes()) << i << ": " << ToString(event);
  }
  EXPECT_EQ(reconciled.inconsistencies(), 0u);
  EXPECT_GT(truth.inconsistencies(), 1000u);
}

TEST(WriteReportTest, WritesAFileForTheOwnerAloneAndLeavesNoOther) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("report", getpid());
  std::filesystem::create_directory(folder);
  const std::filesystem::path path = folder / "r.html";
  ASSERT_TRUE(WriteReport("first", path.string()).ok());
  ASSERT_TRUE(WriteReport("second", path.string()).ok());
  EXPECT_EQ(ReadFile(path), "second");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(WriteReportTest, NamesThePathThatCannotBeWritten) {
  const absl::Status status = WriteReport("x", "/nowhere/r.html");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("cannot create /nowhere/r.html"));
}

TEST(ReportSeriesTest, KeepsTheExtremesWhenSlicesAreMerged) {
  ReportSeries series;
  for (uint64_t i = 0; i < 100'000; ++i) {
    series.Add(1000 + i * 10, {.live = i == 70'001 ? 5u : 100 + i % 7, .reserved = i});
  }
  const auto& slices = series.slices();
  ASSERT_LE(slices.size(), ReportSeries::kSlices);
  ASSERT_GE(slices.size(), ReportSeries::kSlices / 4);
  EXPECT_EQ(series.begin_ns(), 1000u);
  const uint64_t dip = 700'010 / series.slice_ns();
  EXPECT_EQ(slices[dip].least.live, 5u);
  EXPECT_EQ(slices[dip + 1].least.live, 100u);
  EXPECT_EQ(slices[dip].most.live, 106u);
  EXPECT_EQ(slices.back().most.reserved, 99'999u);
  EXPECT_EQ(slices.front().least.reserved, 0u);
}

TEST(ReportSeriesTest, FillsSlicesWithoutEventsWithTheLevelsBefore) {
  ReportSeries series;
  series.Add(0, {.live = 7});
  series.Add(5, {.live = 9});
  ASSERT_EQ(series.slices().size(), 6u);
  EXPECT_EQ(series.slices()[3].least.live, 7u);
  EXPECT_EQ(series.slices()[3].most.live, 7u);
  EXPECT_EQ(series.slices()[5].least.live, 7u);
  EXPECT_EQ(series.slices()[5].most.live, 9u);
}

TEST(ViewerTemplateTest, IsCutAtItsPlaceholders) {
  const absl::StatusOr<ViewerTemplate> page =
      SplitViewerTemplate("a<!--offcut:overview-->b<!--offcut:data-->c", "x");
  ASSERT_TRUE(page.ok());
  EXPECT_THAT((std::vector{page->before_overview, page->before_data, page->after_data}),
              ElementsAre("a", "b", "c"));
}

TEST(ViewerTemplateTest, WithoutItsPlaceholdersIsAnErrorThatNamesThem) {
  for (const char* html : {"", "<!--offcut:overview-->", "<!--offcut:data--><!--offcut:overview-->",
                           "<!--offcut:overview--><!--offcut:data--><!--offcut:data-->"}) {
    const absl::StatusOr<ViewerTemplate> page = SplitViewerTemplate(html, "viewer.html");
    ASSERT_FALSE(page.ok()) << html;
    EXPECT_THAT(page.status().message(), HasSubstr("viewer.html: no template of a report"));
    EXPECT_THAT(page.status().message(), HasSubstr("<!--offcut:data-->"));
  }
}

}  // namespace
}  // namespace offcut
