#include "allocator/core/free_index.h"

#include <bit>

#include "allocator/base/check.h"

namespace offcut {
namespace {

bool Before(const Block& a, const Block& b) {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}

// A fixed pseudo-random priority per address keeps the treap balanced whatever order blocks come
// in, and the same program's tree the same. Fibonacci hashing (Knuth, TAOCP 3, 6.4).
uint64_t Priority(const Block& block) {
  const uint64_t mixed = (block.address / kBlockAlignment) * 0x9E3779B97F4A7C15ull;
  return mixed ^ (mixed >> 32);
}

// Everything before `pivot` to the left, the rest to the right.
void Split(Block* root, const Block& pivot, Block** left, Block** right) {
  while (root != nullptr) {
    if (Before(*root, pivot)) {
      *left = root;
      left = &root->right;
      root = root->right;
    } else {
      *right = root;
      right = &root->left;
      root = root->left;
    }
  }
  *left = nullptr;
  *right = nullptr;
}

// Requires: everything in `left` is before everything in `right`.
Block* Join(Block* left, Block* right) {
  Block* root = nullptr;
  Block** place = &root;
  while (left != nullptr && right != nullptr) {
    if (Priority(*left) >= Priority(*right)) {
      *place = left;
      place = &left->right;
      left = left->right;
    } else {
      *place = right;
      place = &right->left;
      right = right->left;
    }
  }
  *place = left != nullptr ? left : right;
  return root;
}

// In order; false once `visit` has returned false.
bool VisitTree(Block* root, Bytes at_least, absl::FunctionRef<bool(Block&)> visit) {
  if (root == nullptr) return true;
  if (root->size < at_least) return VisitTree(root->right, at_least, visit);
  return VisitTree(root->left, at_least, visit) && visit(*root) &&
         VisitTree(root->right, at_least, visit);
}

}  // namespace

size_t FreeIndex::BinOf(Bytes size) {
  const int log2 = std::bit_width(size) - 1;
  const Bytes step = log2 >= kBinsPerDoublingLog2 ? (size >> (log2 - kBinsPerDoublingLog2)) &
                                                        ((1u << kBinsPerDoublingLog2) - 1)
                                                  : 0;
  return (static_cast<size_t>(log2) << kBinsPerDoublingLog2) + step;
}

size_t FreeIndex::NextBin(size_t bin) const {
  for (size_t word = bin / 64; word < occupied_.size(); ++word) {
    uint64_t bits = occupied_[word];
    if (word == bin / 64) bits &= ~uint64_t{0} << (bin % 64);
    if (bits != 0) return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }
  return kBins;
}

void FreeIndex::Insert(Block* block) {
  const size_t bin = BinOf(block->size);
  Block** place = &roots_[bin];
  const uint64_t priority = Priority(*block);
  while (*place != nullptr && Priority(**place) > priority) {
    place = Before(*block, **place) ? &(*place)->left : &(*place)->right;
  }
  Split(*place, *block, &block->left, &block->right);
  *place = block;
  occupied_[bin / 64] |= uint64_t{1} << (bin % 64);
  ++size_;
}

void FreeIndex::Remove(Block* block) {
  const size_t bin = BinOf(block->size);
  Block** place = &roots_[bin];
  while (*place != block) {
    OFFCUT_CHECK(*place != nullptr, "a free block is missing from its index");
    place = Before(*block, **place) ? &(*place)->left : &(*place)->right;
  }
  *place = Join(block->left, block->right);
  block->left = block->right = nullptr;
  if (roots_[bin] == nullptr) occupied_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  --size_;
}

Block* FreeIndex::FindBestFit(Bytes size) const {
  size_t bin = BinOf(size);
  // Only the request's own bin holds blocks on both sides of it.
  Block* best = nullptr;
  for (Block* block = roots_[bin]; block != nullptr;) {
    if (block->size >= size) {
      best = block;
      block = block->left;
    } else {
      block = block->right;
    }
  }
  if (best != nullptr) return best;
  bin = NextBin(bin + 1);
  if (bin == kBins) return nullptr;
  best = roots_[bin];
  while (best->left != nullptr) best = best->left;
  return best;
}

Block* FreeIndex::FindLargest() const {
  for (size_t word = occupied_.size(); word-- > 0;) {
    if (occupied_[word] == 0) continue;
    Block* block = roots_[word * 64 + 63 - static_cast<size_t>(std::countl_zero(occupied_[word]))];
    while (block->right != nullptr) block = block->right;
    return block;
  }
  return nullptr;
}

void FreeIndex::ForEach(absl::FunctionRef<void(Block&)> visit) const {
  ForEachFrom(0, [&](Block& block) {
    visit(block);
    return true;
  });
}

void FreeIndex::ForEachFrom(Bytes size, absl::FunctionRef<bool(Block&)> visit) const {
  size_t bin = size == 0 ? 0 : BinOf(size);
  for (bin = NextBin(bin); bin != kBins; bin = NextBin(bin + 1)) {
    if (!VisitTree(roots_[bin], size, visit)) return;
  }
}

}  // namespace offcut
