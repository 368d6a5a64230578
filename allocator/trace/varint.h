// Variable-length integers: seven bits a byte, lowest first, the eighth bit says that more follow
// (as protocol buffers write them). And zigzag, which makes small negative numbers short.

#ifndef OFFCUT_ALLOCATOR_TRACE_VARINT_H_
#define OFFCUT_ALLOCATOR_TRACE_VARINT_H_

#include <cstddef>
#include <cstdint>

namespace offcut {

inline constexpr size_t kMaxVarintBytes = 10;

// 0, -1, 1, -2, ... become 0, 1, 2, 3, ...; `value` is read as two's complement.
constexpr uint64_t ZigZag(uint64_t value) { return (value << 1) ^ (0 - (value >> 63)); }
constexpr uint64_t UnZigZag(uint64_t coded) { return (coded >> 1) ^ (0 - (coded & 1)); }

// Writes at most kMaxVarintBytes and returns the end.
inline uint8_t* WriteVarint(uint8_t* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}

// Returns the end of the number, or nullptr if [in, end) holds no whole one, or one above 2^64-1.
inline const uint8_t* ReadVarint(const uint8_t* in, const uint8_t* end, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64 && in != end; shift += 7) {
    const uint8_t byte = *in++;
    if (shift == 63 && byte > 1) return nullptr;
    result |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      *value = result;
      return in;
    }
  }
  return nullptr;
}

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_TRACE_VARINT_H_
