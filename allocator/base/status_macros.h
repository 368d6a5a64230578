// The one macro with a hidden return, and its StatusOr twin.

#ifndef OFFCUT_ALLOCATOR_BASE_STATUS_MACROS_H_
#define OFFCUT_ALLOCATOR_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define OFFCUT_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::absl::Status offcut_status_ = (expression);    \
    if (!offcut_status_.ok()) return offcut_status_; \
  } while (false)

#define OFFCUT_MACRO_CONCAT_INNER_(a, b) a##b
#define OFFCUT_MACRO_CONCAT_(a, b) OFFCUT_MACRO_CONCAT_INNER_(a, b)

// OFFCUT_ASSIGN_OR_RETURN(int count, driver.DeviceCount());
#define OFFCUT_ASSIGN_OR_RETURN(declaration, expression) \
  OFFCUT_ASSIGN_OR_RETURN_(OFFCUT_MACRO_CONCAT_(offcut_or_, __LINE__), declaration, expression)
#define OFFCUT_ASSIGN_OR_RETURN_(status_or, declaration, expression) \
  auto status_or = (expression);                                     \
  if (!status_or.ok()) return std::move(status_or).status();         \
  declaration = *std::move(status_or)

#endif  // OFFCUT_ALLOCATOR_BASE_STATUS_MACROS_H_
