#include "visualizer/cli/report_html.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace offcut {
namespace {

constexpr absl::string_view kOverviewPlace = "<!--offcut:overview-->";
constexpr absl::string_view kDataPlace = "<!--offcut:data-->";

}  // namespace

absl::StatusOr<ViewerTemplate> SplitViewerTemplate(absl::string_view html, absl::string_view name) {
  const size_t overview = html.find(kOverviewPlace);
  const size_t data = html.find(kDataPlace);
  if (overview == absl::string_view::npos || data == absl::string_view::npos || data < overview ||
      html.rfind(kOverviewPlace) != overview || html.rfind(kDataPlace) != data) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": no template of a report: it must contain ", kOverviewPlace,
                     " and then ", kDataPlace, ", each once"));
  }
  const size_t behind_overview = overview + kOverviewPlace.size();
  return ViewerTemplate{std::string(html.substr(0, overview)),
                        std::string(html.substr(behind_overview, data - behind_overview)),
                        std::string(html.substr(data + kDataPlace.size()))};
}

absl::StatusOr<ViewerTemplate> ReadViewerTemplate() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  }
  const std::filesystem::path path = program.parent_path().parent_path() / "share/viewer.html";
  std::ifstream file(path, std::ios::binary);
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  if (!file || html.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "the viewer is missing: cannot read ", path.string(),
        ". It is part of the package; in a build tree, build the target offcut_viewer."));
  }
  return SplitViewerTemplate(html, path.string());
}

std::string ScriptSafeJson(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true,
                                     nlohmann::ordered_json::error_handler_t::replace);
  // In JSON these three can stand only inside strings, where the escape means the same.
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

}  // namespace offcut
