#include "visualizer/cli/replay.h"

#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "visualizer/cli/text.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

double Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Json ReplayJson(const ReplayResult& result) {
  const ReplayFigures& whole = result.whole;
  return {{"peak_live_bytes", result.peak_live_bytes},
          {"peak_reserved_bytes", result.peak_reserved_bytes},
          {"live_over_reserved", result.live_over_reserved()},
          {"completed", result.completed()},
          {"failed_at_event", result.completed() ? Json(nullptr) : Json(*result.failed_at_event)},
          {"driver_calls", whole.driver_calls},
          {"driver_ms", Milliseconds(whole.driver_ns)},
          {"remap_ms", Milliseconds(whole.remap_ns)},
          {"remapped_bytes", whole.remapped_bytes},
          {"moves", whole.moves},
          {"move_batches", whole.move_batches},
          {"largest_batch", result.largest_batch},
          {"waits", whole.waits},
          {"wait_ms", Milliseconds(whole.wait_ns)},
          {"address_bytes_peak", result.address_bytes_peak},
          {"events", whole.events},
          {"seconds", result.seconds}};
}

std::string ReplayText(absl::string_view path, const Program& program, const ReplayOptions& options,
                       const ReplayResult& result) {
  const ReplayFigures& whole = result.whole;
  std::string text;
  const auto line = [&text](absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&text, "  %-16s %s\n", name, value);
  };
  absl::StrAppend(&text, ShowForeign(path), "\n");
  line("played", absl::StrFormat("%s of %s allocations and frees, a run of %s, on a simulated %s",
                                 ShowCount(whole.events), ShowCount(program.events),
                                 ShowDuration(program.span_ns), options.machine.card->name));
  if (options.cap != kNoLimit) line("cap", absl::StrCat(ShowBytes(options.cap), " reserved"));
  line("device", options.lag_ns == 0
                     ? "keeps up with the host"
                     : absl::StrCat("runs ", ShowDuration(options.lag_ns), " behind the host"));
  if (!result.completed()) {
    line("FAILED",
         absl::StrFormat("at event %s: %s", ShowCount(*result.failed_at_event), result.failure));
  }
  line("peak live", ShowBytes(result.peak_live_bytes));
  line("peak reserved",
       absl::StrFormat("%s; live/reserved %.4f", ShowBytes(result.peak_reserved_bytes),
                       result.live_over_reserved()));
  line("address space", absl::StrCat(ShowBytes(result.address_bytes_peak), " at its peak"));
  line("driver", absl::StrFormat("%s calls, %s as measured on an H200",
                                 ShowCount(whole.driver_calls), ShowDuration(whole.driver_ns)));
  line("moves",
       absl::StrFormat("%s granules (%s) in %s batches, the largest of %s; %s, %.2f%% of the run",
                       ShowCount(whole.moves), ShowBytes(whole.remapped_bytes),
                       ShowCount(whole.move_batches), ShowCount(result.largest_batch),
                       ShowDuration(whole.remap_ns), Percent(whole.remap_ns, result.span_ns)));
  line("waits",
       absl::StrFormat("%s, %s in all", ShowCount(whole.waits), ShowDuration(whole.wait_ns)));
  const double events = static_cast<double>(whole.events);
  line("replayed in", absl::StrFormat("%.3f s, %.1f million events a second", result.seconds,
                                      result.seconds > 0 ? events / result.seconds / 1e6 : 0.0));
  return text;
}

bool ParseBytes(absl::string_view text, Bytes* bytes) {
  constexpr std::pair<absl::string_view, Bytes> kUnits[] = {
      {"KiB", kKiB}, {"MiB", kMiB}, {"GiB", kGiB}, {"TiB", 1024 * kGiB}, {"B", 1}, {"", 1}};
  for (const auto& [name, factor] : kUnits) {
    if (!absl::EndsWithIgnoreCase(text, name)) continue;
    const absl::string_view number =
        absl::StripAsciiWhitespace(text.substr(0, text.size() - name.size()));
    if (number.empty() || !absl::ascii_isdigit(number[0])) return false;
    uint64_t whole = 0;
    if (absl::SimpleAtoi(number, &whole)) {
      return !__builtin_mul_overflow(whole, factor, bytes);
    }
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || factor == 1) return false;
    const double product = std::floor(value * static_cast<double>(factor));
    if (!(product >= 0 && product < 0x1p63)) return false;
    *bytes = static_cast<Bytes>(product);
    return true;
  }
  return false;
}

}  // namespace offcut
