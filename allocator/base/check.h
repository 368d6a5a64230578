// OFFCUT_CHECK: stops the process at a broken invariant, saying which and where.
//
// For programmer errors only. Whatever a user, a file or a driver can cause is an absl::Status.

#ifndef OFFCUT_ALLOCATOR_BASE_CHECK_H_
#define OFFCUT_ALLOCATOR_BASE_CHECK_H_

#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"

namespace offcut::base_internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view message);

}  // namespace offcut::base_internal

// `message` is anything that converts to absl::string_view; it is evaluated only on failure.
#define OFFCUT_CHECK(condition, message)                                             \
  do {                                                                               \
    if (ABSL_PREDICT_FALSE(!(condition))) {                                          \
      ::offcut::base_internal::CheckFailed(__FILE__, __LINE__, #condition, message); \
    }                                                                                \
  } while (false)

#endif  // OFFCUT_ALLOCATOR_BASE_CHECK_H_
