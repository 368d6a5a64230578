// Machine: a simulated machine with the allocators of all its devices, and all that holds them
// against each other. Player: plays operations on it.
//
// Every failure is a status that begins with the name of the witness: audit, replay, counters,
// driver, claims, misuse, capture, answer, leak. Thread-safe as far as several players need it
// (one for each thread); Open, Check and Close want no player at work.

#ifndef OFFCUT_TESTS_FUZZ_MACHINE_H_
#define OFFCUT_TESTS_FUZZ_MACHINE_H_

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "allocator/driver/faulty_driver.h"
#include "allocator/sim/sim_driver.h"
#include "tests/fuzz/claims.h"
#include "tests/fuzz/core_under_test.h"
#include "tests/fuzz/misuse_watch.h"
#include "tests/fuzz/pool_book.h"
#include "tests/fuzz/program.h"

namespace offcut::fuzz {

// What a test puts in the place of the real thing, to see it found out; and who listens.
struct Replacements {
  std::function<std::unique_ptr<Driver>(Driver*)> driver;
  std::function<std::unique_ptr<CoreUnderTest>(SimDriver&, Driver&)> core;
  std::vector<EventSink*> sinks;  // by device; they outlive the machine
};

// Operations played, by kind, and those of them that made no sense where they stood. Of all
// programs that count into it, in whatever threads and processes.
struct Tally {
  std::array<std::atomic<uint64_t>, kOpKinds> played{};
  std::array<std::atomic<uint64_t>, kOpKinds> without_effect{};

  uint64_t operations() const;
};

class Machine {
 public:
  struct Stream {
    StreamHandle handle = nullptr;
    StreamId id = 0;
    bool exists = false;
    bool blocking = false;
    bool capturing = false;
  };
  // A block in the program's hands.
  struct Block {
    Claims::Owner owner = 0;
    DevicePtr address = 0;
    Bytes bytes = 0;  // of the block, at least what was requested
    Bytes requested = 0;
    DeviceIndex device = 0;
    uint8_t stream = 0;  // its own, on its device
    StreamHandle handle = nullptr;
    StreamId id = 0;
    Claims::Pool pool = 0;  // that its memory is of
    // Whether the allocator was told of another stream's use. Of a stream that has the handle of
    // one that was destroyed, it may take the one for the other.
    bool told = false;
    bool maybe_told = false;
    // Work of other streams than its own that was not joined.
    struct Use {
      DeviceIndex device;
      uint8_t stream;
      StreamId id;
      uint64_t done_ns;
      bool recorded;  // the allocator knows
    };
    std::vector<Use> uses;
    bool live = true;
  };

  explicit Machine(const Setup& setup, const Replacements& replacements = {});
  ~Machine();

  absl::Status Open();
  // Every witness that needs a look at the whole state.
  absl::Status Check();
  // Ends captures and faults, frees what was handed over. Then: all memory goes back, the next
  // request is served, and nothing is left at the driver once the allocators are gone. The players
  // have freed their blocks.
  absl::Status Close();
  // Instead, after an Open that failed: nothing is left at the driver.
  absl::Status CloseUnopened();

  FaultyDriver& driver() { return driver_; }

 private:
  friend class Player;

  // Of the calling thread, if each has its own.
  Stream StreamAt(DeviceIndex device, uint8_t stream);
  bool IsPerThread(uint8_t stream) const {
    return setup_.per_thread && stream != 0 && stream == setup_.streams - 1;
  }
  // Whether work given to the stream would hurt a capture.
  bool IsImplicit(DeviceIndex device, uint8_t stream) const;
  bool AnyCapture() const { return captures_ > 0; }
  bool IsOpen(DeviceIndex device, DeviceIndex peer) const;
  absl::Status CreateStream(DeviceIndex device, uint8_t stream);
  absl::Status EndCapture(DeviceIndex device, uint8_t stream);
  // Makes `waiting` wait for all work on `stream` so far.
  absl::Status WaitFor(DeviceIndex device, StreamHandle waiting, DeviceIndex awaited_device,
                       StreamHandle awaited);
  // Nobody uses a private pool of the device any more.
  absl::Status ReleaseAllPools();
  absl::Status CheckAllGoesBack();
  absl::Status CheckNothingIsLeft();
  // What the driver holds against the core comes before what came of it.
  absl::Status WithMisuse(const absl::Status& status) const;

  const Setup setup_;
  SimDriver sim_;
  MisuseWatch watch_{&sim_};
  std::unique_ptr<Driver> replaced_driver_;
  FaultyDriver driver_;
  Claims claims_;
  std::unique_ptr<CoreUnderTest> core_;
  const std::vector<EventSink*> sinks_;

  std::vector<std::vector<Stream>> streams_;  // by device
  int captures_ = 0;
  std::vector<std::atomic<Bytes>> limits_;  // by device
  std::atomic<Claims::Owner> next_owner_{1};
  std::atomic<uint32_t> next_player_{0};
  PoolBook pools_;

  mutable absl::Mutex mutex_;
  std::set<std::pair<DeviceIndex, DeviceIndex>> open_ ABSL_GUARDED_BY(mutex_);
  std::deque<Block> handed_over_ ABSL_GUARDED_BY(mutex_);
};

class Player {
 public:
  // `alone`: no other player is at work, so that more can be expected of each operation.
  // `tally` may be nullptr.
  Player(Machine& machine, bool alone, Tally* tally = nullptr);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // An error if the operation, by itself, went wrong.
  absl::Status Play(const Op& op);
  absl::Status FreeAll();

 private:
  friend class Machine;
  using Block = Machine::Block;

#define FUZZ_OP(name, sentence) absl::Status name(const Op& op);
#include "tests/fuzz/ops.def"
#undef FUZZ_OP

  absl::Status PlayOne(const Op& op);
  // The operation makes no sense where it stands.
  absl::Status Skip() {
    skipped_ = true;
    return absl::OkStatus();
  }
  // nullptr if there is no such block in the program's hands.
  Block* Live(uint32_t block);
  // Enters a block that the allocator handed out under the name, after all checks.
  absl::Status Enter(uint32_t name, Block block, Claims::Pool pool);
  absl::Status Release(Block& block);
  absl::Status SettleUses(Block& block);
  // Waits for the uses that the allocator does not know.
  void AwaitUnrecorded(Block& block);

  // --- Private pools (player_pools.cc) ---
  // As the allocator knows it: each of several players has pools of its own.
  uint32_t PoolNumber(const Op& op) const;
  PoolBook::Pool* FindPool(const Op& op);
  // Holds an answer against what the book expects.
  absl::Status ExpectAnswer(const Op& op, const absl::Status& answer, absl::StatusCode expected);
  absl::Status CheckUseCount(const Op& op);
  void Forget(std::optional<Claims::Pool> released);
  std::vector<Block*> BlocksOf(Claims::Pool pool);
  // Which thread's routes lead requests of this player; nullptr if it is alone.
  const void* Thread() const { return alone_ ? nullptr : this; }
  bool FreeOneWhenShort();
  absl::Status ExplainRefusal(const Op& op, const absl::Status& refusal, bool faulted,
                              bool routed) const;
  absl::Status CheckAnswer(const Block& block, DevicePtr address) const;
  // Whether nothing that a program may do stands in the way of the strictest expectations.
  bool Undisturbed() const;

  // Plays on the calling thread.
  static thread_local const Player* playing_;

  Machine& machine_;
  const bool alone_;
  const uint32_t index_;  // among the players
  Tally* const tally_;
  bool skipped_ = false;                     // the present operation
  absl::btree_map<uint32_t, Block> blocks_;  // freed ones, too
  std::deque<uint32_t> free_when_short_;
  absl::Status callback_status_;  // of what was freed while memory was short
};

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_MACHINE_H_
