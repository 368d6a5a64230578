// The text side of a report: hostile strings and binary data made harmless inside an HTML file.
//
// Pure functions, except ReadViewerTemplate.

#ifndef OFFCUT_VISUALIZER_CLI_REPORT_HTML_H_
#define OFFCUT_VISUALIZER_CLI_REPORT_HTML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace offcut {

// Browsers read an element of more than about 512 MB as empty, without an error.
inline constexpr size_t kMaxTagChars = 64u << 20;

// A template cut at its two placeholders.
struct ViewerTemplate {
  std::string before_overview;
  std::string before_data;
  std::string after_data;
};

// InvalidArgument unless each placeholder stands there once and in order. `name`: for the message.
absl::StatusOr<ViewerTemplate> SplitViewerTemplate(absl::string_view html, absl::string_view name);

// Of viewer.html beside the program: <folder of the executable>/../share/viewer.html.
absl::StatusOr<ViewerTemplate> ReadViewerTemplate();

// JSON in which no character can end a <script> element or begin a comment; invalid UTF-8 becomes
// U+FFFD.
std::string ScriptSafeJson(const nlohmann::ordered_json& json);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPORT_HTML_H_
