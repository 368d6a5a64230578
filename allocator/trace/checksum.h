// The format's checksum: XXH3-64 (seed 0) over two pieces, as if they were one.

#ifndef OFFCUT_ALLOCATOR_TRACE_CHECKSUM_H_
#define OFFCUT_ALLOCATOR_TRACE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace offcut {

uint64_t Checksum(absl::Span<const uint8_t> first, absl::Span<const uint8_t> second = {});

// The bytes of `value` up to, and without, its last member `checksum` and what comes after.
template <typename Header>
absl::Span<const uint8_t> BytesBeforeChecksum(const Header& value) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(&value), offsetof(Header, checksum));
}

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_CHECKSUM_H_
