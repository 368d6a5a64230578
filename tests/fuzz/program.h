// Program: what a fuzzed allocator is put through. A list of operations over blocks that are named
// by number, and the machine that it runs on: plain values, which can be cut, compared and printed.

#ifndef OFFCUT_TESTS_FUZZ_PROGRAM_H_
#define OFFCUT_TESTS_FUZZ_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "allocator/base/units.h"
#include "allocator/core/state_view.h"

namespace offcut::fuzz {

enum class OpKind : uint8_t {
#define FUZZ_OP(name, sentence) k##name,
#include "tests/fuzz/ops.def"
#undef FUZZ_OP
};

inline constexpr size_t kOpKinds = 0
#define FUZZ_OP(name, sentence) +1
#include "tests/fuzz/ops.def"
#undef FUZZ_OP
    ;

absl::string_view OpName(OpKind kind);

// One operation; ops.def says which fields each kind reads.
struct Op {
  OpKind kind{};
  uint8_t device = 0;
  uint8_t stream = 0;
  uint8_t pool = 0;
  uint32_t block = 0;
  Bytes bytes = 0;
  uint64_t ns = 0;
  uint64_t value = 0;
  uint8_t call = 0;  // a DriverCall, or 0
  uint32_t times = 0;
  int result = 0;  // a CUresult

  bool operator==(const Op&) const = default;
};

// The machine, and the allocators on it.
struct Setup {
  std::string conf;         // the options, as in OFFCUT_CONF
  uint8_t devices = 1;      // each with an allocator
  uint8_t streams = 1;      // of each device: 0 is the legacy one, every third of the others is
                            // blocking
  bool per_thread = false;  // the last stream, unless it is the legacy one, is the default stream
                            // of each thread: another one for each
  Bytes memory_bytes = 64 * kMiB;  // of each device
  uint64_t lag_ns = 0;
  Bytes limit = kNoLimit;    // of each allocator, from the start
  uint32_t check_every = 1;  // operations between two full checks

  bool operator==(const Setup&) const = default;
};

struct Program {
  Setup setup;
  std::vector<Op> ops;

  bool operator==(const Program&) const = default;
};

// As a complete test that calls Play (regression_test.cc). `name` in CamelCase; `comment` says what
// the test is of, in as many lines as it likes.
std::string ToCxxTest(const Program& program, absl::string_view name, absl::string_view comment);

// "{.kind = kFree, .block = 3}"
std::string ToCxx(const Op& op);

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_PROGRAM_H_
