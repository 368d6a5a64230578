// Programs that failed once, as the fuzzer printed them: each minimised, each with what went wrong.

#include "gtest/gtest.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/run.h"

namespace offcut::fuzz {
namespace {

void Play(const Program& program) {
  const absl::Status status = RunProgram(program);
  EXPECT_TRUE(status.ok()) << status.message();
}

// The mapping that undid a growth could not be removed either, and was lost from the books.
TEST(FuzzRegression, AnUndoThatFails) {
  using enum OpKind;
  Play({.setup = {.streams = 1},
        .ops = {
            {.kind = kFault, .value = 5, .times = 3, .result = 1},
            {.kind = kAllocate, .block = 1, .bytes = 1},
        }});
}

// After such an undo the site had one place less, and a granule was moved nowhere.
TEST(FuzzRegression, ASiteThatShrinksAsItIsFilled) {
  using enum OpKind;
  Play({.setup = {.streams = 1},
        .ops = {
            {.kind = kAllocate, .block = 5, .bytes = 28876},
            {.kind = kUse, .block = 5, .ns = 1},
            {.kind = kAllocate, .block = 9, .bytes = 502006},
            {.kind = kAllocate, .block = 13, .bytes = 1048577},
            {.kind = kFree, .block = 13},
            {.kind = kAllocate, .block = 14, .bytes = 1},
            {.kind = kFault, .value = 3, .times = 3, .result = 2},
            {.kind = kAllocate, .block = 26, .bytes = 502516},
            {.kind = kAllocate, .block = 28, .bytes = 502517},
        }});
}

// A granule of one pool had an old mapping in the arena of another, and outlived an emptied cache.
TEST(FuzzRegression, AnOldMappingInAnotherPool) {
  using enum OpKind;
  Play({.setup = {.streams = 2},
        .ops = {
            {.kind = kAllocate, .block = 34},
            {.kind = kAllocate, .stream = 1, .block = 197},
            {.kind = kAllocate, .block = 202, .bytes = 1},
            {.kind = kFault, .call = 7, .times = 3, .result = 999},
            {.kind = kFree, .block = 202},
            {.kind = kAllocate, .block = 376, .bytes = 68116991},
            {.kind = kFault, .value = 6, .times = 1, .result = 600},
            {.kind = kAllocate, .stream = 1, .block = 381, .bytes = 1},
        }});
}

// Granules that the driver would not take back stayed reserved for good.
TEST(FuzzRegression, AReleaseThatFails) {
  using enum OpKind;
  Play({.setup = {.memory_bytes = 8388608},
        .ops = {
            {.kind = kAllocate, .block = 19, .bytes = 1},
            {.kind = kFault, .call = 4, .times = 3, .result = 2},
            {.kind = kAllocate, .block = 26, .bytes = 7086591},
        }});
}

// The last slot of a slab became free with a wait for the device, and its slab was taken for one
// that is in use since.
TEST(FuzzRegression, ASlabThatAWaitSetsFree) {
  using enum OpKind;
  Program program = {.setup = {.streams = 3}};
  for (uint32_t block = 1; block <= 20; ++block) {
    program.ops.push_back({.kind = kAllocate, .stream = 2, .block = block, .bytes = 8619});
  }
  program.ops.push_back({.kind = kRecordStream, .block = 1});
  program.ops.push_back({.kind = kUse, .block = 20});
  Play(program);
}

// Emptying the cache waited for the device, which ended the capture.
TEST(FuzzRegression, AnEmptiedCacheBesideACapture) {
  using enum OpKind;
  Play({.setup = {.streams = 2},
        .ops = {
            {.kind = kBeginCapture, .stream = 1},
            {.kind = kEmptyCache},
        }});
}

// So did a request for which memory was out, if a stream could not be asked whether it is captured.
TEST(FuzzRegression, ARefusalBesideACapture) {
  using enum OpKind;
  Play({.setup = {.conf = "expandable_segments:False", .streams = 2},
        .ops = {
            {.kind = kBeginCapture, .stream = 1},
            {.kind = kAllocate, .block = 1},
            {.kind = kFault, .times = 2, .result = 2},
            {.kind = kAllocate, .block = 2, .bytes = 1},
        }});
}

// A free that a capture had put off stayed pending over a wait for the device after its end.
TEST(FuzzRegression, AFreeThatACapturePutOff) {
  using enum OpKind;
  Play({.setup = {.streams = 3, .lag_ns = 50'000'000},
        .ops = {
            {.kind = kAllocate, .block = 1, .bytes = 1},
            {.kind = kUse, .stream = 2, .block = 1},
            {.kind = kBeginCapture, .stream = 2},
        }});
}

// On a stream of a peer, so did one whose event was recorded only within the wait.
TEST(FuzzRegression, AFreeThatACaptureOfAPeerPutOff) {
  using enum OpKind;
  Play({.setup = {.devices = 2, .streams = 2},
        .ops = {
            {.kind = kAllocate, .block = 1, .bytes = 1},
            {.kind = kRecordStream, .device = 1, .stream = 1, .block = 1},
            {.kind = kBeginCapture, .device = 1, .stream = 1},
            {.kind = kFault, .times = 1, .result = 999},
            {.kind = kSetLag, .ns = 1},
            {.kind = kAllocate, .block = 2, .bytes = 1},
            {.kind = kRecordStream, .device = 1, .block = 2},
        }});
}

// A range of address space that the driver would not take back at first was never tried again.
TEST(FuzzRegression, ASegmentsRangeThatStays) {
  using enum OpKind;
  Play({.setup = {},
        .ops = {
            {.kind = kAllocate, .block = 1, .bytes = 1},
            {.kind = kAllocate, .block = 2, .bytes = 1048577},
            {.kind = kAllocate, .block = 3, .bytes = 7339521},
            {.kind = kBeginRoute, .pool = 1},
            {.kind = kAllocate, .block = 4, .bytes = 31457281},
            {.kind = kAllocate, .block = 5, .bytes = 1},
            {.kind = kFault, .call = 2, .times = 1, .result = 600},
            {.kind = kAllocate, .block = 6, .bytes = 2096641},
        }});
}

// Address 0 was taken for that of an empty place in the table of blocks.
TEST(FuzzRegression, TheFreeOfAddressZero) {
  using enum OpKind;
  Play({.setup = {},
        .ops = {
            {.kind = kBadFree, .block = 1},
        }});
}

// Work on the legacy stream beside a capture was taken for captured work, which never runs.
TEST(FuzzRegression, AUseOnTheLegacyStreamBesideACapture) {
  using enum OpKind;
  Play({.setup = {.streams = 3, .per_thread = true},
        .ops = {
            {.kind = kAllocate, .stream = 2, .block = 1, .bytes = 65025},
            {.kind = kBeginRoute, .pool = 1},
            {.kind = kAllocate, .block = 2, .bytes = 1},
            {.kind = kUse, .block = 2, .ns = 1},
            {.kind = kUse, .block = 1},
            {.kind = kBeginCapture, .stream = 2},
            {.kind = kFree, .block = 1},
            {.kind = kEndCapture, .stream = 2},
            {.kind = kAllocate, .stream = 2, .block = 3, .bytes = 513},
        }});
}

// What a request of 0 bytes would make the memory grow by was a division by zero.
TEST(FuzzRegression, ARequestOfNothingInDivisions) {
  using enum OpKind;
  Play({.setup = {.conf = "expandable_segments:False,roundup_power2_divisions:4"},
        .ops = {
            {.kind = kAllocate, .block = 1},
        }});
}

}  // namespace
}  // namespace offcut::fuzz
