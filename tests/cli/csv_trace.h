// Reads an allocation trace recorded under stock PyTorch (replay/csv_trace.h) as the events that an
// allocator with PyTorch's layout would have emitted: each segment one granule.

#ifndef OFFCUT_TESTS_CLI_CSV_TRACE_H_
#define OFFCUT_TESTS_CLI_CSV_TRACE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/events/event.h"

namespace offcut {

struct CsvTraceOptions {
  // The traces hold no steps: this many are marked, equally long.
  int steps = 0;
  // What other users of the device hold.
  Bytes outside_bytes = 560 * kMiB;
  Bytes device_total_bytes = 141 * kGiB;
};

absl::StatusOr<std::vector<Event>> ReadCsvTrace(const std::string& path,
                                                const CsvTraceOptions& options);

}  // namespace offcut

#endif  // OFFCUT_TESTS_CLI_CSV_TRACE_H_
