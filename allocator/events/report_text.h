// ReportText: a text among the events, in parts of 16 bytes (ReportTextAdded in events.def).
//
// So a report of a request that failed is where the request is, survives what the events survive,
// and is nothing new to whoever only passes events on. Texts are bounded: a reader holds at most
// kMaxReportTextBytes.

#ifndef OFFCUT_ALLOCATOR_EVENTS_REPORT_TEXT_H_
#define OFFCUT_ALLOCATOR_EVENTS_REPORT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "allocator/events/event.h"

namespace offcut {

inline constexpr size_t kMaxReportTextBytes = 16 * 1024;

// Calls `emit` with the events that hold the text, cut off after kMaxReportTextBytes.
void EmitReportText(absl::string_view text, absl::FunctionRef<void(const Event&)> emit);

// Puts the parts together again. Not thread-safe.
class ReportTextReader {
 public:
  // The text, if this event is its last part. Parts that do not fit together are passed over.
  std::optional<std::string> See(const Event& event);

 private:
  std::string text_;
  uint32_t next_part_ = 0;
  uint32_t parts_ = 0;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_EVENTS_REPORT_TEXT_H_
