// CoreUnderTest: the allocators of one simulated machine, as the harness sees them. The only file
// of this folder that knows the core's interface.
//
// One DeviceAllocator for each device, each with its witnesses. The calls that a program makes are
// virtual: a test that the harness finds errors replaces one by a wrong one. As thread-safe as the
// core; Check and Reserved want no other thread in it.

#ifndef OFFCUT_TESTS_FUZZ_CORE_UNDER_TEST_H_
#define OFFCUT_TESTS_FUZZ_CORE_UNDER_TEST_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/base/clock.h"
#include "allocator/config/config.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/core/pool_checkpoint.h"
#include "allocator/core/private_pools.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/sim_driver.h"
#include "tests/core/witnesses.h"
#include "tests/fuzz/program.h"

namespace offcut::fuzz {

class CoreUnderTest {
 public:
  // `sim` is the machine, `driver` the way to it; both outlive the core.
  CoreUnderTest(SimDriver& sim, Driver& driver);
  virtual ~CoreUnderTest();

  // Makes the allocators; on an error, some may exist. Once. `sinks`, by device, hear all events
  // and outlive the allocators; nobody beyond the last.
  absl::Status Open(const Setup& setup, absl::Span<EventSink* const> sinks = {});
  // Destroys them.
  void Close();

  virtual absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream, Bytes bytes);
  virtual absl::Status Free(DeviceIndex device, DevicePtr address);
  // The block of `device` is used on a stream of `user`.
  virtual absl::Status RecordStream(DeviceIndex device, DevicePtr address, DeviceIndex user,
                                    StreamHandle stream);
  virtual Bytes EmptyCache(DeviceIndex device);
  virtual absl::Status OpenTo(DeviceIndex device, DeviceIndex peer);
  void SetLimit(DeviceIndex device, Bytes bytes);
  // Does nothing once the allocators are gone.
  void SetFreeMemoryCallback(DeviceIndex device, std::function<bool()> callback);

  virtual absl::Status RetainPool(DeviceIndex device, PrivatePoolId pool);
  virtual absl::Status ReleasePool(DeviceIndex device, PrivatePoolId pool);
  uint32_t PoolUseCount(DeviceIndex device, PrivatePoolId pool);
  virtual absl::Status SetNoSplit(DeviceIndex device, PrivatePoolId pool);
  virtual absl::Status SetUseOnOom(DeviceIndex device, PrivatePoolId pool, bool use);
  virtual absl::Status BeginAllocateToPool(DeviceIndex device, PrivatePoolId pool,
                                           StreamHandle stream, PrivatePools::Filter filter);
  virtual absl::Status EndAllocateToPool(DeviceIndex device, PrivatePoolId pool);
  virtual Bytes EmptyCacheOf(DeviceIndex device, PrivatePoolId pool);
  virtual absl::StatusOr<bool> HasLiveBlocks(DeviceIndex device, PrivatePoolId pool,
                                             absl::Span<const DevicePtr> addresses);
  absl::StatusOr<PoolCheckpoint> TakeCheckpoint(DeviceIndex device, PrivatePoolId pool);
  virtual absl::StatusOr<RestoredBlocks> RestoreCheckpoint(DeviceIndex device,
                                                           const PoolCheckpoint& checkpoint);

  virtual absl::StatusOr<BlockInfo> FindBlock(DeviceIndex device, DevicePtr address);
  Accounting Account(DeviceIndex device);
  Counters counters(DeviceIndex device);
  // By the events, and without the allocator's lock: no other thread may be in it.
  Bytes ReservedBytes(DeviceIndex device) const;
  void MarkStep(DeviceIndex device, uint64_t step);
  void ResetPeaks(DeviceIndex device);
  void ResetTotals(DeviceIndex device);

  // All allocators against their witnesses, and the driver's books against all of them. What the
  // tests of the devices left at the driver when the allocators were made is nobody's.
  absl::Status Check();
  const sim::MemoryCensus& left_by_tests() const { return left_by_tests_; }

  // What a device holds, by its blocks, without asking the driver.
  struct Holdings {
    Bytes reserved_bytes = 0;
    Bytes live_bytes = 0;
    Bytes pending_bytes = 0;
    Bytes releasable_bytes = 0;  // whole granules in which nothing is in use, but for those of
                                 // private pools in use
  };
  Holdings HoldingsOf(DeviceIndex device);
  bool UsesDriverPools() const { return config_.layout() == LayoutKind::kAsync; }
  // More than any request of `bytes` makes reserved memory grow by; `routed` to a private pool.
  Bytes GrowthMax(Bytes bytes, bool routed) const;

 private:
  struct One {
    Witnesses witnesses;
    std::unique_ptr<DeviceAllocator> allocator;  // after its sinks: it goes first
  };

  SimDriver& sim_;
  Driver& driver_;
  const Clock clock_;
  AddressMap address_map_;
  Config config_;
  std::deque<One> devices_;
  sim::MemoryCensus left_by_tests_;
};

}  // namespace offcut::fuzz

#endif  // OFFCUT_TESTS_FUZZ_CORE_UNDER_TEST_H_
