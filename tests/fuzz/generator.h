// Generate: a random program from a seed. The same seed gives the same program everywhere.
//
// Each seed draws a machine and a manner (how many streams, how full, sizes from where, in which
// order blocks are freed, faults, captures, peers), then operations in that manner: programs differ
// more from one another than one very long program differs from itself.

#ifndef OFFCUT_TESTS_FUZZ_GENERATOR_H_
#define OFFCUT_TESTS_FUZZ_GENERATOR_H_

#include <cstdint>
#include <vector>

#include "tests/fuzz/program.h"

namespace offcut::fuzz {

Program Generate(uint64_t seed);

// One program for each of `threads` threads of one machine, which is that of the first. About
// `operations` each.
std::vector<Program> GenerateForThreads(uint64_t seed, int threads, size_t operations);

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_GENERATOR_H_
