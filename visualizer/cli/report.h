// `offcut report`: recordings become one HTML file that a browser opens without a network.
//
// Assembles what report_device.h says of each process and device with the viewer's template, as
// visualizer/web/CONTAINER.md specifies. Everything is computed here; the page only draws.

#ifndef OFFCUT_VISUALIZER_CLI_REPORT_H_
#define OFFCUT_VISUALIZER_CLI_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/trace/reader.h"
#include "visualizer/cli/report_html.h"

namespace offcut {

inline constexpr int kReportVersion = 1;

struct ReportHeading {
  std::string title;
  // Recordings that could not be read and are therefore missing, as messages.
  std::vector<std::string> unreadable;
};

// The whole page for `readers`, in their order.
absl::StatusOr<std::string> RenderReport(absl::Span<TraceReader* const> readers,
                                         const ReportHeading& heading, const ViewerTemplate& page);

// The page for the recordings under `recording` (FindTraceFiles). Those that cannot be read are
// named on it; an error if none can.
absl::StatusOr<std::string> MakeReport(absl::string_view recording, absl::string_view title);

// Writes `html` to `output`, mode 0600, whole or not at all.
absl::Status WriteReport(absl::string_view html, absl::string_view output);

}  // namespace offcut

#endif  // OFFCUT_VISUALIZER_CLI_REPORT_H_
