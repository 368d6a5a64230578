// How sizes, counts and foreign text are shown to people. Pure functions.

#ifndef OFFCUT_VISUALIZER_CLI_TEXT_H_
#define OFFCUT_VISUALIZER_CLI_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "allocator/base/units.h"

namespace offcut {

// "1.50 GiB", "512 B": three to four digits.
std::string ShowBytes(Bytes bytes);

// "12,345,678".
std::string ShowCount(uint64_t count);

// "1.250 s", "3.40 ms", "2 h 03 min".
std::string ShowDuration(uint64_t ns);

// `text` from a file, harmless on a terminal: control bytes become '?'.
std::string ShowForeign(absl::string_view text);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_TEXT_H_
