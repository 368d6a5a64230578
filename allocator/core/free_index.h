// FreeIndex: the free blocks of a pool, for exact best fit.
//
// Finds the smallest block that holds a request and, among equals, the one at the lowest address.
// Blocks are binned by size; a bitmap finds the next bin that is not empty, and within a bin a
// treap, linked through the blocks themselves, keeps the order (size, address). There are so many
// bins (64 per doubling) that few trees hold more than a block or two: with eight, an allocation
// and its free among 1,000 random sizes cost 25 ns more (bench/micro). No heap allocation. Not
// thread-safe: guarded by the device's lock.

#ifndef OFFCUT_ALLOCATOR_CORE_FREE_INDEX_H_
#define OFFCUT_ALLOCATOR_CORE_FREE_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "allocator/base/units.h"
#include "allocator/core/block.h"

namespace offcut {

class FreeIndex {
 public:
  // Requires: `block` is in no index; its size and address do not change while it is here.
  void Insert(Block* block);
  // Requires: `block` is in this index.
  void Remove(Block* block);

  // nullptr if no block holds `size`.
  Block* FindBestFit(Bytes size) const;
  // nullptr if there is none.
  Block* FindLargest() const;

  size_t size() const { return size_; }

  // In order of (size, address). `visit` must not insert or remove.
  void ForEach(absl::FunctionRef<void(Block&)> visit) const;
  // As ForEach, from the blocks of at least `size` on, until `visit` returns false.
  void ForEachFrom(Bytes size, absl::FunctionRef<bool(Block&)> visit) const;

 private:
  static constexpr int kBinsPerDoublingLog2 = 6;
  static constexpr size_t kBins = 64u << kBinsPerDoublingLog2;

  static size_t BinOf(Bytes size);
  // The first bin at or after `bin` that is not empty; kBins if none.
  size_t NextBin(size_t bin) const;

  std::array<Block*, kBins> roots_{};
  std::array<uint64_t, kBins / 64> occupied_{};  // bit i: roots_[i] != nullptr
  size_t size_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_FREE_INDEX_H_
