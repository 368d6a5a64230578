#include "visualizer/cli/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "visualizer/cli/report_device.h"

namespace offcut {
namespace {

using Json = nlohmann::ordered_json;

// The data elements of a page, filled up to kMaxTagChars one after the other.
class DataTags {
 public:
  // Adds a chunk's bytes; returns its entry in the directory.
  Json Add(const ReportChunk& chunk) {
    const std::string base64 = absl::Base64Escape(chunk.deflated);
    if (tags_.empty() || tags_.back().size() + base64.size() > kMaxTagChars) tags_.emplace_back();
    Json entry = {{"tag", tags_.size() - 1},
                  {"offset", tags_.back().size()},
                  {"length", base64.size()},
                  {"rows", chunk.rows},
                  {"allocations", chunk.allocations},
                  {"first_allocation", chunk.first_allocation},
                  {"begin_ns", chunk.begin_ns},
                  {"end_ns", chunk.end_ns},
                  {"live_before", chunk.before.live},
                  {"reserved_before", chunk.before.reserved},
                  {"device_used_before", chunk.before.device_used}};
    tags_.back() += base64;
    return entry;
  }

  void AppendTo(std::string& html) const {
    for (const std::string& tag : tags_) {
      absl::StrAppend(&html, "<script type=\"application/octet-stream\" class=\"offcut-data\">",
                      tag, "</script>\n");
    }
  }

 private:
  std::vector<std::string> tags_;
};

absl::Status FileError(absl::string_view what, absl::string_view path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int file, absl::string_view text, absl::string_view path) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(absl::StrCat("write ", text.size(), " bytes to"), path);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> RenderReport(absl::Span<TraceReader* const> readers,
                                         const ReportHeading& heading, const ViewerTemplate& page) {
  Json overview = {{"format", "offcut-report"},
                   {"version", kReportVersion},
                   {"title", heading.title},
                   {"unreadable", heading.unreadable},
                   {"devices", Json::array()}};
  DataTags data;
  for (TraceReader* reader : readers) {
    OFFCUT_ASSIGN_OR_RETURN(DeviceReport device, MakeDeviceReport(*reader));
    device.overview["chunks"] = Json::array();
    for (ReportChunk& chunk : device.chunks) {
      device.overview["chunks"].push_back(data.Add(chunk));
      chunk.deflated.clear();
    }
    overview["devices"].push_back(std::move(device.overview));
  }
  std::string html = absl::StrCat(page.before_overview,
                                  "<script type=\"application/json\" id=\"offcut-overview\">",
                                  ScriptSafeJson(overview), "</script>", page.before_data);
  data.AppendTo(html);
  absl::StrAppend(&html, page.after_data);
  return html;
}

absl::StatusOr<std::string> MakeReport(absl::string_view recording, absl::string_view title) {
  OFFCUT_ASSIGN_OR_RETURN(const ViewerTemplate page, ReadViewerTemplate());
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<std::string> files, FindTraceFiles(recording));
  std::vector<std::unique_ptr<TraceReader>> owned;
  std::vector<TraceReader*> readers;
  ReportHeading heading{.title = std::string(title)};
  absl::Status first_error;
  for (const std::string& file : files) {
    absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(file);
    if (!reader.ok()) {
      first_error.Update(reader.status());
      heading.unreadable.emplace_back(reader.status().message());
      continue;
    }
    readers.push_back(reader->get());
    owned.push_back(*std::move(reader));
  }
  if (readers.empty()) return first_error;
  return RenderReport(readers, heading, page);
}

absl::Status WriteReport(absl::string_view html, absl::string_view output) {
  // Under another name first: nobody finds half a report.
  const std::string path(output);
  const std::string partial = absl::StrCat(path, ".", getpid(), ".partial");
  const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return FileError("create", partial);
  absl::Status status = WriteAll(file, html, partial);
  if (close(file) != 0) status.Update(FileError("close", partial));
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) {
    status = FileError("rename the finished report to", path);
  }
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

}  // namespace offcut
