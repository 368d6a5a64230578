#include "allocator/trace/checksum.h"

#include <xxhash.h>

namespace offcut {

uint64_t Checksum(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, first.data(), first.size());
  XXH3_64bits_update(&state, second.data(), second.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace offcut
