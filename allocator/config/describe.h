// The options in effect, told: for people, for programs, for the documentation.
//
// Pure functions. Everything derives from options.def and the Config.

#ifndef OFFCUT_ALLOCATOR_CONFIG_DESCRIBE_H_
#define OFFCUT_ALLOCATOR_CONFIG_DESCRIBE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "allocator/config/config.h"

namespace offcut {

// "works", "segments layout", "async layout", "not yet" or "no meaning".
absl::string_view StatusName(OptionStatus status);

// A JSON array with an object per option: key, value, default (all texts, as written in
// OFFCUT_CONF), origin, unit, range, meaning, status, note. Always valid JSON, whatever bytes the
// values hold.
std::string DescribeJson(const Config& config);

// A table, one option per line with value, origin, unit and status, its meaning below it.
std::string DescribeText(const Config& config);

// The table of all options, as the documentation holds it; knows no values in effect.
std::string DescribeMarkdown();

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CONFIG_DESCRIBE_H_
