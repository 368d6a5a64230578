#include "allocator/policy/growth.h"

#include <algorithm>

namespace offcut::policy {
namespace {

// Bytes of gaps of the run before an address; asked for increasing addresses.
class GapsBefore {
 public:
  GapsBefore(absl::Span<const RunPiece> run, DevicePtr origin, Bytes granularity)
      : run_(run), origin_(origin), granularity_(granularity) {}

  // Within a gap, `address` is moved up (or down) to the end (or beginning) of its granule.
  Bytes UpTo(DevicePtr address, bool up) {
    while (piece_ + 1 < run_.size() && run_[piece_ + 1].address <= address) {
      if (run_[piece_].gap) passed_ += run_[piece_].bytes;
      ++piece_;
    }
    const RunPiece& piece = run_[piece_];
    if (!piece.gap) return passed_;
    const Bytes offset = address - origin_;
    const DevicePtr edge =
        origin_ + (up ? RoundUp(offset, granularity_) : RoundDown(offset, granularity_));
    return passed_ + (edge - piece.address);
  }

 private:
  absl::Span<const RunPiece> run_;
  DevicePtr origin_;
  Bytes granularity_;
  size_t piece_ = 0;
  Bytes passed_ = 0;
};

}  // namespace

std::optional<Window> CheapestWindow(absl::Span<const RunPiece> run, Bytes size, DevicePtr origin,
                                     Bytes granularity) {
  if (run.empty()) return std::nullopt;
  const DevicePtr begin = run.front().address;
  const DevicePtr end = run.back().address + run.back().bytes;
  if (end - begin < size) return std::nullopt;

  std::optional<Window> best;
  const auto consider = [&](DevicePtr address, GapsBefore& from, GapsBefore& to) {
    const Bytes missing = to.UpTo(address + size, /*up=*/true) - from.UpTo(address, /*up=*/false);
    if (!best.has_value() || missing < best->missing_bytes ||
        (missing == best->missing_bytes && address < best->address)) {
      best = Window{address, size, missing};
    }
  };
  GapsBefore from(run, origin, granularity), to(run, origin, granularity);
  for (const RunPiece& piece : run) {
    if (end - piece.address < size) break;
    consider(piece.address, from, to);
  }
  from = GapsBefore(run, origin, granularity);
  to = GapsBefore(run, origin, granularity);
  for (const RunPiece& piece : run) {
    const DevicePtr piece_end = piece.address + piece.bytes;
    if (piece_end - begin < size) continue;
    consider(piece_end - size, from, to);
  }
  return best;
}

}  // namespace offcut::policy
