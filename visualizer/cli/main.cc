// The program `offcut`: looks at recordings and options, offline. Needs neither CUDA nor PyTorch.

#include <CLI/CLI.hpp>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "visualizer/cli/commands.h"
#include "visualizer/cli/text.h"

namespace offcut {
namespace {

std::string ExitCodesText() {
  std::string text = "Exit codes:\n";
#define OFFCUT_EXIT_CODE(name, number, sentence) \
  absl::StrAppend(&text, "  ", number, "  ", sentence, "\n");
#include "visualizer/cli/exit_codes.def"
#undef OFFCUT_EXIT_CODE
  return text;
}

bool IsCommand(absl::string_view word) {
#define OFFCUT_COMMAND(name, text, sentence) \
  if (word == #text) return true;
#include "visualizer/cli/commands.def"
#undef OFFCUT_COMMAND
  return false;
}

int Main(int argc, char** argv) {
  CLI::App app("Offcut: where the memory of a GPU went.", "offcut");
  app.set_version_flag("--version", "offcut " OFFCUT_VERSION_TEXT);
  app.require_subcommand(1);
  app.footer(ExitCodesText());
  ExitCode exit_code = ExitCode::kOk;
#define OFFCUT_COMMAND(name, text, sentence) \
  Add##name##Command(app.add_subcommand(#text, sentence), &exit_code);
#include "visualizer/cli/commands.def"
#undef OFFCUT_COMMAND
  // CLI11 would only say that a subcommand is required.
  if (argc > 1 && argv[1][0] != '-' && !IsCommand(argv[1])) {
    PrintError(absl::StrCat("unknown command '", ShowForeign(argv[1]),
                            "'; `offcut --help` lists all commands"));
    return static_cast<int>(ExitCode::kBadUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are told as errors too, with code 0.
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kBadUsage);
  }
  return static_cast<int>(exit_code);
}

}  // namespace
}  // namespace offcut

int main(int argc, char** argv) { return offcut::Main(argc, argv); }
