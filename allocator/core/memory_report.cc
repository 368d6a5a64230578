#include "allocator/core/memory_report.h"

#include <algorithm>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/format.h"
#include "allocator/events/private_pool_id.h"

namespace offcut {
namespace {

void AppendTerm(std::string& text, const char* sign, const char* term, Bytes bytes,
                const std::string& meaning) {
  absl::StrAppendFormat(&text, "  %s %-12s %12s  %s\n", sign, term, FormatBytes(bytes), meaning);
}

std::string Split(Bytes own, Bytes all) {
  return absl::StrCat(" (this stream's pool: ", FormatBytes(own),
                      ", other streams': ", FormatBytes(all - std::min(own, all)), ")");
}

bool IsTaken(BlockState state) {
  return state == BlockState::kLive || state == BlockState::kPending;
}

// A part of a tile or slot, as far as it lies at one place of a granule.
struct Piece {
  DevicePtr place = 0;
  DevicePtr block = 0;
  Bytes bytes = 0;
  uint16_t pool = kNoPool;
  BlockState state{};
};

// Visits everything in the arena that is live, pending or free, in order of address.
void ForEachPiece(const StateView::ArenaView& arena, absl::FunctionRef<void(const Piece&)> visit) {
  const auto visit_range = [&](DevicePtr block, Bytes size, BlockState state, uint16_t pool) {
    if (!IsTaken(state) && state != BlockState::kFree) return;
    const DevicePtr end = block + size;
    for (DevicePtr address = block; address < end;) {
      const DevicePtr place = arena.base + RoundDown(address - arena.base, arena.granularity);
      const DevicePtr piece_end = std::min(end, place + arena.granularity);
      visit({.place = place,
             .block = block,
             .bytes = piece_end - address,
             .pool = pool,
             .state = state});
      address = piece_end;
    }
  };
  for (const StateView::Tile& tile : arena.tiles) {
    visit_range(tile.address, tile.size, tile.state, tile.pool);
    for (const StateView::Slot& slot : tile.slots) {
      visit_range(slot.address, slot.size, slot.state, tile.pool);
    }
  }
}

// What lies in one granule.
struct GranuleContent {
  std::map<uint16_t, Bytes> free;  // by pool
  DevicePtr block = 0;             // the last that is taken
  uint32_t blocks = 0;             // how many are taken
};

std::string NameOf(uint64_t private_pool_id) {
  if (private_pool_id == 0) return "default";
  const PrivatePoolId id = PrivatePoolId::Decode(private_pool_id);
  return absl::StrCat("private (", id.first, ", ", id.second, ")");
}

}  // namespace

void MemoryReport::AddState(const StateView& view, uint16_t own_pool, Bytes device_used_bytes) {
  pool = own_pool;
  accounting = view.Account(device_used_bytes);
  std::map<uint16_t, PoolFigures> figures;
  std::map<DevicePtr, PinningBlock> blocks;
  for (const StateView::Taken& block : view.taken) {
    const bool pending = block.state == BlockState::kPending;
    (pending ? figures[block.pool].pending : figures[block.pool].live) +=
        pending ? block.size : block.requested;
    blocks[block.address] = {.address = block.address,
                             .requested = block.requested,
                             .pool = block.pool,
                             .pending = pending};
  }
  for (const StateView::ArenaView& arena : view.arenas) {
    std::map<DevicePtr, uint32_t> granule_at;  // a large granule covers several places
    for (const StateView::MappedGranule& mapped : arena.granules) {
      granule_at[mapped.address] = mapped.index;
    }
    std::map<uint32_t, GranuleContent> granules;
    ForEachPiece(arena, [&](const Piece& piece) {
      const auto at = granule_at.find(piece.place);
      GranuleContent& granule = granules[at == granule_at.end() ? kNoGranule : at->second];
      if (piece.state == BlockState::kFree) {
        granule.free[piece.pool] += piece.bytes;
        figures[piece.pool].free += piece.bytes;
      } else if (granule.block != piece.block) {
        granule.block = piece.block;
        ++granule.blocks;
      }
    });
    if (arena.foreign) continue;
    for (const auto& [index, granule] : granules) {
      for (const auto& [owner, bytes] : granule.free) {
        const bool is_private = view.pools[owner].private_pool_id != 0;
        if (granule.blocks == 1 && !is_private) blocks[granule.block].pinned += bytes;
        if (owner != own_pool) continue;
        (is_private           ? own_private_free_bytes
         : granule.blocks > 0 ? own_pinned_bytes
                              : own_idle_bytes) += bytes;
      }
    }
  }
  for (const StateView::FreeEntry& entry : view.free) {
    Bytes& largest = entry.pool == own_pool ? own_largest_free : other_largest_free;
    largest = std::max(largest, entry.size);
    Bytes& of_pool = figures[entry.pool].largest_free;
    of_pool = std::max(of_pool, entry.size);
  }
  for (auto& [index, one] : figures) {
    one.index = index;
    one.private_pool_id = view.pools[index].private_pool_id;
    pools.push_back(one);
  }
  for (const auto& [address, block] : blocks) {
    if (block.pinned > 0) pinning.push_back(block);
  }
  std::stable_sort(
      pinning.begin(), pinning.end(),
      [](const PinningBlock& a, const PinningBlock& b) { return a.pinned > b.pinned; });
  pinning.resize(std::min(pinning.size(), kMostPinning));
}

std::string MemoryReport::ToText() const {
  const Accounting& sum = accounting;
  std::string text = absl::StrCat(
      "Offcut: a request of ", FormatBytes(requested), " (", requested, " bytes) on device ",
      device, " (", device_name, "), stream #", stream_index, ", failed: ", Describe(reason),
      at_limit ? ", and the limit would not have allowed it either" : "", ".\n");
  if (!cause.empty()) absl::StrAppend(&text, "  cause: ", cause, "\n");
  if (capturing) {
    absl::StrAppend(&text,
                    "  a stream is being captured into a CUDA graph: until that ends, nothing "
                    "can be waited for, moved or given back.\n");
  } else if (wait_refused) {
    absl::StrAppend(&text,
                    "  CUDA refused to wait for the device, as it does while a stream is being "
                    "captured into a CUDA graph: idle memory could not be given back.\n");
  }
  absl::StrAppend(&text, "  limit: ",
                  limit == kNoLimit ? std::string("none but the device")
                                    : absl::StrCat(FormatBytes(limit), " reserved"),
                  "; device: ", FormatBytes(sum.device_used_bytes), " used of ",
                  FormatBytes(device_total_bytes), ".\n");
  absl::StrAppend(&text, "  Where the memory is:\n");
  AppendTerm(text, " ", "live", sum.live_bytes, "requested by the program and not freed");
  AppendTerm(text, "+", "rounding", sum.rounding_bytes, "the same blocks' size, minus live");
  AppendTerm(text, "+", "pending", sum.pending_bytes, "freed, but still used by a stream");
  AppendTerm(text, "+", "private pools", sum.private_pools_free_bytes,
             "free, in private pools" +
                 (sum.private_pools_free_bytes == 0
                      ? ""
                      : Split(own_private_free_bytes, sum.private_pools_free_bytes)));
  AppendTerm(
      text, "+", "pinned", sum.pinned_bytes,
      "free, beside a live block in its granule" + Split(own_pinned_bytes, sum.pinned_bytes));
  AppendTerm(text, "+", "idle", sum.idle_bytes,
             "free, in whole granules" + Split(own_idle_bytes, sum.idle_bytes));
  if (sum.driver_pool_free_bytes > 0) {
    AppendTerm(text, "+", "driver pools", sum.driver_pool_free_bytes,
               "free, in the driver's own pools");
  }
  AppendTerm(text, "=", "reserved", sum.reserved_bytes, "held by Offcut");
  AppendTerm(text, "+", "outside", static_cast<Bytes>(std::max<int64_t>(sum.outside_bytes, 0)),
             "the CUDA context, other libraries, other processes");
  AppendTerm(text, "=", "device used", sum.device_used_bytes, "as the driver reports it");
  if (sum.foreign_bytes > 0) {
    AppendTerm(text, " ", "foreign", sum.foreign_bytes,
               "beside the sum: private pools' memory that another allocator gave");
  }
  absl::StrAppend(&text, "  Largest free block: ", FormatBytes(own_largest_free),
                  " in this stream's pool, ", FormatBytes(other_largest_free),
                  " in other streams' pools.");
  return text;
}

std::string MemoryReport::WholeText() const {
  std::string text = ToText();
  absl::StrAppend(&text, "\n  Pools (this request's: #", pool, "):\n");
  for (const PoolFigures& one : pools) {
    absl::StrAppendFormat(
        &text, "    #%-4d %-22s live %12s  pending %12s  free %12s  largest %12s\n", one.index,
        NameOf(one.private_pool_id), FormatBytes(one.live), FormatBytes(one.pending),
        FormatBytes(one.free), FormatBytes(one.largest_free));
  }
  if (!pinning.empty()) {
    absl::StrAppend(&text, "  Blocks that alone pin free memory, the worst first:\n");
    for (const PinningBlock& block : pinning) {
      absl::StrAppendFormat(&text, "    %#x of %12s in pool #%-4d pins %12s%s\n", block.address,
                            FormatBytes(block.requested), block.pool, FormatBytes(block.pinned),
                            block.pending ? " (pending)" : "");
    }
  }
  std::string helps;
  const Accounting& sum = accounting;
  if (reason == FailureReason::kLimit) {
    absl::StrAppend(&helps, "    a limit of ",
                    FormatBytes(sum.reserved_bytes + sum.foreign_bytes + growth),
                    ", if the device has as much\n");
  }
  if (capturing || wait_refused) {
    absl::StrAppend(&helps, "    the same request before or after the capture: ",
                    FormatBytes(sum.idle_bytes), " are idle\n");
  }
  if (segments && sum.pinned_bytes + sum.idle_bytes >= requested) {
    absl::StrAppend(&helps,
                    "    expandable_segments:True, which puts what is pinned and idle together\n");
  }
  if (sum.private_pools_free_bytes >= requested) {
    absl::StrAppend(&helps, "    torch.cuda.MemPool(use_on_oom=True), or fewer private pools: ",
                    FormatBytes(sum.private_pools_free_bytes), " are free in them\n");
  }
  if (sum.pending_bytes >= requested) {
    absl::StrAppend(&helps, "    waiting for the streams that use what is pending\n");
  }
  if (!helps.empty()) absl::StrAppend(&text, "  What might have helped:\n", helps);
  return text;
}

}  // namespace offcut
