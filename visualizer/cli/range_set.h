// RangeSet: which addresses are covered, as the fewest ranges.
//
// Add and Remove say whether what they were given was wholly absent, or wholly present, before. Not
// thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_RANGE_SET_H_
#define OFFCUT_VISUALIZER_CLI_RANGE_SET_H_

#include <algorithm>
#include <iterator>
#include <map>

#include "allocator/base/units.h"

namespace offcut {

class RangeSet {
 public:
  // Requires for all: begin < end.
  bool Add(DevicePtr begin, DevicePtr end) {
    const bool absent = !Intersects(begin, end);
    auto it = FirstEndingAt(begin);
    while (it != ranges_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    ranges_.emplace(begin, end);
    return absent;
  }

  bool Remove(DevicePtr begin, DevicePtr end) {
    const bool present = Covers(begin, end);
    auto it = FirstEndingAt(begin);
    while (it != ranges_.end() && it->first < end) {
      const auto [old_begin, old_end] = *it;
      it = ranges_.erase(it);
      if (old_begin < begin) ranges_.emplace(old_begin, begin);
      if (old_end > end) ranges_.emplace(end, old_end);
    }
    return present;
  }

  bool Covers(DevicePtr begin, DevicePtr end) const {
    auto it = ranges_.upper_bound(begin);
    return it != ranges_.begin() && std::prev(it)->second >= end;
  }

  bool Intersects(DevicePtr begin, DevicePtr end) const {
    auto it = ranges_.lower_bound(end);
    return it != ranges_.begin() && std::prev(it)->second > begin;
  }

 private:
  // The first range that ends at `address` or behind it.
  std::map<DevicePtr, DevicePtr>::iterator FirstEndingAt(DevicePtr address) {
    auto it = ranges_.upper_bound(address);
    if (it != ranges_.begin() && std::prev(it)->second >= address) --it;
    return it;
  }

  std::map<DevicePtr, DevicePtr> ranges_;  // begin to end; neither overlapping nor touching
};

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_RANGE_SET_H_
