// SizeOptions: the options of sizes and garbage that PyTorch lets a program change while it runs.
//
// A value. At the start it is what the configuration says.

#ifndef OFFCUT_ALLOCATOR_CORE_SIZE_OPTIONS_H_
#define OFFCUT_ALLOCATOR_CORE_SIZE_OPTIONS_H_

#include "allocator/base/units.h"
#include "allocator/config/config.h"
#include "allocator/policy/native_sizes.h"

namespace offcut {

struct SizeOptions {
  explicit SizeOptions(const Config& config)
      : split{.max_split = config.max_split_size_mb().bytes(),
              .max_non_split_rounding = config.max_non_split_rounding_mb().bytes()},
        large_segment(config.large_segment_size_mb().bytes()),
        divisions(config.roundup_power2_divisions().slots),
        garbage_collection_threshold(config.garbage_collection_threshold()) {}

  policy::native::SplitLimits split;
  Bytes large_segment;
  policy::native::Divisions divisions;
  double garbage_collection_threshold;  // 0: off
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_SIZE_OPTIONS_H_
