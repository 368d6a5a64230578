#include "tests/fuzz/minimise.h"

#include <algorithm>
#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fuzz/core_under_test.h"
#include "tests/fuzz/generator.h"

namespace offcut::fuzz {
namespace {

using ::testing::HasSubstr;

bool Has(const Program& program, OpKind kind, Bytes bytes_min) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [&](const Op& op) { return op.kind == kind && op.bytes >= bytes_min; });
}

Program LongProgram() {
  Program program = {.setup = {.devices = 2, .lag_ns = 5, .check_every = 50}};
  for (uint32_t i = 1; i <= 300; ++i) {
    program.ops.push_back({.kind = OpKind::kAllocate, .stream = 1, .block = i, .bytes = i * 1000});
    program.ops.push_back({.kind = OpKind::kUse, .block = i, .ns = 7});
  }
  program.ops.push_back({.kind = OpKind::kEmptyCache, .device = 1});
  return program;
}

TEST(MinimiseTest, KeepsOnlyWhatTheFailureNeeds) {
  const Program smallest = Minimise(LongProgram(), [](const Program& program) {
    return Has(program, OpKind::kAllocate, 200'000) && Has(program, OpKind::kEmptyCache, 0);
  });
  EXPECT_EQ(smallest.setup, fuzz::Setup());
  ASSERT_EQ(smallest.ops.size(), 2u);
  EXPECT_EQ(smallest.ops[0].kind, OpKind::kAllocate);
  EXPECT_EQ(smallest.ops[0].block, 1u);
  EXPECT_EQ(smallest.ops[0].stream, 0);
  EXPECT_EQ(smallest.ops[0].bytes, 200'000u);
  EXPECT_EQ(smallest.ops[1], (Op{.kind = OpKind::kEmptyCache}));
}

TEST(MinimiseTest, StopsWhenTheTrialsAreUsedUp) {
  size_t asked = 0;
  const Program smallest = Minimise(
      LongProgram(),
      [&](const Program& program) {
        ++asked;
        return Has(program, OpKind::kEmptyCache, 0);
      },
      /*trials=*/10);
  EXPECT_EQ(asked, 10u);
  EXPECT_TRUE(Has(smallest, OpKind::kEmptyCache, 0));
}

TEST(GenerateTest, TheSameSeedGivesTheSameProgram) {
  EXPECT_EQ(Generate(5), Generate(5));
  EXPECT_NE(Generate(5), Generate(6));
  EXPECT_EQ(GenerateForThreads(5, 3, 100), GenerateForThreads(5, 3, 100));
}

TEST(GenerateTest, ProgramsHoldEveryOperation) {
  std::array<uint64_t, 256> counts{};
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (const Op& op : Generate(seed).ops) ++counts[static_cast<uint8_t>(op.kind)];
  }
#define FUZZ_OP(name, sentence) \
  EXPECT_GT(counts[static_cast<uint8_t>(OpKind::k##name)], 0u) << #name;
#include "tests/fuzz/ops.def"
#undef FUZZ_OP
}

TEST(ProgramTest, PrintsItselfAsATest) {
  const Program program = {
      .setup = {.conf = "remap:wait", .limit = 4 * kMiB},
      .ops = {{.kind = OpKind::kAllocate, .stream = 1, .block = 2, .bytes = ~Bytes{0}},
              {.kind = OpKind::kFault, .value = 3, .call = 4, .times = 1, .result = 999}}};
  EXPECT_EQ(ToCxxTest(program, "Printed", "what happened\nand where"),
            R"(// what happened
// and where
TEST(FuzzRegression, Printed) {
  using enum OpKind;
  Play({.setup = {.conf = "remap:wait", .limit = 4194304},
        .ops = {
            {.kind = kAllocate, .stream = 1, .block = 2, .bytes = 18446744073709551615u},
            {.kind = kFault, .value = 3, .call = 4, .times = 1, .result = 999},
        }});
}
)");
}

}  // namespace
}  // namespace offcut::fuzz
