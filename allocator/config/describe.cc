#include "allocator/config/describe.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace offcut {

absl::string_view StatusName(OptionStatus status) {
  switch (status) {
    case OptionStatus::kWorks:
      return "works";
    case OptionStatus::kSegments:
      return "segments layout";
    case OptionStatus::kAsync:
      return "async layout";
    case OptionStatus::kNotYet:
      return "not yet";
    case OptionStatus::kNoMeaning:
      return "no meaning";
  }
  return "";
}

std::string DescribeJson(const Config& config) {
  using Json = nlohmann::ordered_json;
  const auto text = [](absl::string_view value) { return Json(std::string(value)); };
  Json options = Json::array();
  for (const OptionDescription& row : OptionDescriptions()) {
    options.push_back({{"key", text(row.key)},
                       {"value", text(config.text(row.option))},
                       {"default", text(row.default_text)},
                       {"origin", text(OriginName(config.origin(row.option)))},
                       {"unit", text(row.unit)},
                       {"range", text(row.allowed)},
                       {"meaning", text(row.sentence)},
                       {"status", text(StatusName(row.status))},
                       {"note", text(row.note)}});
  }
  return options.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DescribeText(const Config& config) {
  std::string result =
      absl::StrFormat("%-34s %-22s %-24s %s\n", "option", "value", "origin", "status");
  for (const OptionDescription& row : OptionDescriptions()) {
    const std::string value = absl::StrCat(config.text(row.option), row.unit.empty() ? "" : " ",
                                           config.text(row.option) == "unlimited" ? "" : row.unit);
    absl::StrAppendFormat(&result, "%-34s %-22s %-24s %s\n    %s\n    Must be %s.\n", row.key,
                          value, OriginName(config.origin(row.option)), StatusName(row.status),
                          row.sentence, row.allowed);
    if (!row.note.empty()) absl::StrAppend(&result, "    ", row.note, "\n");
  }
  return result;
}

std::string DescribeMarkdown() {
  std::string result =
      "| option | default | unit | must be | what it does | in Offcut |\n"
      "|---|---|---|---|---|---|\n";
  // The only characters of options.def that Markdown would take for its own.
  const auto cell = [](absl::string_view text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}, {"[", "\\["}, {">", "\\>"}});
  };
  for (const OptionDescription& row : OptionDescriptions()) {
    absl::StrAppend(&result, "| `", row.key, "` | `", row.default_text, "` | ", row.unit, " | ",
                    cell(row.allowed), " | ", cell(row.sentence), " | ", StatusName(row.status),
                    row.note.empty() ? "" : ": ", cell(row.note), " |\n");
  }
  return result;
}

}  // namespace offcut
