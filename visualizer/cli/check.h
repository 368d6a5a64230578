// Check: whether a recording can be true.
//
// Folds the events in two independent ways (counters, state), keeps its own picture of mapped and
// reserved address space, and says at which event the first contradiction stands. After dropped
// events contradictions are expected, and so are warnings; damage to the file itself never is.
// Treats events as hostile. Not thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_CHECK_H_
#define OFFCUT_VISUALIZER_CLI_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/trace/reader.h"

namespace offcut {

struct CheckFault {
  uint64_t event_index =
      0;              // events before it in the trace; the count of events for the file itself
  std::string event;  // as text; "" for the file itself
  std::string what;
};

struct CheckResult {
  static constexpr size_t kFaultsKept = 20;

  std::string file;
  uint64_t events = 0;
  uint64_t faults = 0;
  std::vector<CheckFault> first_faults;  // at most kFaultsKept
  std::vector<std::string> warnings;
};

absl::StatusOr<CheckResult> CheckTrace(TraceReader& reader);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_CHECK_H_
