// Claims: no two owners of one byte, in stream order.
//
// Each block claims the physical bytes behind it, named by (buffer, offset) as the simulated memory
// model tells them, not by address: a byte that is reachable through two mappings is one byte.
// Work that streams do on a block counts as a use of its bytes until that work is done. A new claim
// is wrong if a byte of it belongs to a block that is not freed, or if work of another stream than
// the new owner's is not done with it. What the allocator believes plays no part.
//
// Memory is also a pool's, from its first block on: no other pool's block may ever lie in it, but
// for those that a private pool lends to (use_on_oom); and while a private pool is in use, its
// memory stays where it is, freed or not, for a graph may run there.
//
// Thread-safe. To keep claims true while several threads allocate, a block is freed here before it
// is freed in the allocator, and claimed after the allocator has served it.

#ifndef OFFCUT_TESTS_FUZZ_CLAIMS_H_
#define OFFCUT_TESTS_FUZZ_CLAIMS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"
#include "allocator/sim/memory_model.h"
#include "allocator/sim/sim_clock.h"

namespace offcut::fuzz {

class Claims {
 public:
  // Names a block from its claim to its free; never 0.
  using Owner = uint64_t;
  // Names a private pool from its making to its release; 0: the default pools.
  using Pool = uint64_t;
  struct Place {
    DevicePtr address = 0;
    Bytes bytes = 0;
    bool operator==(const Place&) const = default;
  };

  // Both outlive the claims.
  Claims(const sim::MemoryModel& memory, const sim::SimClock& clock)
      : memory_(memory), clock_(clock) {}

  // The block of `owner`, handed out just now for use on `stream`, for a request to `pool`. Returns
  // the pool that the memory is of: another one if that lends.
  absl::StatusOr<Pool> Claim(Owner owner, DevicePtr address, Bytes bytes, StreamId stream,
                             Pool pool = 0);

  // Work on `stream`, submitted just now, uses the block until `done_ns`.
  absl::Status Use(Owner owner, StreamId stream, uint64_t done_ns);

  // The block's own stream waits for all uses so far: what it is given from now on starts at
  // `own_ns` at the earliest.
  absl::Status Join(Owner owner, uint64_t own_ns);

  // The program frees the block. Uses that are not done stay on its bytes.
  absl::Status Free(Owner owner);

  // Whether blocks of `pool` may serve requests to default pools.
  void SetLends(Pool pool, bool lends);
  // Nobody uses the pool any more: its memory may go.
  void ReleasePool(Pool pool);
  // The memory of a pool in use.
  std::vector<Place> MemoryOf(Pool pool) const;
  // Whether all memory of private pools in use is where it was.
  absl::Status CheckPools() const;

  // Forgets freed bytes whose uses are done.
  void Prune();

 private:
  // Work of one stream, done at a time.
  using Uses = absl::InlinedVector<std::pair<StreamId, uint64_t>, 2>;
  struct Point {
    uint64_t buffer = 0;
    Bytes offset = 0;
    auto operator<=>(const Point&) const = default;
  };
  struct Span {
    Bytes end = 0;    // offset behind its last byte
    Owner owner = 0;  // 0: freed
    Uses left;        // of a freed span: uses that were not done at the free
  };
  struct Piece {
    Point point;
    Bytes bytes = 0;
    Place buffer;
    bool operator==(const Piece&) const = default;
  };
  struct Block {
    DevicePtr address = 0;
    Bytes bytes = 0;
    StreamId stream = 0;
    std::vector<Piece> pieces;
    Uses uses;
  };
  using Spans = absl::btree_map<Point, Span>;
  // Whose memory a buffer is.
  struct Tenant {
    Pool pool = 0;
    Place place;
    bool in_use = false;  // of a private pool
  };

  // The physical bytes behind an address range; an error if there are none.
  absl::StatusOr<std::vector<Piece>> PiecesOf(DevicePtr address, Bytes bytes) const;
  absl::StatusOr<Block*> Find(Owner owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckUnmoved(Owner owner, const Block& block) const;
  bool IsThere(uint64_t buffer, const Tenant& tenant) const;
  // As Claim, of pools alone.
  absl::StatusOr<Pool> Settle(const std::vector<Piece>& pieces, Owner owner, Pool pool)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes all spans of a piece; calls `visit` with each before.
  template <typename Visit>
  absl::Status CarveOut(const Piece& piece, Visit visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Add(Uses& uses, StreamId stream, uint64_t done_ns);

  const sim::MemoryModel& memory_;
  const sim::SimClock& clock_;
  mutable absl::Mutex mutex_;
  Spans spans_ ABSL_GUARDED_BY(mutex_);  // do not overlap
  absl::flat_hash_map<Owner, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);  // by buffer
  absl::flat_hash_set<Pool> lenders_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_CLAIMS_H_
