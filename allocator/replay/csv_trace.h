// Traces of PyTorch's own allocator as CSV, plain or compressed with zstd: the entries of
// torch.cuda.memory._snapshot()["device_traces"][0], one a line.
//
//   time_us,action,address,size,stream      the first line, exactly
//   0,segment_alloc,0x7fe3ca000000,197132288,0
//   1,alloc,0x7fe3ca000000,196608000,0
//
//   time_us  microseconds since the first entry; not decreasing
//   action   alloc, free_requested, free_completed or segment_alloc
//   address  hexadecimal, with 0x
//   size     bytes: of alloc and the frees what was requested, of segment_alloc the segment; from 1
//   stream   0 is the default stream, any other number another one
//
// The file is hostile input: what is wrong is an error that names file, line and column, and says
// what would be right. bench/traces/ holds such traces.

#ifndef OFFCUT_ALLOCATOR_REPLAY_CSV_TRACE_H_
#define OFFCUT_ALLOCATOR_REPLAY_CSV_TRACE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/base/units.h"
#include "allocator/replay/program.h"

namespace offcut {

enum class CsvAction : uint8_t { kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc };

struct CsvEntry {
  uint64_t time_us = 0;
  CsvAction action{};
  DevicePtr address = 0;
  Bytes bytes = 0;
  uint32_t stream = 0;
};

// Calls `visit` with each entry in order. What it returns but OK ends the reading: an error about
// the entry, which is returned with file and line before it.
absl::Status ReadCsvEntries(const std::string& path,
                            absl::FunctionRef<absl::Status(const CsvEntry&)> visit);

// Entries of the same microsecond keep their order: the n-th is n nanoseconds later.
absl::StatusOr<Program> LoadCsvTrace(const std::string& path);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_CSV_TRACE_H_
