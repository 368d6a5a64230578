// Fuzz: programs from consecutive seeds until there were enough operations or one fails.
//
// Programs run in a child process, so that one that crashes or never ends is found, minimised and
// printed like any other. The calling process must have no other threads.

#ifndef OFFCUT_TESTS_FUZZ_FUZZER_H_
#define OFFCUT_TESTS_FUZZ_FUZZER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/machine.h"
#include "tests/fuzz/program.h"

namespace offcut::fuzz {

struct FuzzOptions {
  uint64_t operations = 0;  // at least so many
  uint64_t seed = 1;        // of the first program
  int threads = 1;          // more than one: all on one machine, at once
  int jobs = 1;             // processes that share the operations, with seeds far apart
  // Operations between two looks at the whole state; 0: as the program's setup says.
  uint32_t check_every = 0;
  Replacements replacements;
};

struct FuzzReport {
  uint64_t operations = 0;  // played
  uint64_t programs = 0;
  double seconds = 0;
  // By OpKind.
  std::array<uint64_t, kOpKinds> played{}, without_effect{};
  // Of a program that failed: what happened, and the minimised program as a test; else "".
  std::string failure;
  // Of each job that a failure ended.
  struct Failure {
    uint64_t seed;
    std::string what;
  };
  std::vector<Failure> failures;
};

// The seeds of a job begin so far behind those of the one before it.
inline constexpr uint64_t kSeedsPerJob = uint64_t{1} << 40;

FuzzReport Fuzz(const FuzzOptions& options);

// What goes wrong when the program runs in a process of its own, "crash: ..." and "hang: ..."
// included; nullopt if nothing does.
std::optional<std::string> FailureOf(const Program& program, const Replacements& replacements = {});

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_FUZZER_H_
