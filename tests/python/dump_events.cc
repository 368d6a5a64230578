// Prints what a recording of one process on one device holds, for tests that compare: a line per
// event (name, address, bytes, extra), then the counters that the events fold to, as JSON.

#include <iostream>
#include <string>

#include "allocator/events/counters.h"
#include "allocator/events/event.h"
#include "allocator/trace/reader.h"

namespace offcut {
namespace {

void Print(const Event& event) {
  const EventDescription* description = DescribeEvent(event.kind);
  std::cout << (description == nullptr ? "?" : description->name) << ' ' << event.address << ' '
            << event.bytes << ' ' << event.extra << '\n';
}

void Print(const char* name, const GaugeBySize& gauges) {
  constexpr const char* kSizes[] = {"all", "small", "large"};
  std::cout << '"' << name << "\": {";
  for (int i = 0; i < 3; ++i) {
    const Gauge& gauge = gauges[i];
    std::cout << (i > 0 ? ", " : "") << '"' << kSizes[i] << "\": [" << gauge.current << ", "
              << gauge.peak << ", " << gauge.risen << ", " << gauge.fallen << ']';
  }
  std::cout << '}';
}
void Print(const char* name, uint64_t value) { std::cout << '"' << name << "\": " << value; }

void Print(const Counters& counters) {
  const char* separator = "{";
#define OFFCUT_GAUGE(name, unit, sentence) OFFCUT_COUNT(name, unit, sentence)
#define OFFCUT_LEVEL(name, unit, sentence) OFFCUT_COUNT(name, unit, sentence)
#define OFFCUT_COUNT(name, unit, sentence) \
  std::cout << separator;                  \
  Print(#name, counters.name);             \
  separator = ", ";
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_LEVEL
#undef OFFCUT_COUNT
  std::cout << "}\n";
}

absl::Status Dump(absl::string_view path) {
  const auto files = FindTraceFiles(path);
  if (!files.ok()) return files.status();
  if (files->size() != 1) return absl::InvalidArgumentError("not the recording of one device");
  const auto reader = TraceReader::Open(files->front());
  if (!reader.ok()) return reader.status();
  Counters counters;
  const auto summary = (*reader)->ForEach([&counters](absl::Span<const Event> events) {
    for (const Event& event : events) {
      Print(event);
      counters.Apply(event);
    }
  });
  if (!summary.ok()) return summary.status();
  if (!summary->problem.empty()) return absl::DataLossError(summary->problem);
  Print(counters);
  return absl::OkStatus();
}

}  // namespace
}  // namespace offcut

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: dump_events RECORDING\n";
    return 2;
  }
  const absl::Status status = offcut::Dump(argv[1]);
  if (!status.ok()) std::cerr << status.message() << '\n';
  return status.ok() ? 0 : 1;
}
