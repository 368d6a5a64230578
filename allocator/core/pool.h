// Pool: the memory of one stream, or of one private pool and stream.
//
// Free memory never passes from one pool to another but by the layout that owns both, with proof
// that no work uses it. Each layout derives its own kind. Guarded by the device's lock; a Pool
// lives as long as its allocator, so a pointer to one outlasts a wait without the lock.

#ifndef OFFCUT_ALLOCATOR_CORE_POOL_H_
#define OFFCUT_ALLOCATOR_CORE_POOL_H_

#include <cstdint>

#include "allocator/core/stream_ledger.h"

namespace offcut {

class Layout;

struct Pool {
  Pool(uint16_t pool_index, StreamLedger::Stream& pool_stream, Layout& pool_layout)
      : index(pool_index), stream(pool_stream), layout(pool_layout) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  virtual ~Pool() = default;

  const uint16_t index;
  StreamLedger::Stream& stream;
  Layout& layout;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_POOL_H_
