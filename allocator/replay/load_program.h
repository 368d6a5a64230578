// Any trace that can be replayed, as a program.

#ifndef OFFCUT_ALLOCATOR_REPLAY_LOAD_PROGRAM_H_
#define OFFCUT_ALLOCATOR_REPLAY_LOAD_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "allocator/replay/program.h"

namespace offcut {

// `path`: a recording of Offcut's (a chunk file, or a directory that holds a single one) or a CSV
// trace of PyTorch's allocator, plain or compressed. Told apart by content, not by name. An error
// names the file and what is wrong; of a directory with several recordings, their names.
absl::StatusOr<Program> LoadProgram(const std::string& path);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_LOAD_PROGRAM_H_
