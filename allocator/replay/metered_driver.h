// MeteredDriver: forwards every call to a SimDriver and keeps account of what the calls would have
// cost (driver_costs.h) and of stalls of the host.
//
// The account stands beside the run: it moves neither results nor the simulated clock. One thing is
// added: the device is taken to be busy, as in training, so a wait for the whole device is one for
// work that was submitted just now. (No trace tells of kernels; an event on a stream means the same
// without help.) And memory with an address of its own, segments that is, lies where the recorded
// run had it: PyTorch breaks ties by address. Not thread-safe: for one allocator's calls.

#ifndef OFFCUT_ALLOCATOR_REPLAY_METERED_DRIVER_H_
#define OFFCUT_ALLOCATOR_REPLAY_METERED_DRIVER_H_

#include <cstdint>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "allocator/base/units.h"
#include "allocator/driver/forwarding_driver.h"
#include "allocator/replay/program.h"
#include "allocator/sim/sim_driver.h"

namespace offcut {

struct DriverMeter {
  uint64_t calls = 0;      // of all kinds
  uint64_t ns = 0;         // modelled
  uint64_t growth_ns = 0;  // of these, for memory that is new: created, mapped, opened; allocated
  uint64_t waits = 0;      // calls that stalled the host for the device
  uint64_t wait_ns = 0;
};

class MeteredDriver final : public ForwardingDriver {
 public:
  // The n-th AllocateMemory lands at the n-th address of `segments`, if that is free. Both must
  // outlive this.
  explicit MeteredDriver(SimDriver& driver, absl::Span<const RecordedSegment> segments = {})
      : ForwardingDriver(&driver), sim_(driver), segments_(segments) {}

  const DriverMeter& meter() const { return meter_; }
  // What AllocateMemory handed out, in order: bytes.
  const std::vector<Bytes>& allocations() const { return allocations_; }

  absl::Status SynchronizeDevice(DeviceIndex device) override;
  absl::Status Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) override;
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) override;
  absl::Status Unmap(DevicePtr address, Bytes bytes) override;
  absl::StatusOr<DevicePtr> AllocateMemory(DeviceIndex device, Bytes bytes) override;
  absl::Status FreeMemory(DeviceIndex device, DevicePtr address) override;

 private:
  absl::Status Before(DriverCall call) override;
  void After(DriverCall call, const absl::Status& status) override;
  // A range that mappings make up without a gap.
  uint64_t HandlesIn(DevicePtr address, Bytes bytes) const;

  absl::Status SubmitWork(DeviceIndex device);

  SimDriver& sim_;
  const absl::Span<const RecordedSegment> segments_;
  std::vector<Bytes> allocations_;
  uint64_t waited_before_ns_ = 0;
  DriverMeter meter_;
  // Mappings of more than one granule, by address: sizes. All others are of one.
  absl::flat_hash_map<DevicePtr, Bytes> large_mappings_;
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_REPLAY_METERED_DRIVER_H_
