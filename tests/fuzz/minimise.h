// Minimise: the smallest program that still fails, by delta debugging (Zeller, Hildebrandt:
// Simplifying and Isolating Failure-Inducing Input, 2002).
//
// Pure: knows nothing of what a program means beyond its fields.

#ifndef OFFCUT_TESTS_FUZZ_MINIMISE_H_
#define OFFCUT_TESTS_FUZZ_MINIMISE_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "tests/fuzz/program.h"

namespace offcut::fuzz {

// `fails` is asked at most `trials` times. Requires: fails(program). No single operation can be
// left out of the result, and no field made simpler, unless the trials ran out.
Program Minimise(Program program, absl::FunctionRef<bool(const Program&)> fails,
                 size_t trials = 20'000);

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_MINIMISE_H_
