// Sizes for people.

#ifndef OFFCUT_ALLOCATOR_BASE_FORMAT_H_
#define OFFCUT_ALLOCATOR_BASE_FORMAT_H_

#include <string>

#include "allocator/base/units.h"

namespace offcut {

// "512 B", "1.50 KiB", "20.00 MiB", "1.95 GiB": two decimals from KiB on.
std::string FormatBytes(Bytes bytes);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_BASE_FORMAT_H_
