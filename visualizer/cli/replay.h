// `offcut replay`: a ReplayResult as JSON for programs and as a page of text for people.
//
// Pure functions. The JSON's keys are an interface: docs and scripts rely on them.

#ifndef OFFCUT_VISUALIZER_CLI_REPLAY_H_
#define OFFCUT_VISUALIZER_CLI_REPLAY_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "allocator/base/units.h"
#include "allocator/replay/program.h"
#include "allocator/replay/replay.h"

namespace offcut {

nlohmann::ordered_json ReplayJson(const ReplayResult& result);

// `path`: where the program came from.
std::string ReplayText(absl::string_view path, const Program& program, const ReplayOptions& options,
                       const ReplayResult& result);

// "20GiB", "1.5GiB", "512MiB", "4096KiB", "1024B" or "1024" as bytes, rounded down. False for
// anything else, and for more than a Bytes holds.
bool ParseBytes(absl::string_view text, Bytes* bytes);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPLAY_H_
