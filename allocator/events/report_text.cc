#include "allocator/events/report_text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace offcut {
namespace {

constexpr size_t kPartBytes = sizeof(Event::address) + sizeof(Event::bytes);
constexpr uint32_t kMaxParts = kMaxReportTextBytes / kPartBytes;
constexpr int kPartsShift = 16;

}  // namespace

void EmitReportText(absl::string_view text, absl::FunctionRef<void(const Event&)> emit) {
  text = text.substr(0, kMaxReportTextBytes);
  const auto parts = static_cast<uint32_t>((text.size() + kPartBytes - 1) / kPartBytes);
  for (uint32_t part = 0; part < parts; ++part) {
    const absl::string_view piece = text.substr(part * kPartBytes, kPartBytes);
    char bytes[kPartBytes] = {};
    std::memcpy(bytes, piece.data(), piece.size());
    Event event = {.extra = part | parts << kPartsShift, .kind = EventKind::kReportTextAdded};
    std::memcpy(&event.address, bytes, sizeof(event.address));
    std::memcpy(&event.bytes, bytes + sizeof(event.address), sizeof(event.bytes));
    emit(event);
  }
}

std::optional<std::string> ReportTextReader::See(const Event& event) {
  if (event.kind != EventKind::kReportTextAdded) {
    next_part_ = 0;
    return std::nullopt;
  }
  const uint32_t part = event.extra & ((1u << kPartsShift) - 1);
  const uint32_t parts = event.extra >> kPartsShift;
  if (part == 0) {
    text_.clear();
    next_part_ = 0;
    parts_ = parts;
  }
  if (part != next_part_ || parts != parts_ || part >= parts || parts > kMaxParts) {
    // Of a text whose beginning is lost.
    next_part_ = kMaxParts;
    return std::nullopt;
  }
  char bytes[kPartBytes];
  std::memcpy(bytes, &event.address, sizeof(event.address));
  std::memcpy(bytes + sizeof(event.address), &event.bytes, sizeof(event.bytes));
  text_.append(bytes, kPartBytes);
  if (++next_part_ < parts) return std::nullopt;
  next_part_ = kMaxParts;
  text_.erase(std::find(text_.begin(), text_.end(), '\0'), text_.end());
  return std::move(text_);
}

}  // namespace offcut
