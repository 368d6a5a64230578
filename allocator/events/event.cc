#include "allocator/events/event.h"

#include "absl/strings/str_cat.h"

namespace offcut {
namespace {

constexpr EventDescription kDescriptions[] = {
#define OFFCUT_EVENT(name, kind, address, bytes, extra, sentence) \
  {EventKind::k##name, #name, address, bytes, extra, sentence},
#include "allocator/events/events.def"
#undef OFFCUT_EVENT
};

}  // namespace

absl::Span<const EventDescription> EventDescriptions() { return kDescriptions; }

const EventDescription* DescribeEvent(EventKind kind) {
  for (const EventDescription& description : kDescriptions) {
    if (description.kind == kind) return &description;
  }
  return nullptr;
}

absl::string_view Describe(ReclaimStep step) {
  switch (step) {
#define OFFCUT_RECLAIM_STEP(name, number, sentence) \
  case ReclaimStep::k##name:                        \
    return sentence;
#include "allocator/events/reclaim_steps.def"
#undef OFFCUT_RECLAIM_STEP
  }
  return "";
}

absl::string_view Describe(FailureReason reason) {
  switch (reason) {
#define OFFCUT_FAILURE_REASON(name, number, sentence) \
  case FailureReason::k##name:                        \
    return sentence;
#include "allocator/events/failure_reasons.def"
#undef OFFCUT_FAILURE_REASON
  }
  return "";
}

std::string ToString(const Event& event) {
  const EventDescription* description = DescribeEvent(event.kind);
  return absl::StrCat(description != nullptr ? description->name
                                             : absl::StrCat("kind ", static_cast<int>(event.kind)),
                      " time_ns=", event.time_ns, " device=", static_cast<int>(event.device),
                      " pool=", event.pool, " address=0x", absl::Hex(event.address),
                      " bytes=", event.bytes, " extra=", event.extra);
}

}  // namespace offcut
