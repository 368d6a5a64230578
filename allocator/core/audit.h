// Audit: recomputes every invariant of an allocator's state from a StateView.
//
// Shares no code with the allocator: short, obvious checks over plain lists. Tests call it after
// every operation, and anyone may call it in production (offcut_audit). Thread-safe, no state.

#ifndef OFFCUT_ALLOCATOR_CORE_AUDIT_H_
#define OFFCUT_ALLOCATOR_CORE_AUDIT_H_

#include "absl/status/status.h"
#include "allocator/core/state_view.h"

namespace offcut {

// OK, or Internal with the first contradiction that was found. What is checked stands, one sentence
// each, in audit.cc.
absl::Status Audit(const StateView& view);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CORE_AUDIT_H_
