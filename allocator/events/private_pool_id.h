// PrivatePoolId: the name of a private pool, as PyTorch gives it (MempoolId_t).
//
// Exactly one of the two numbers is nonzero: `first` of pools that a CUDA graph makes for itself,
// `second` of those that a program makes and hands around. {0, 0} names the default pools. A value.

#ifndef OFFCUT_ALLOCATOR_EVENTS_PRIVATE_POOL_ID_H_
#define OFFCUT_ALLOCATOR_EVENTS_PRIVATE_POOL_ID_H_

#include <compare>
#include <cstdint>

namespace offcut {

struct PrivatePoolId {
  uint64_t first = 0;
  uint64_t second = 0;

  bool is_valid() const {
    return (first == 0) != (second == 0) && first < kSecondBit && second < kSecondBit;
  }
  // The one number that events hold: `first` if it is not zero, else bit 63 and `second`. 0 is no
  // private pool. Requires: is_valid().
  uint64_t Encode() const { return first != 0 ? first : kSecondBit | second; }
  static PrivatePoolId Decode(uint64_t code) {
    return (code & kSecondBit) != 0 ? PrivatePoolId{.second = code & ~kSecondBit}
                                    : PrivatePoolId{.first = code};
  }

  auto operator<=>(const PrivatePoolId&) const = default;

 private:
  static constexpr uint64_t kSecondBit = uint64_t{1} << 63;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_PRIVATE_POOL_ID_H_
