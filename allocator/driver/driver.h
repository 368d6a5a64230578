// Driver: the handful of things that we ask of a GPU.
//
// Implementations: CudaDriver (libcuda.so.1, loaded at run time), sim/SimDriver (the device model,
// in process), FaultyDriver (wraps another and fails chosen calls, for tests). One contract suite
// (tests/contract) runs over all of them and over hardware; what hardware teaches us becomes a
// statement there first.
//
// Conventions, once for all methods:
//  - Thread-safe. No method waits for the device unless it is named Synchronize or Await, or says
//    so.
//  - Methods that take a device make that device's primary context current for the duration of the
//    call and leave the caller's context as it was. Before the first, Initialize() must have
//    succeeded.
//  - Errors: the message names CUDA's function, its sizes, and CUDA's error name; the CUresult
//    travels as a payload (DriverErrorCode). Codes: out of memory ResourceExhausted; not supported
//    Unimplemented; invalid arguments or handles InvalidArgument; a call that the stream's capture
//    forbids FailedPrecondition; a library or driver that is missing or shutting down Unavailable;
//    anything else Internal.
//  - Sizes and addresses of memory calls are multiples of the device's granularity.

#ifndef OFFCUT_ALLOCATOR_DRIVER_DRIVER_H_
#define OFFCUT_ALLOCATOR_DRIVER_DRIVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "allocator/base/units.h"

namespace offcut {

enum class DriverCall : uint8_t {
#define OFFCUT_DRIVER_CALL(name, number, cuda_name) k##name = number,
#include "allocator/driver/driver_calls.def"
#undef OFFCUT_DRIVER_CALL
};

// CUDA's name of a call, or "" for a number that this version does not know.
absl::string_view DriverCallName(uint8_t number);

// The CUresult that an error came with; 0 for OK, -1 where CUDA gave none.
int DriverErrorCode(const absl::Status& status);

// An error as the conventions above describe it. `what`: "cuMemCreate(2097152 bytes on device 0)".
absl::Status DriverError(int cu_result, absl::string_view what);

// What physical memory can do beside being mapped; it cannot be added later.
struct MemoryFlags {
  bool rdma = false;           // reached by other devices on the bus (GPUDirect RDMA)
  bool export_fd = false;      // exported to other processes as a file descriptor
  bool export_fabric = false;  // exported to other nodes as a fabric handle

  friend bool operator==(const MemoryFlags&, const MemoryFlags&) = default;
};

struct DeviceProperties {
  std::string name;             // "NVIDIA H200"
  Bytes total_bytes = 0;        // memory of the device
  Bytes granularity = 0;        // smallest unit of physical memory and of mapping; 2 MiB so far
  bool virtual_memory = false;  // supports reserve, create, map
  int compute_major = 0;
  int compute_minor = 0;
  // What the device claims. It may refuse each all the same, alone or beside another (containers,
  // virtual machines, a fabric without its service): see GrantedMemoryFlags.
  MemoryFlags memory_flags;
  bool driver_pools = false;  // supports CreateDriverPool and what belongs to it
};

struct MemoryInfo {
  Bytes free_bytes = 0;
  Bytes total_bytes = 0;
};

// As CUDA's own defaults.
struct DriverPoolOptions {
  // Held back whenever the host has waited for something; what is free beyond it goes back to the
  // device then.
  Bytes release_threshold_bytes = 0;
  // What was freed on another stream serves a stream that ...
  bool reuse_follow_events = true;  // ... was made to wait for it, by events
  bool reuse_opportunistic = true;  // ... comes after the device happened to be done with it
  bool reuse_internal_dependencies = true;  // ... the driver makes wait, if there is no memory else
};

// Of one pool. Maxima since the pool was created.
struct DriverPoolUsage {
  Bytes reserved_bytes = 0;  // taken from the device
  Bytes reserved_bytes_max = 0;
  Bytes used_bytes = 0;  // allocated and not freed, as asked for
  Bytes used_bytes_max = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Loads and initialises CUDA; cheap when done before. Unavailable, with the reason and the
  // remedy, where there is no driver or no device.
  virtual absl::Status Initialize() = 0;

  // --- Devices ---
  virtual absl::StatusOr<int> DeviceCount() = 0;
  virtual absl::StatusOr<DeviceProperties> GetProperties(DeviceIndex device) = 0;
  virtual absl::StatusOr<MemoryInfo> GetMemoryInfo(DeviceIndex device) = 0;
  // Waits for everything submitted to the device. Harms no capture where no driver pool was
  // created.
  virtual absl::Status SynchronizeDevice(DeviceIndex device) = 0;

  // --- Address space and physical memory ---
  // `alignment`: 0 or a power of two. `hint`: an address to try first, or 0.
  virtual absl::StatusOr<DevicePtr> ReserveAddress(DeviceIndex device, Bytes bytes, Bytes alignment,
                                                   DevicePtr hint) = 0;
  // The whole range of one ReserveAddress; nothing may be mapped in it.
  virtual absl::Status FreeAddress(DevicePtr address, Bytes bytes) = 0;
  // Flags that the device does not grant: an error that is not ResourceExhausted.
  virtual absl::StatusOr<PhysicalHandle> CreateMemory(DeviceIndex device, Bytes bytes,
                                                      const MemoryFlags& flags) = 0;
  // The memory goes back to the device once its last mapping is gone too.
  virtual absl::Status ReleaseMemory(PhysicalHandle handle) = 0;
  // Maps the whole handle; `bytes` is its size. A handle may be mapped at several addresses. Access
  // faults until SetAccess.
  virtual absl::Status Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) = 0;
  // Opens a mapped range, of one or many handles, to reads and writes from `device`.
  virtual absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) = 0;
  // A range that holds whole mappings only. Does NOT wait for kernels that use it.
  virtual absl::Status Unmap(DevicePtr address, Bytes bytes) = 0;
  // Four bytes at a multiple of 4 that is open to `device`, in order with the legacy default
  // stream; both WAIT for that stream. For self-tests. FailedPrecondition beside a capture.
  virtual absl::Status WriteWord(DeviceIndex device, DevicePtr address, uint32_t word) = 0;
  virtual absl::StatusOr<uint32_t> ReadWord(DeviceIndex device, DevicePtr address) = 0;

  // --- Memory with an address of its own ---
  // Of any size but 0; aligned to at least 512 bytes, from 2 MiB on to the granularity.
  virtual absl::StatusOr<DevicePtr> AllocateMemory(DeviceIndex device, Bytes bytes) = 0;
  // WAITS for all work on the device. `address`: one that AllocateMemory returned.
  virtual absl::Status FreeMemory(DeviceIndex device, DevicePtr address) = 0;

  // --- Pools of stream-ordered memory, kept by the driver ---
  // `flags`: of MemoryFlags the export; InvalidArgument with `rdma`, which pools do not know.
  virtual absl::StatusOr<DriverPool> CreateDriverPool(DeviceIndex device,
                                                      const MemoryFlags& flags) = 0;
  // What was allocated in it stays until it is freed, and the pool's memory with it.
  virtual absl::Status DestroyDriverPool(DriverPool pool) = 0;
  virtual absl::Status SetDriverPoolOptions(DriverPool pool, const DriverPoolOptions& options) = 0;
  virtual absl::StatusOr<DriverPoolUsage> GetDriverPoolUsage(DriverPool pool) = 0;
  // Its reserved_bytes alone, for where they are asked for again and again.
  virtual absl::StatusOr<Bytes> GetDriverPoolReserved(DriverPool pool) = 0;
  // Gives idle memory back to the device, down to `keep_bytes` if there is so much. What a stream
  // has freed and not yet passed is not idle.
  virtual absl::Status TrimDriverPool(DriverPool pool, Bytes keep_bytes) = 0;
  // Reads and writes from `peer`, which must be able to reach the pool's device, to all memory of
  // the pool, now and later.
  virtual absl::Status OpenDriverPoolTo(DriverPool pool, DeviceIndex peer) = 0;
  // For use in the order of `stream`, from here on; aligned to 512 bytes. `bytes` is not 0. On a
  // stream that is being captured, the allocation is a node of the graph: its memory is the
  // graph's, exists from a launch on, and is freed in the same capture or once after each launch.
  virtual absl::StatusOr<DevicePtr> AllocateAsync(DriverPool pool, Bytes bytes, DeviceIndex device,
                                                  StreamHandle stream) = 0;
  // Frees what AllocateAsync returned, in the order of `stream`, which must come after all uses. On
  // a stream that is being captured, only what the same capture allocated: else InvalidArgument,
  // and the capture goes on.
  virtual absl::Status FreeAsync(DevicePtr address, DeviceIndex device, StreamHandle stream) = 0;

  // --- Streams and events ---
  virtual absl::StatusOr<StreamId> GetStreamId(DeviceIndex device, StreamHandle stream) = 0;
  // Whether work submitted to the stream now is captured into a graph instead of run. An error that
  // CUDA gives for the legacy stream beside a blocking capture (906) counts as capturing.
  virtual absl::StatusOr<bool> IsCapturing(DeviceIndex device, StreamHandle stream) = 0;
  // Which capture the stream is part of: a number that no other capture gets; 0 for none.
  // Unimplemented by drivers before CUDA 12.3.
  virtual absl::StatusOr<uint64_t> GetCaptureId(DeviceIndex device, StreamHandle stream) = 0;
  // Without timing.
  virtual absl::StatusOr<EventHandle> CreateEvent(DeviceIndex device) = 0;
  virtual absl::Status DestroyEvent(DeviceIndex device, EventHandle event) = 0;
  virtual absl::Status RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) = 0;
  // What is submitted to `stream` from now on comes after the event's last record. Of streams that
  // are being captured, in the order of the graph; the one that waits joins the event's capture.
  virtual absl::Status WaitForEvent(DeviceIndex device, StreamHandle stream, EventHandle event) = 0;
  // Done when all work that was submitted to any stream of the device's primary context is. Only
  // while no stream of the device is being captured: the call would fail and END that capture.
  // Unimplemented by drivers before CUDA 12.5.
  virtual absl::Status RecordDeviceEvent(DeviceIndex device, EventHandle event) = 0;
  // Whether all work before the event's last record is done; true if it was never recorded.
  virtual absl::StatusOr<bool> QueryEvent(DeviceIndex device, EventHandle event) = 0;
  virtual absl::Status SynchronizeEvent(DeviceIndex device, EventHandle event) = 0;
  // As SynchronizeEvent, for at most `max_ns`: whether the work is done by then. Where the host may
  // not stall for ever, since what the event waits for may itself wait for the host's next call.
  virtual absl::StatusOr<bool> AwaitEvent(DeviceIndex device, EventHandle event,
                                          uint64_t max_ns) = 0;
};

// Whether one granule that is mapped at two addresses shows at each what was written through the
// other; tried with a granule of its own. False where the device shows something else; an error
// where that could not be tried.
absl::StatusOr<bool> SecondMappingsWork(Driver& driver, DeviceIndex device);

// The most useful flags that `device` grants, found by creating and releasing one granule with each
// combination of what it claims; none if the device has no virtual memory. File descriptors before
// fabric handles, which need a service beside the driver.
absl::StatusOr<MemoryFlags> GrantedMemoryFlags(Driver& driver, DeviceIndex device);

}  // namespace offcut

#endif  // OFFCUT_ALLOCATOR_DRIVER_DRIVER_H_
