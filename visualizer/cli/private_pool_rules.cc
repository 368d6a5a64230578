#include "visualizer/cli/private_pool_rules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/driver/driver.h"

namespace offcut {

PrivatePoolRules::Owner PrivatePoolRules::OwnerOf(uint16_t pool) const {
  const auto it = pools_.find(pool);
  return it == pools_.end() ? nullptr : it->second;
}

std::string PrivatePoolRules::Apply(const Event& event, bool foreign) {
  const DevicePtr waited_free = std::exchange(waited_free_, 0);
  switch (event.kind) {
    case EventKind::kPrivatePoolCreated:
      in_use_[event.bytes] = std::make_shared<PrivatePool>();
      break;
    case EventKind::kPrivatePoolReleased:
      if (const auto it = in_use_.find(event.bytes); it != in_use_.end()) {
        it->second->in_use = false;
        it->second->touched_ns = event.time_ns;
        in_use_.erase(it);
      }
      break;
    case EventKind::kPoolCreated: {
      // Indexes of private pools are given out again.
      const auto it = in_use_.find(event.bytes);
      if (event.bytes == 0 || it == in_use_.end()) {
        pools_.erase(event.pool);
      } else {
        pools_[event.pool] = it->second;
      }
      break;
    }
    case EventKind::kGranuleCreated:
      if (Owner owner = OwnerOf(event.pool); owner != nullptr) {
        granules_[event.extra] = std::move(owner);
      }
      break;
    case EventKind::kGranuleMapped:
      if (const auto it = granules_.find(event.extra); it != granules_.end()) {
        mappings_[event.address] = {.end = event.address + event.bytes, .owner = it->second};
      }
      break;
    case EventKind::kGranuleMoved:
      if (granules_.contains(event.extra)) return "memory of a private pool is moved";
      break;
    case EventKind::kGranuleUnmapped:
      waited_free_ = waited_free;
      return Unmap(event);
    case EventKind::kGranuleReleased:
      granules_.erase(event.extra);
      break;
    case EventKind::kBlockAllocated:
      return CheckNewBlock(event, foreign);
    // That a pending block's other users have passed is proven apart.
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended:
      if (const Owner owner = OwnerOf(event.pool); owner != nullptr) {
        owner->touched_ns = event.time_ns;
      }
      break;
    case EventKind::kDeviceWaited:
      proven_ns_ = std::max(proven_ns_, event.time_ns - std::min(event.time_ns, event.bytes));
      break;
    case EventKind::kDriverCalled:
      if ((event.extra & 0xFF) == static_cast<uint32_t>(DriverCall::kFreeMemory)) {
        waited_free_ = event.address;
      }
      break;
    default:
      break;
  }
  return "";
}

std::string PrivatePoolRules::CheckNewBlock(const Event& event, bool foreign) const {
  // Which may lie anywhere, within a block of the program's, too.
  if (foreign) return "";
  const Owner owner = OwnerOf(event.pool);
  const auto behind = mappings_.lower_bound(event.address + event.block_bytes());
  const auto before = behind == mappings_.begin() ? mappings_.end() : std::prev(behind);
  const bool within = before != mappings_.end() && before->second.end > event.address;
  const Owner memory_of = within ? before->second.owner : nullptr;
  if (memory_of == owner) return "";
  if (memory_of == nullptr)
    return "the block of a private pool lies in memory of the default pools";
  return "the block lies in memory of a private pool that is not its own";
}

std::string PrivatePoolRules::Unmap(const Event& event) {
  const auto it = mappings_.find(event.address);
  if (it == mappings_.end()) return "";
  const Owner owner = it->second.owner;
  mappings_.erase(it);
  if (owner->in_use) return "memory of a private pool in use is unmapped";
  if (std::exchange(waited_free_, 0) == event.address) return "";
  if (proven_ns_ >= owner->touched_ns) return "";
  return absl::StrCat(
      "memory of a released private pool is unmapped, and the device was not waited "
      "for since ",
      owner->touched_ns, " ns");
}

}  // namespace offcut
