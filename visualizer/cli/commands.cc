#include "visualizer/cli/commands.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/config/config.h"
#include "allocator/config/describe.h"
#include "allocator/replay/load_program.h"
#include "allocator/replay/replay.h"
#include "allocator/sim/cards.h"
#include "allocator/trace/reader.h"
#include "visualizer/cli/analysis.h"
#include "visualizer/cli/check.h"
#include "visualizer/cli/inspect.h"
#include "visualizer/cli/replay.h"
#include "visualizer/cli/report.h"
#include "visualizer/cli/text.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

// The path that most commands read from.
std::shared_ptr<std::string> AddRecording(CLI::App* command) {
  auto path = std::make_shared<std::string>();
  command
      ->add_option("recording", *path,
                   "a recording's file, a process's directory, or a directory of such")
      ->required();
  return path;
}

std::string CheckText(const CheckResult& result) {
  std::string text;
  absl::StrAppend(
      &text, ShowForeign(result.file), ": ", ShowCount(result.events), " events, ",
      result.faults == 0 ? "no fault" : absl::StrCat(ShowCount(result.faults), " faults"), "\n");
  for (const std::string& warning : result.warnings) {
    absl::StrAppend(&text, "  warning: ", ShowForeign(warning), "\n");
  }
  for (const CheckFault& fault : result.first_faults) {
    absl::StrAppend(&text, "  event ", fault.event_index, ": ", ShowForeign(fault.what), "\n");
    if (!fault.event.empty()) absl::StrAppend(&text, "    ", fault.event, "\n");
  }
  if (result.faults > result.first_faults.size()) {
    absl::StrAppend(&text, "  and ", ShowCount(result.faults - result.first_faults.size()),
                    " more\n");
  }
  return text;
}

ExitCode RunOptions(bool json, bool markdown) {
  const absl::StatusOr<Config> config = Config::FromEnvironment();
  if (!config.ok()) {
    PrintError(config.status().message());
    return ExitCode::kBadUsage;
  }
  for (const std::string& warning : config->warnings()) PrintWarning(warning);
  return Print(json       ? Dump(Json::parse(DescribeJson(*config)))
               : markdown ? DescribeMarkdown()
                          : DescribeText(*config));
}

ExitCode RunInspect(absl::string_view path, bool json) {
  const absl::StatusOr<Analysis> analysis = AnalyzeRecording(path);
  if (!analysis.ok()) return FailReading(analysis.status());
  return Print(json ? Dump(InspectJson(*analysis)) : InspectText(*analysis));
}

ExitCode RunCheck(absl::string_view path) {
  const absl::StatusOr<std::vector<std::string>> files = FindTraceFiles(path);
  if (!files.ok()) return FailReading(files.status());
  ExitCode exit_code = ExitCode::kOk;
  for (const std::string& file : *files) {
    absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(file);
    const absl::StatusOr<CheckResult> result =
        reader.ok() ? CheckTrace(**reader) : absl::StatusOr<CheckResult>(reader.status());
    if (!result.ok()) {
      exit_code = FailReading(result.status());
      continue;
    }
    if (result->faults > 0 && exit_code == ExitCode::kOk) exit_code = ExitCode::kFaultFound;
    if (Print(CheckText(*result)) != ExitCode::kOk) return ExitCode::kOutputFailed;
  }
  return exit_code;
}

ExitCode RunReport(absl::string_view path, absl::string_view output, absl::string_view title) {
  const absl::StatusOr<std::string> html = MakeReport(path, title);
  if (!html.ok()) return FailReading(html.status());
  if (const absl::Status status = WriteReport(*html, output); !status.ok()) {
    PrintError(status.message());
    return ExitCode::kOutputFailed;
  }
  return Print(absl::StrCat(output, "\n"));
}

struct ReplayArguments {
  std::string path;
  std::string conf;
  std::string cap;
  std::string card = sim::Cards()[0].key;
  double lag_ms = 0;
  bool json = false;
};

// What the command line asks for, or a message that says what is wrong with it.
absl::StatusOr<ReplayOptions> ReplayOptionsOf(const ReplayArguments& arguments) {
  constexpr double kLagMsMax = 3'600'000;
  OFFCUT_ASSIGN_OR_RETURN(Config config, Config::Parse({.offcut_conf = arguments.conf}));
  if (!(arguments.lag_ms >= 0 && arguments.lag_ms <= kLagMsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lag must be from 0 to ", static_cast<int>(kLagMsMax), " milliseconds"));
  }
  ReplayOptions options = {.config = std::move(config),
                           .lag_ns = static_cast<uint64_t>(arguments.lag_ms * 1e6)};
  if (!arguments.cap.empty() && !ParseBytes(arguments.cap, &options.cap)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cap must be a size such as 20GiB, 20480MiB or 21474836480, not '",
                     ShowForeign(arguments.cap), "'"));
  }
  for (const sim::Card& card : sim::Cards()) {
    if (arguments.card == card.key) options.machine.card = &card;
  }
  return options;
}

ExitCode RunReplay(const ReplayArguments& arguments) {
  const absl::StatusOr<ReplayOptions> options = ReplayOptionsOf(arguments);
  if (!options.ok()) {
    PrintError(options.status().message());
    return ExitCode::kBadUsage;
  }
  for (const std::string& warning : options->config.warnings()) PrintWarning(warning);
  const absl::StatusOr<Program> program = LoadProgram(arguments.path);
  if (!program.ok()) return FailReading(program.status());
  for (const std::string& caveat : program->caveats) PrintWarning(ShowForeign(caveat));
  const absl::StatusOr<ReplayResult> result = Replay(*program, *options);
  if (!result.ok()) return FailReading(result.status());
  const ExitCode printed =
      Print(arguments.json ? Dump(ReplayJson(*result))
                           : ReplayText(arguments.path, *program, *options, *result));
  if (printed != ExitCode::kOk) return printed;
  return result->completed() ? ExitCode::kOk : ExitCode::kRequestFailed;
}

}  // namespace

void AddOptionsCommand(CLI::App* command, ExitCode* exit_code) {
  auto json = std::make_shared<bool>(false);
  auto markdown = std::make_shared<bool>(false);
  CLI::Option* json_flag = command->add_flag("--json", *json, "as JSON");
  command->add_flag("--markdown", *markdown, "as the table of the documentation, without values")
      ->excludes(json_flag);
  command->callback([=] { *exit_code = RunOptions(*json, *markdown); });
}

void AddInspectCommand(CLI::App* command, ExitCode* exit_code) {
  const auto path = AddRecording(command);
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as JSON");
  command->callback([=] { *exit_code = RunInspect(*path, *json); });
}

void AddCheckCommand(CLI::App* command, ExitCode* exit_code) {
  const auto path = AddRecording(command);
  command->callback([=] { *exit_code = RunCheck(*path); });
}

void AddReportCommand(CLI::App* command, ExitCode* exit_code) {
  const auto path = AddRecording(command);
  auto output = std::make_shared<std::string>("offcut-report.html");
  auto title = std::make_shared<std::string>();
  command->add_option("-o,--output", *output, "the file to write")->capture_default_str();
  command->add_option("--title", *title, "what the page is called; default: the recording's path");
  command->callback(
      [=] { *exit_code = RunReport(*path, *output, title->empty() ? *path : *title); });
}

void AddReplayCommand(CLI::App* command, ExitCode* exit_code) {
  auto arguments = std::make_shared<ReplayArguments>();
  command
      ->add_option("file", arguments->path,
                   "a recording of one device, or a CSV trace of PyTorch's allocator (.csv, "
                   ".csv.zst; see bench/traces)")
      ->required();
  command->add_option("--conf", arguments->conf,
                      "options of the allocator, as in OFFCUT_CONF; the environment is not read");
  command->add_option("--cap", arguments->cap,
                      "limit on reserved memory: bytes, or with KiB, MiB, GiB");
  command
      ->add_option("--lag", arguments->lag_ms, "milliseconds that the device runs behind the host")
      ->capture_default_str();
  std::vector<std::string> cards;
  for (const sim::Card& card : sim::Cards()) cards.emplace_back(card.key);
  command->add_option("--card", arguments->card, "the GPU that is simulated")
      ->check(CLI::IsMember(cards))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback([=] { *exit_code = RunReplay(*arguments); });
}

ExitCode Print(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return ExitCode::kOk;
  PrintError("the output could not be written to standard output");
  return ExitCode::kOutputFailed;
}

void PrintError(absl::string_view message) {
  std::fprintf(stderr, "offcut: %.*s\n", static_cast<int>(message.size()), message.data());
}

void PrintWarning(absl::string_view message) { PrintError(absl::StrCat("warning: ", message)); }

ExitCode FailReading(const absl::Status& status) {
  PrintError(status.message());
  return ExitCode::kUnreadable;
}

}  // namespace offcut
