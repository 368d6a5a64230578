#include "allocator/sim/cards.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace offcut::sim {
namespace {

constexpr Card kCards[] = {
#define OFFCUT_CARD(...) {__VA_ARGS__},
#include "allocator/sim/cards.def"
#undef OFFCUT_CARD
};

struct Unit {
  absl::string_view name;
  uint64_t factor;
};
constexpr Unit kByteUnits[] = {
    {"B", 1}, {"KiB", kKiB}, {"MiB", kMiB}, {"GiB", kGiB}, {"TiB", 1024 * kGiB}};
constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};

constexpr Bytes kMemoryBytesMax = 1024 * kGiB;
constexpr uint64_t kLagNsMax = 3600'000'000'000;
constexpr char kKeys[] =
    "memory (as in memory=80GiB), devices (devices=2), lag (lag=5ms), "
    "outside (outside=500MiB)";

absl::Status Error(absl::string_view text, size_t position, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("OFFCUT_SIM='", text, "', at character ", position + 1, ": ", problem));
}

std::optional<uint64_t> ParseQuantity(absl::string_view text, absl::Span<const Unit> units) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &number)) return std::nullopt;
  for (const Unit& unit : units) {
    uint64_t product = 0;
    if (text.substr(digits) != unit.name) continue;
    if (__builtin_mul_overflow(number, unit.factor, &product)) return std::nullopt;
    return product;
  }
  return std::nullopt;
}

std::string UnitNames(absl::Span<const Unit> units) {
  return absl::StrJoin(units, ", ",
                       [](std::string* out, const Unit& unit) { absl::StrAppend(out, unit.name); });
}

// A number in the largest unit that it is a whole multiple of.
std::string FormatQuantity(uint64_t value, absl::Span<const Unit> units) {
  const Unit* best = &units[0];
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) best = &unit;
  }
  if (value == 0) best = &units[0];
  return absl::StrCat(value / best->factor, best->name);
}

// One `key=value`: fills the field of `options`, or returns the problem.
std::string ParseField(absl::string_view key, absl::string_view value, SimOptions* options) {
  const auto quantity = [&](absl::Span<const Unit> units, uint64_t min, uint64_t max,
                            uint64_t* out) -> std::string {
    const std::optional<uint64_t> parsed = ParseQuantity(value, units);
    if (!parsed.has_value()) {
      return absl::StrCat("'", value, "' is no value for ", key,
                          "; right is a whole number with one of the units ", UnitNames(units));
    }
    if (*parsed < min || *parsed > max) {
      return absl::StrCat("'", value, "' is out of range for ", key, "; right is from ",
                          FormatQuantity(min, units), " to ", FormatQuantity(max, units));
    }
    *out = *parsed;
    return "";
  };
  if (key == "memory")
    return quantity(kByteUnits, 64 * kMiB, kMemoryBytesMax, &options->memory_bytes);
  if (key == "outside") return quantity(kByteUnits, 0, kMemoryBytesMax, &options->outside_bytes);
  if (key == "lag") return quantity(kTimeUnits, 0, kLagNsMax, &options->lag_ns);
  if (key == "devices") {
    int devices = 0;
    if (!absl::SimpleAtoi(value, &devices) || devices < 1 || devices > kDevicesMax) {
      return absl::StrCat(
          "'", value, "' is no value for devices; right is a whole number from 1 to ", kDevicesMax);
    }
    options->devices = devices;
    return "";
  }
  return absl::StrCat("unknown key '", key, "'; the keys are ", kKeys);
}

}  // namespace

absl::Span<const Card> Cards() { return kCards; }

std::vector<MemoryFlags> RefusedMemoryFlags() {
  std::vector<MemoryFlags> refused;
  for (const bool rdma : {false, true}) {
    for (const bool export_fd : {false, true}) {
      refused.push_back({.rdma = rdma, .export_fd = export_fd, .export_fabric = true});
    }
  }
  return refused;
}

absl::StatusOr<SimOptions> ParseSimOptions(absl::string_view text) {
  const size_t card_end = std::min(text.find(','), text.size());
  const absl::string_view card_key = text.substr(0, card_end);
  SimOptions options;
  options.card = nullptr;
  for (const Card& card : kCards) {
    if (absl::EqualsIgnoreCase(card_key, card.key)) options.card = &card;
  }
  if (options.card == nullptr) {
    return Error(text, 0,
                 absl::StrCat("unknown card '", card_key, "'; the cards are ",
                              absl::StrJoin(kCards, ", ", [](std::string* out, const Card& card) {
                                absl::StrAppend(out, card.key);
                              })));
  }
  std::vector<absl::string_view> seen;
  for (size_t start = card_end; start < text.size();) {
    ++start;  // the comma
    const size_t end = std::min(text.find(',', start), text.size());
    const absl::string_view field = text.substr(start, end - start);
    const size_t equals = field.find('=');
    if (equals == absl::string_view::npos) {
      return Error(
          text, start,
          absl::StrCat("'", field, "' is not of the form key=value; the keys are ", kKeys));
    }
    const absl::string_view key = field.substr(0, equals);
    if (absl::c_linear_search(seen, key)) {
      return Error(text, start, absl::StrCat("'", key, "' is given twice"));
    }
    seen.push_back(key);
    const std::string problem = ParseField(key, field.substr(equals + 1), &options);
    if (!problem.empty()) return Error(text, start, problem);
    start = end;
  }
  if (options.outside_bytes > options.TotalBytes()) {
    return Error(text, 0,
                 absl::StrCat("outside (", FormatQuantity(options.outside_bytes, kByteUnits),
                              ") is more than the memory of the device (",
                              FormatQuantity(options.TotalBytes(), kByteUnits), ")"));
  }
  return options;
}

std::string FormatSimOptions(const SimOptions& options) {
  return absl::StrCat(
      options.card->key, ",memory=", FormatQuantity(options.TotalBytes(), kByteUnits),
      ",devices=", options.devices, ",lag=", FormatQuantity(options.lag_ns, kTimeUnits),
      ",outside=", FormatQuantity(options.outside_bytes, kByteUnits));
}

}  // namespace offcut::sim
