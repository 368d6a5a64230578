// Offcut's own recordings as programs: what the recorded program asked for, whatever the allocator
// of then did about it.
//
// Plays allocations, frees, uses on other streams and empty_cache. Leaves out what was a setting of
// the recorded run (limits, peaks and totals reset), requests that failed, whose blocks never were,
// and that a block was in a private pool; the program's caveats tell of the latter two. The
// recording is hostile input, as TraceReader says.

#ifndef OFFCUT_ALLOCATOR_REPLAY_RECORDED_RUN_H_
#define OFFCUT_ALLOCATOR_REPLAY_RECORDED_RUN_H_

#include "absl/status/statusor.h"
#include "allocator/replay/program.h"
#include "allocator/trace/reader.h"

namespace offcut {

absl::StatusOr<Program> LoadRecordedRun(TraceReader& reader);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_RECORDED_RUN_H_
