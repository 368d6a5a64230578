// The commands of the program `offcut`: each reads its arguments, prints, and says its exit code.
//
// Lists: commands.def, exit_codes.def. Everything that a command computes lives in a library file
// of its own (analysis, check, inspect, report), which tests call directly.

#ifndef OFFCUT_VISUALIZER_CLI_COMMANDS_H_
#define OFFCUT_VISUALIZER_CLI_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace offcut {

enum class ExitCode : int {
#define OFFCUT_EXIT_CODE(name, number, sentence) k##name = number,
#include "visualizer/cli/exit_codes.def"
#undef OFFCUT_EXIT_CODE
};

// Declares the arguments of each command on `command`; its callback sets `*exit_code`, which must
// outlive the parse.
#define OFFCUT_COMMAND(name, text, sentence) \
  void Add##name##Command(CLI::App* command, ExitCode* exit_code);
#include "visualizer/cli/commands.def"
#undef OFFCUT_COMMAND

// Writes `text` to standard output, all of it or kOutputFailed with a message.
ExitCode Print(absl::string_view text);

// "offcut: message" on standard error.
void PrintError(absl::string_view message);
void PrintWarning(absl::string_view message);

// Tells a status of reading and gives its exit code.
ExitCode FailReading(const absl::Status& status);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_COMMANDS_H_
