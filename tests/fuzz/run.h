// Run: plays a program on a machine of its own and says what went wrong.

#ifndef OFFCUT_TESTS_FUZZ_RUN_H_
#define OFFCUT_TESTS_FUZZ_RUN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/fuzz/machine.h"
#include "tests/fuzz/program.h"

namespace offcut::fuzz {

// OK, or the first failure; its message begins with the witness (machine.h). Looks at the whole
// state every Setup::check_every operations and at the end. `tally`, if given, counts the
// operations as they are played, for whoever watches.
absl::Status RunProgram(const Program& program, const Replacements& replacements = {},
                        Tally* tally = nullptr);

// As RunProgram, with each program on a thread of its own and all on one machine: that of the
// first. Looks at the whole state whenever all threads have played `round` operations.
absl::Status RunThreads(const std::vector<Program>& programs, size_t round,
                        const Replacements& replacements = {}, Tally* tally = nullptr);

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_RUN_H_
