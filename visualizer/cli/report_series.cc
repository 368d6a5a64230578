#include "visualizer/cli/report_series.h"

#include <algorithm>

namespace offcut {
namespace {

void Widen(ReportSeries::Slice& slice, const ReportLevels& least, const ReportLevels& most) {
  slice.least.live = std::min(slice.least.live, least.live);
  slice.least.reserved = std::min(slice.least.reserved, least.reserved);
  slice.least.device_used = std::min(slice.least.device_used, least.device_used);
  slice.most.live = std::max(slice.most.live, most.live);
  slice.most.reserved = std::max(slice.most.reserved, most.reserved);
  slice.most.device_used = std::max(slice.most.device_used, most.device_used);
}

}  // namespace

void ReportSeries::Add(uint64_t time_ns, const ReportLevels& levels) {
  if (slices_.empty()) {
    begin_ns_ = time_ns;
    last_ = levels;
  }
  const uint64_t elapsed_ns = time_ns - std::min(time_ns, begin_ns_);
  while (elapsed_ns / slice_ns_ >= kSlices) MergePairs();
  // A slice without an event holds the levels of the last one before it.
  while (slices_.size() <= elapsed_ns / slice_ns_) slices_.push_back({last_, last_});
  Widen(slices_[elapsed_ns / slice_ns_], levels, levels);
  last_ = levels;
}

void ReportSeries::MergePairs() {
  const size_t merged = (slices_.size() + 1) / 2;
  for (size_t i = 0; i < merged; ++i) {
    Slice slice = slices_[2 * i];
    if (2 * i + 1 < slices_.size()) {
      Widen(slice, slices_[2 * i + 1].least, slices_[2 * i + 1].most);
    }
    slices_[i] = slice;
  }
  slices_.resize(merged);
  slice_ns_ *= 2;
}

}  // namespace offcut
