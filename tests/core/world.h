// World: one simulated device with an allocator on it, observed and audited.
//
// What most tests of the core need in a line. Check() holds the allocator against its witnesses
// (witnesses.h).

#ifndef OFFCUT_TESTS_CORE_WORLD_H_
#define OFFCUT_TESTS_CORE_WORLD_H_

#include <memory>
#include <vector>

#include "allocator/base/clock.h"
#include "allocator/core/address_map.h"
#include "allocator/core/device_allocator.h"
#include "allocator/driver/faulty_driver.h"
#include "allocator/events/event.h"
#include "allocator/sim/sim_driver.h"
#include "gtest/gtest.h"
#include "tests/core/witnesses.h"

namespace offcut {

class EventLog final : public EventSink {
 public:
  void OnEvent(const Event& event) override { events.push_back(event); }
  size_t Count(EventKind kind) const;
  std::vector<Event> events;
};

class World {
 public:
  struct Options {
    Bytes memory_bytes = kGiB;
    uint64_t lag_ns = 0;
    Bytes limit = kNoLimit;
    Config config;
    int devices = 1;  // the allocator is on the first
  };
  World() : World(Options()) {}
  explicit World(const Options& options);

  // Each checks afterwards. Allocate fails the test if it cannot serve.
  DevicePtr Allocate(Bytes requested, StreamHandle stream = nullptr);
  absl::Status TryAllocate(Bytes requested, StreamHandle stream = nullptr);
  void Free(DevicePtr address);
  void RecordStream(DevicePtr address, StreamHandle stream) { RecordStream(address, 0, stream); }
  void RecordStream(DevicePtr address, DeviceIndex device, StreamHandle stream);
  StreamHandle NewStream();
  // A kernel of `duration_ns` on `stream` that uses the whole live block at `address`. The
  // simulated driver refuses to unmap what a kernel still uses.
  void Launch(StreamHandle stream, DevicePtr address, uint64_t duration_ns = 0);

  void Check();

  Bytes reserved() const {
    return static_cast<Bytes>(allocator->counters().reserved_bytes[0].current);
  }

  SimDriver sim;
  FaultyDriver driver{&sim};
  Clock clock;
  AddressMap address_map;
  EventLog log;
  Witnesses witnesses;
  std::unique_ptr<DeviceAllocator> allocator;
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_CORE_WORLD_H_
