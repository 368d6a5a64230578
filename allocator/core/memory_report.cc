#include "allocator/core/memory_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/format.h"

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

// Visits the part at each place of a granule of everything in the arena that is taken (live or
// pending), or of everything that is free; a large granule covers several places.
void ForEachPiece(const StateView::ArenaView& arena, bool taken,
                  absl::FunctionRef<void(const StateView::Tile&, DevicePtr place, Bytes)> visit) {
  const auto visit_range = [&](const StateView::Tile& tile, DevicePtr address, Bytes size,
                               BlockState state) {
    const bool is_taken = state == BlockState::kLive || state == BlockState::kPending;
    if (is_taken != taken || (!is_taken && state != BlockState::kFree)) return;
    const DevicePtr end = address + size;
    while (address < end) {
      const DevicePtr place = arena.base + RoundDown(address - arena.base, arena.granularity);
      const DevicePtr piece_end = std::min(end, place + arena.granularity);
      visit(tile, place, piece_end - address);
      address = piece_end;
    }
  };
  for (const StateView::Tile& tile : arena.tiles) {
    visit_range(tile, tile.address, tile.size, tile.state);
    for (const StateView::Slot& slot : tile.slots) {
      visit_range(tile, slot.address, slot.size, slot.state);
    }
  }
}

}  // namespace

void MemoryReport::AddState(const StateView& view, uint16_t own_pool, Bytes device_used_bytes) {
  accounting = view.Account(device_used_bytes);
  // Free memory of the request's own pool, by whether its granule holds anything taken.
  for (const StateView::ArenaView& arena : view.arenas) {
    std::map<DevicePtr, uint32_t> granules;  // by place
    for (const StateView::MappedGranule& mapped : arena.granules) {
      granules[mapped.address] = mapped.index;
    }
    std::set<uint32_t> occupied;
    ForEachPiece(arena, /*taken=*/true, [&](const StateView::Tile&, DevicePtr place, Bytes) {
      occupied.insert(granules[place]);
    });
    ForEachPiece(arena, /*taken=*/false,
                 [&](const StateView::Tile& tile, DevicePtr place, Bytes bytes) {
                   if (tile.pool != own_pool) return;
                   const bool pinned = occupied.contains(granules[place]);
                   (pinned ? own_pinned_bytes : own_idle_bytes) += bytes;
                 });
  }
  for (const StateView::FreeEntry& entry : view.free) {
    Bytes& largest = entry.pool == own_pool ? own_largest_free : other_largest_free;
    largest = std::max(largest, entry.size);
  }
}

std::string MemoryReport::ToText() const {
  const Accounting& sum = accounting;
  std::string text = absl::StrCat("Offcut: a request of ", FormatBytes(requested), " (", requested,
                                  " bytes) on device ", device, " (", device_name, "), stream #",
                                  stream_index, ", failed: ", Describe(reason), ".\n");
  if (!cause.empty()) absl::StrAppend(&text, "  cause: ", cause, "\n");
  if (capturing) {
    absl::StrAppend(&text,
                    "  a stream is being captured into a CUDA graph: until that ends, nothing "
                    "can be waited for, moved or given back.\n");
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
  AppendTerm(text, "+", "private pools", sum.private_pools_free_bytes, "free, in private pools");
  AppendTerm(
      text, "+", "pinned", sum.pinned_bytes,
      "free, beside a live block in its granule" + Split(own_pinned_bytes, sum.pinned_bytes));
  AppendTerm(text, "+", "idle", sum.idle_bytes,
             "free, in whole granules" + Split(own_idle_bytes, sum.idle_bytes));
  AppendTerm(text, "=", "reserved", sum.reserved_bytes, "held by Offcut");
  AppendTerm(text, "+", "outside", static_cast<Bytes>(std::max<int64_t>(sum.outside_bytes, 0)),
             "the CUDA context, other libraries, other processes");
  AppendTerm(text, "=", "device used", sum.device_used_bytes, "as the driver reports it");
  absl::StrAppend(&text, "  Largest free block: ", FormatBytes(own_largest_free),
                  " in this stream's pool, ", FormatBytes(other_largest_free),
                  " in other streams' pools.");
  return text;
}

}  // namespace offcut
