// PoolBook: the private pools of one machine, as the program that uses them knows them.
//
// Counts uses and routes, and says what the allocator must answer: it shares nothing with it.
// Pools are named by number, from 1 on, on each device; a number that was released names another
// pool the next time, so each pool has a name of its own beside. Thread-safe, but pointers to pools
// are for a program that is alone, or that uses the pool by itself.

#ifndef OFFCUT_TESTS_FUZZ_POOL_BOOK_H_
#define OFFCUT_TESTS_FUZZ_POOL_BOOK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "allocator/base/units.h"
#include "allocator/core/pool_checkpoint.h"
#include "allocator/events/private_pool_id.h"
#include "tests/fuzz/claims.h"

namespace offcut::fuzz {

class PoolBook {
 public:
  struct CheckpointedBlock {
    uint32_t name = 0;
    DevicePtr address = 0;
    Bytes bytes = 0;
    Bytes requested = 0;
    uint8_t stream = 0;
    StreamHandle handle = nullptr;
    StreamId id = 0;
  };
  struct Checkpoint {
    PoolCheckpoint taken;
    std::vector<CheckpointedBlock> blocks;
  };
  struct Pool {
    Claims::Pool name = 0;
    uint32_t uses = 0;
    uint32_t routes = 0;
    bool served = false;    // a request, ever
    bool no_split = false;  // since before the first request
    bool lends = false;     // now
    bool has_lent = false;  // or may have
    bool launched = false;  // as a graph
    std::optional<Checkpoint> checkpoint;
  };
  // What a route leads: requests for a stream, of a thread, or all.
  struct Route {
    DeviceIndex device = 0;
    uint32_t number = 0;
    const void* thread = nullptr;  // nullptr: of all
    std::optional<StreamHandle> stream;

    bool Leads(const void* from_thread, StreamHandle for_stream) const {
      return (thread == nullptr || thread == from_thread) &&
             (!stream.has_value() || *stream == for_stream);
    }
  };

  static PrivatePoolId IdOf(uint32_t number) {
    return number % 2 != 0 ? PrivatePoolId{.first = number} : PrivatePoolId{.second = number};
  }

  // nullptr if nobody uses it.
  Pool* Find(DeviceIndex device, uint32_t number);
  void Retain(DeviceIndex device, uint32_t number);
  // Requires: it has a use. Returns the pool's name if that was the last.
  std::optional<Claims::Pool> Release(DeviceIndex device, uint32_t number);
  // Requires: no route leads there.
  void Begin(const Route& route);
  // Requires: a route leads there. Returns as Release does.
  std::optional<Claims::Pool> End(DeviceIndex device, uint32_t number);
  // The number of the pool that a request goes to, 0: a default pool.
  uint32_t Lead(DeviceIndex device, const void* thread, StreamHandle stream) const;

  void ForEach(absl::FunctionRef<void(DeviceIndex, uint32_t number, const Pool&)> visit) const;

 private:
  using Key = std::pair<DeviceIndex, uint32_t>;
  std::optional<Claims::Pool> ForgetIfUnused(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<Key, Pool> pools_ ABSL_GUARDED_BY(mutex_);
  std::vector<Route> routes_ ABSL_GUARDED_BY(mutex_);  // the latest last
  Claims::Pool next_name_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_POOL_BOOK_H_
