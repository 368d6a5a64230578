#include "allocator/core/block_table.h"

#include <utility>

namespace offcut {

void BlockTable::ForEach(absl::FunctionRef<void(DevicePtr, Block*)> visit) const {
  for (const Place& place : places_) {
    if (place.address != 0) visit(place.address, place.block);
  }
}

void BlockTable::GrowSlow() {
  const std::vector<Place> before = std::exchange(places_, std::vector<Place>(2 * places_.size()));
  mask_ = places_.size() - 1;
  --shift_;
  for (const Place& place : before) {
    if (place.address != 0) Put(place.block);
  }
}

}  // namespace offcut
