// ChangeObserver: tells a C callback what changed on one device, in the words of offcut.h.
//
// An EventSink: called under the device's lock, in the order of the changes. Knows the streams and
// private pools that events name by index. One per device, and as long as the process lives.

#ifndef OFFCUT_ALLOCATOR_CHANGE_OBSERVER_H_
#define OFFCUT_ALLOCATOR_CHANGE_OBSERVER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "allocator/base/units.h"
#include "allocator/core/state_view.h"
#include "allocator/events/emitter.h"
#include "allocator/events/event.h"
#include "allocator/offcut.h"
#include "allocator/policy/native_sizes.h"

namespace offcut {

// Whom to tell.
struct ChangeCallback {
  offcut_observer call = nullptr;
  void* context = nullptr;
};

class ChangeObserver final : public EventSink {
 public:
  // `divisions`: by which requests are rounded up.
  ChangeObserver(DeviceIndex device, ChangeCallback callback,
                 const policy::native::Divisions& divisions)
      : device_(device), callback_(callback), divisions_(divisions) {}

  // Where the device has streams and pools already.
  void Begin(const StateView& view);
  void OnEvent(const Event& event) override;

 private:
  void Tell(const Event& event, offcut_action action, size_t requested, size_t size);
  void TellOfBlock(const Event& event, offcut_action action);
  void TellOfRange(const Event& event, offcut_action action);

  const DeviceIndex device_;
  const ChangeCallback callback_;
  const policy::native::Divisions divisions_;
  struct Pool {
    StreamHandle stream = nullptr;
    offcut_pool_id id = {0, 0};
  };
  std::vector<StreamHandle> streams_;        // by index
  std::vector<Pool> pools_;                  // by index
  absl::flat_hash_set<DevicePtr> segments_;  // their addresses
  Bytes device_free_ = 0;                    // when last sampled
  uint32_t moved_ = ~uint32_t{0};            // the granule of the event before, if that was a move
};

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_CHANGE_OBSERVER_H_
