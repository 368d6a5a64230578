// How a fault in an option's text is told: what, where, and what was probably meant.
//
// Pure functions over untrusted text.

#ifndef OFFCUT_ALLOCATOR_CONFIG_FAULT_H_
#define OFFCUT_ALLOCATOR_CONFIG_FAULT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace offcut {

struct Fault {
  size_t offset = 0;  // of the byte at fault in the text; the text's size if something is missing
  std::string message;
};

// "OFFCUT_CONF, column 5: message", then the text (a part of it, if it is long) on a line of its
// own and a caret below the place. Bytes that do not print are shown as '?', so that the caret
// stands right.
std::string ShowFault(absl::string_view variable, absl::string_view text, const Fault& fault);

// 'word', printable and not too long.
std::string Quote(absl::string_view word);

// "; did you mean 'max_split_size_mb'?", or the way to all keys if none is near.
std::string SuggestFor(absl::string_view word, absl::Span<const absl::string_view> keys);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CONFIG_FAULT_H_
