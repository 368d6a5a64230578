#include "allocator/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace offcut::base_internal {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view message) {
  // stdio alone: the heap may be what is broken.
  std::fprintf(stderr, "offcut: internal error at %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace offcut::base_internal
