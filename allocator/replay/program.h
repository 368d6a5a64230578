// Program: what one run asked of the allocator of one device, in order and with times, ready to be
// played at millions of operations per second.
//
// Owns a compact array of operations; addresses of the recording became slots, small numbers that
// are reused, so that playing looks nothing up. Built once by ProgramBuilder, which checks that the
// operations make sense together, and immutable from then on.
//
// Uses by other streams. A traced block that was freed at t1 may have been free for reuse only at a
// later t2, because of record_stream. PyTorch's traces do not tell which stream used it, so a free
// carries t2 (`done_ns`) and the number of a *use stream*: a stream of replay's own, that no block
// belongs to and no other work runs on. Before the free, the player records a use on it and submits
// work that ends at t2; so the block is pending until exactly then, through the same events as in
// the program, and nothing else waits for that work. Blocks of one use stream are done in the order
// of their frees, as events of one stream are; blocks that overtook each other are on different
// ones. A recording of Offcut's does tell the streams: those uses are played too (kUse), and the
// use stream is added for the time, because a stream's other work is not in any recording.

#ifndef OFFCUT_ALLOCATOR_REPLAY_PROGRAM_H_
#define OFFCUT_ALLOCATOR_REPLAY_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "allocator/base/units.h"

namespace offcut {

enum class OperationKind : uint8_t {
  kAllocate,    // bytes, slot, stream
  kFree,        // slot; done_ns and stream (a use stream) if other streams used the block
  kUse,         // slot, stream: the block is also used there (record_stream)
  kEmptyCache,  // nothing more
};

struct Operation {
  uint64_t time_ns = 0;  // since the run's first entry; not decreasing
  union {
    Bytes bytes = 0;   // of kAllocate: requested; > 0
    uint64_t done_ns;  // of kFree: when other streams are done with the block; 0: none uses it
  };
  uint32_t slot = 0;
  uint16_t stream = 0;
  OperationKind kind{};
};
static_assert(sizeof(Operation) == 24);

// A segment that the recorded allocator got from the driver; PyTorch's traces tell of these.
struct RecordedSegment {
  DevicePtr address = 0;
  Bytes bytes = 0;
  uint64_t time_ns = 0;
  bool operator==(const RecordedSegment&) const = default;
};

struct Program {
  std::vector<Operation> operations;
  uint32_t slots = 0;  // operations name 0 .. slots - 1
  // Streams of blocks, by index; true for the legacy default stream, which is among them once at
  // most.
  std::vector<bool> stream_is_default;
  uint16_t use_streams = 0;
  uint64_t events = 0;   // allocations and frees among the operations
  uint64_t span_ns = 0;  // time of the last entry, an operation or not
  Bytes peak_live_bytes = 0;
  std::vector<RecordedSegment> segments;
  // What whoever reads figures of this program should know first, one sentence each.
  std::vector<std::string> caveats;
};

// Makes a Program of a recorded run's entries, given in order. Errors tell what is wrong with the
// entry, for the reader to add where it stands; the builder is of no use after one.
class ProgramBuilder {
 public:
  static constexpr uint64_t kOperationsMax = uint64_t{1} << 28;
  // Of one request and of one segment: as much as addresses can tell apart.
  static constexpr Bytes kBytesMax = Bytes{1} << 47;
  static constexpr uint64_t kTimeMaxNs = uint64_t{1} << 62;
  static constexpr uint32_t kStreamsMax = 1 << 15;
  // Beyond these, blocks that overtook each other are pending for longer than recorded.
  static constexpr uint16_t kUseStreamsMax = 64;

  // `stream`: any number that stands for one stream throughout.
  absl::Status Allocate(uint64_t time_ns, DevicePtr address, Bytes bytes, uint64_t stream,
                        bool default_stream);
  // The program freed the block; it may still be in use.
  absl::Status Free(uint64_t time_ns, DevicePtr address);
  // Nothing uses the block any more, which was freed before. A free that is finished before any
  // other operation was done at once.
  absl::Status FinishFree(uint64_t time_ns, DevicePtr address);
  absl::Status Use(uint64_t time_ns, DevicePtr address, uint64_t stream, bool default_stream);
  absl::Status EmptyCache(uint64_t time_ns);
  absl::Status AddSegment(const RecordedSegment& segment);
  void AddCaveat(std::string caveat) { program_.caveats.push_back(std::move(caveat)); }

  // Whether a block at `address` is live, or freed and not finished.
  bool Contains(DevicePtr address) const { return blocks_.contains(address); }
  bool IsLive(DevicePtr address) const;

  // The program, once all entries were given. Blocks that were freed and never finished are in use
  // beyond the end.
  Program Finish() &&;

 private:
  struct Block {
    uint32_t slot = 0;
    Bytes bytes = 0;
    bool live = true;          // else freed and not finished
    uint64_t freed_index = 0;  // of the operation
  };

  absl::Status Add(uint64_t time_ns, const Operation& operation);
  absl::Status FindStream(uint64_t stream, bool default_stream, uint16_t* index);
  void AssignUseStreams();

  Program program_;
  absl::flat_hash_map<DevicePtr, Block> blocks_;
  absl::flat_hash_map<uint64_t, uint16_t> streams_;
  std::vector<uint32_t> free_slots_;
  Bytes live_bytes_ = 0;
  uint64_t unknown_frees_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_PROGRAM_H_
