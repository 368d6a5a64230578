// `offcut inspect`: an Analysis as JSON for programs and as a page of text for people.
//
// Pure functions. The JSON's keys are an interface: docs and scripts rely on them.

#ifndef OFFCUT_VISUALIZER_CLI_INSPECT_H_
#define OFFCUT_VISUALIZER_CLI_INSPECT_H_

#include <string>

#include <nlohmann/json.hpp>

#include "visualizer/cli/analysis.h"

namespace offcut {

// The figures of the device with the largest peak reserved at the top level, all devices below
// `devices`. Bytes that are not UTF-8, from file names and command lines, are to be replaced when
// it is dumped.
nlohmann::ordered_json InspectJson(const Analysis& analysis);

std::string InspectText(const Analysis& analysis);

// What a reader of the figures must know first, one sentence each: events dropped, reading ended
// early, not closed. Empty for a whole recording.
std::vector<std::string> Caveats(const DeviceAnalysis& device);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_INSPECT_H_
