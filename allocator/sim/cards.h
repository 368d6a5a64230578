// Which GPU is simulated: the table of cards, and the text that chooses one (OFFCUT_SIM).
//
// Values only, no state; safe from any thread.

#ifndef OFFCUT_ALLOCATOR_SIM_CARDS_H_
#define OFFCUT_ALLOCATOR_SIM_CARDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/driver/driver.h"

namespace offcut::sim {

struct Card {
  const char* key;   // as written in OFFCUT_SIM
  const char* name;  // as CUDA reports it
  Bytes memory_bytes;
  int major, minor;
  int multiprocessors;
  int shared_block_optin_bytes;
  int shared_multiprocessor_bytes;
  int l2_bytes;
  int bus_bits;
  int clock_khz;
  int memory_clock_khz;
  int threads_per_multiprocessor;
  uint32_t pci_device_id;
};

// The first is the default.
absl::Span<const Card> Cards();

// 2 MiB on every data-centre card so far.
inline constexpr Bytes kGranularity = 2 * kMiB;
// Device used minus ours, on an H200 (driver 580.159, PyTorch 2.11) after the first matrix product;
// the context alone takes 527 MiB of it.
inline constexpr Bytes kDefaultOutsideBytes = 685 * kMiB;
inline constexpr int kDevicesMax = 64;

// What an H200 claims of physical memory, and what it then refuses (driver 580.159): fabric
// handles, alone and beside descriptors, without the service that they need.
inline constexpr MemoryFlags kClaimedMemoryFlags{
    .rdma = true, .export_fd = true, .export_fabric = true};
std::vector<MemoryFlags> RefusedMemoryFlags();

struct SimOptions {
  const Card* card = &Cards()[0];
  Bytes memory_bytes = 0;  // total per device; 0: the card's
  int devices = 1;
  uint64_t lag_ns = 0;                         // how far each device runs behind the host
  Bytes outside_bytes = kDefaultOutsideBytes;  // in use on each device, but not by the program

  Bytes TotalBytes() const { return memory_bytes != 0 ? memory_bytes : card->memory_bytes; }
};

// Parses `CARD[,memory=80GiB][,devices=2][,lag=5ms][,outside=500MiB]`. Sizes are whole numbers with
// a unit (B, KiB, MiB, GiB, TiB), durations with ns, us, ms or s. Strict: an unknown card or key, a
// value without unit or out of range, or a key given twice is an InvalidArgument that names it,
// where it stands, and what is allowed.
absl::StatusOr<SimOptions> ParseSimOptions(absl::string_view text);

// The text that ParseSimOptions turns into `options`, every key written out.
std::string FormatSimOptions(const SimOptions& options);

}  // namespace offcut::sim

#endif  // OFFCUT_ALLOCATOR_SIM_CARDS_H_
