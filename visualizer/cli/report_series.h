// ReportSeries: the smallest and largest levels in equal slices of time, for the first picture.
//
// Reads the events once, without knowing when they end: when time leaves the last slice, slices are
// merged in pairs, so between kSlices / 2 and kSlices of them are in use. Not thread-safe.

#ifndef OFFCUT_VISUALIZER_CLI_REPORT_SERIES_H_
#define OFFCUT_VISUALIZER_CLI_REPORT_SERIES_H_

#include <cstdint>
#include <vector>

#include "visualizer/cli/report_chunks.h"

namespace offcut {

class ReportSeries {
 public:
  // Twice the widest screen that the page is made for, so that each pixel has a slice.
  static constexpr uint64_t kSlices = 4096;

  struct Slice {
    ReportLevels least;
    ReportLevels most;
  };

  // The levels from `time_ns` on; times do not decrease.
  void Add(uint64_t time_ns, const ReportLevels& levels);

  const std::vector<Slice>& slices() const { return slices_; }
  uint64_t begin_ns() const { return begin_ns_; }
  uint64_t slice_ns() const { return slice_ns_; }

 private:
  void MergePairs();

  std::vector<Slice> slices_;
  uint64_t begin_ns_ = 0;
  uint64_t slice_ns_ = 1;
  ReportLevels last_;
};

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPORT_SERIES_H_
