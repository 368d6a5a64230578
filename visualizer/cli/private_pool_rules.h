// PrivatePoolRules: what a recording must not show of private pools, whose memory graphs may use at
// any time.
//
// While a private pool is in use its memory is unmapped by nobody; it never is moved, and never
// serves another pool, nor does its pool use other memory; once released, it is unmapped only after
// a wait for the whole device that began after the release and after the last free there. Follows
// the events by itself; a value, not thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_PRIVATE_POOL_RULES_H_
#define OFFCUT_VISUALIZER_CLI_PRIVATE_POOL_RULES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "allocator/base/units.h"
#include "allocator/events/event.h"

namespace offcut {

class PrivatePoolRules {
 public:
  // What the event breaks; "": nothing. `foreign`: of a new block, whether it lies in memory that
  // we do not map: of an allocator of somebody else's, or of the driver's own pools.
  std::string Apply(const Event& event, bool foreign);

 private:
  // One private pool, from its making to its release and on.
  struct PrivatePool {
    bool in_use = true;
    uint64_t touched_ns = 0;  // the last of its release and of all frees in it
  };
  using Owner = std::shared_ptr<PrivatePool>;  // nullptr: the default pools
  struct Mapping {
    DevicePtr end = 0;
    Owner owner;
  };

  Owner OwnerOf(uint16_t pool) const;
  std::string CheckNewBlock(const Event& event, bool foreign) const;
  std::string Unmap(const Event& event);

  std::map<uint64_t, Owner> in_use_;       // by private pool id
  std::map<uint16_t, Owner> pools_;        // private ones, by index
  std::map<uint32_t, Owner> granules_;     // private ones, by id
  std::map<DevicePtr, Mapping> mappings_;  // of those
  uint64_t proven_ns_ = 0;                 // what was submitted by then is done: a wait began
  DevicePtr waited_free_ = 0;  // address of a cuMemFree, which waits by itself, just before
};

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_PRIVATE_POOL_RULES_H_
