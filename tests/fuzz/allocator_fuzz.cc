// allocator_fuzz: fuzzes the core for as many operations as asked for.
//
//   allocator_fuzz [--operations N] [--seed S] [--threads T] [--jobs J] [--check-every K] [--json]
//                  [--print]
//
// Prints the operations per second, and, with exit status 1, the first failing program, minimised,
// as a test for regression_test.cc. --json: the same and more, as one JSON object.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/generator.h"

namespace offcut::fuzz {
namespace {

nlohmann::ordered_json ToJson(const FuzzOptions& options, const FuzzReport& report) {
  nlohmann::ordered_json json = {
      {"operations", report.operations},
      {"programs", report.programs},
      {"seconds", report.seconds},
      {"operations_per_second", static_cast<double>(report.operations) / report.seconds},
      {"threads", options.threads},
      {"jobs", options.jobs},
      {"check_every", options.check_every},
      {"first_seed", options.seed},
      {"seeds_between_jobs", kSeedsPerJob},
  };
  for (size_t kind = 0; kind < kOpKinds; ++kind) {
    json["by_kind"][std::string(OpName(static_cast<OpKind>(kind)))] = {
        {"played", report.played[kind]}, {"without_effect", report.without_effect[kind]}};
  }
  json["failures"] = nlohmann::ordered_json::array();
  for (const FuzzReport::Failure& failure : report.failures) {
    json["failures"].push_back({{"seed", failure.seed}, {"what", failure.what}});
  }
  json["first_failure"] = report.failure;
  return json;
}

int FuzzAndPrint(const FuzzOptions& options, bool as_json) {
  const FuzzReport report = Fuzz(options);
  if (as_json) {
    std::printf("%s\n", ToJson(options, report).dump(1).c_str());
    return report.failure.empty() ? 0 : 1;
  }
  std::printf(
      "%llu operations in %llu programs from seed %llu, %d threads: %.1f s, %.0f a second\n",
      static_cast<unsigned long long>(report.operations),
      static_cast<unsigned long long>(report.programs),
      static_cast<unsigned long long>(options.seed), options.threads, report.seconds,
      static_cast<double>(report.operations) / report.seconds);
  if (!report.failure.empty()) std::printf("FAILED: %s", report.failure.c_str());
  std::fflush(stdout);
  return report.failure.empty() ? 0 : 1;
}

}  // namespace
}  // namespace offcut::fuzz

int main(int argc, char** argv) {
  offcut::fuzz::FuzzOptions options = {.operations = 200'000};
  bool print = false, as_json = false;
  CLI::App app("Fuzzes the allocator's core on a simulated machine.");
  app.add_option("--operations", options.operations, "At least so many, in all");
  app.add_option("--seed", options.seed, "Of the first program");
  app.add_option("--threads", options.threads, "Threads at work on one machine")
      ->check(CLI::Range(1, 64));
  app.add_option("--jobs", options.jobs, "Processes, each with programs of its own")
      ->check(CLI::Range(1, 1024));
  app.add_option("--check-every", options.check_every,
                 "Operations between two looks at the whole state; 0: as each program says");
  app.add_flag("--json", as_json, "Print what was played and found as JSON");
  app.add_flag("--print", print, "Print the program of the seed instead of running it");
  CLI11_PARSE(app, argc, argv);
  if (print) {
    std::printf(
        "%s", offcut::fuzz::ToCxxTest(offcut::fuzz::Generate(options.seed), "Printed", "").c_str());
    return 0;
  }
  return offcut::fuzz::FuzzAndPrint(options, as_json);
}
