#include "tests/core/witnesses.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"
#include "allocator/core/audit.h"

namespace offcut {
namespace {

template <typename... Parts>
absl::Status Contradiction(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

std::string Hex(DevicePtr address) { return absl::StrFormat("0x%x", address); }

std::string ToString(const Accounting& sum) {
  return absl::StrCat("live ", sum.live_bytes, " rounding ", sum.rounding_bytes, " pending ",
                      sum.pending_bytes, " private pools free ", sum.private_pools_free_bytes,
                      " pinned ", sum.pinned_bytes, " idle ", sum.idle_bytes, " driver pool free ",
                      sum.driver_pool_free_bytes, " outside ", sum.outside_bytes, " reserved ",
                      sum.reserved_bytes, " device used ", sum.device_used_bytes);
}

}  // namespace

absl::Status Witnesses::Check(const StateView& view) const {
  OFFCUT_RETURN_IF_ERROR(Audit(view));
  OFFCUT_RETURN_IF_ERROR(CheckReplayed(view));
  if (folded_ != view.counters) return Contradiction("counters: not the fold over the events");
  return absl::OkStatus();
}

absl::Status Witnesses::CheckReplayed(const StateView& view) const {
  if (replayed_.inconsistencies() != 0) {
    return Contradiction("replay: ", replayed_.inconsistencies(),
                         " events contradict those before them");
  }
  if (replayed_.blocks().size() != view.taken.size()) {
    return Contradiction("replay: ", replayed_.blocks().size(), " blocks by the events, ",
                         view.taken.size(), " in the allocator");
  }
  for (const StateView::Taken& block : view.taken) {
    const auto it = replayed_.blocks().find(block.address);
    if (it == replayed_.blocks().end() || it->second.requested != block.requested ||
        it->second.size != block.size || it->second.pool != block.pool ||
        it->second.pending != (block.state == BlockState::kPending)) {
      return Contradiction("replay: the events do not tell of the block of ", block.size,
                           " bytes at ", Hex(block.address), " as the allocator has it");
    }
  }
  if (replayed_.granules().size() != view.granules.size()) {
    return Contradiction("replay: ", replayed_.granules().size(), " granules by the events, ",
                         view.granules.size(), " in the allocator");
  }
  for (const StateView::GranuleView& granule : view.granules) {
    const uint32_t id = granule.index | (granule.small ? kSmallGranuleBit : 0);
    const auto it = replayed_.granules().find(id);
    if (it == replayed_.granules().end() || it->second.mapped_at != granule.mapped_at) {
      return Contradiction("replay: the events do not tell of granule ", granule.index, " at ",
                           Hex(granule.mapped_at));
    }
  }
  if (replayed_.driver_pools().size() != view.driver_pools.size()) {
    return Contradiction("replay: ", replayed_.driver_pools().size(),
                         " driver's pools by the events, ", view.driver_pools.size(),
                         " in the allocator");
  }
  for (const StateView::DriverPoolView& pool : view.driver_pools) {
    const auto it = replayed_.driver_pools().find(pool.number);
    if (it == replayed_.driver_pools().end() || it->second != pool.reserved_bytes) {
      return Contradiction("replay: the events do not tell of the driver's pool ", pool.number,
                           " of ", pool.reserved_bytes, " bytes");
    }
  }
  if (replayed_.reserved_bytes() != view.reserved_bytes) {
    return Contradiction("replay: reserved ", replayed_.reserved_bytes(), " by the events, ",
                         view.reserved_bytes, " in the allocator");
  }
  const Accounting told = replayed_.Account();
  const Accounting due = view.Account(replayed_.device_used_bytes());
  if (told != due) {
    return Contradiction("replay: the sum by the events is ", ToString(told), "; by the state ",
                         ToString(due));
  }
  return absl::OkStatus();
}

absl::Status CheckDriverBooks(sim::DeviceModel& model, const std::vector<StateView>& views,
                              const sim::MemoryCensus& outside) {
  Bytes reserved = 0, mapped = 0, of_graphs = 0;
  bool has_driver_pools = false, heard_of_late = false;
  for (const StateView& view : views) {
    reserved += view.reserved_bytes;
    mapped += static_cast<Bytes>(view.counters.mapped_bytes[0].current +
                                 view.counters.old_mapping_bytes[0].current);
    for (const StateView::DriverPoolView& pool : view.driver_pools) {
      const bool is_graphs = pool.number == kGraphMemory || pool.number == kPrivateGraphMemory;
      if (is_graphs) of_graphs += pool.reserved_bytes;
      has_driver_pools |= !is_graphs;
      heard_of_late |= pool.heard_of_late;
    }
  }
  const sim::MemoryCensus census = model.memory().Census();
  // What graphs hold is theirs, however much of it our blocks take.
  const Bytes theirs = outside.physical_bytes + model.pools().GraphBytes();
  const Bytes held = census.physical_bytes + census.allocation_bytes - theirs;
  const Bytes in_place = census.mapped_bytes + census.allocation_bytes - outside.mapped_bytes -
                         model.pools().GraphBytes();
  const bool agree = has_driver_pools
                         ? held <= reserved - of_graphs && in_place <= mapped - of_graphs
                         : held == reserved - of_graphs && in_place == mapped - of_graphs;
  if (!agree && !heard_of_late) {
    return Contradiction("driver: it holds ", held, " bytes, ", in_place,
                         " with an address, where the allocators say ", reserved - of_graphs,
                         " and ", mapped - of_graphs);
  }
  return absl::OkStatus();
}

}  // namespace offcut
