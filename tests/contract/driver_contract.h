// What every Driver promises, as tests: one suite over the simulated machine in process, over
// CudaDriver on the simulated CUDA, and over CudaDriver on hardware. What hardware teaches becomes
// a statement in driver_contract.cc before it becomes a fix.

#ifndef OFFCUT_TESTS_CONTRACT_DRIVER_CONTRACT_H_
#define OFFCUT_TESTS_CONTRACT_DRIVER_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/driver/driver.h"

namespace offcut {

// Numbers as CUstreamCaptureMode.
enum class ContractCaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// A driver, and what the statements need of the program around it. All of it for device 0.
class ContractWorld {
 public:
  virtual ~ContractWorld() = default;

  virtual Driver& driver() = 0;

  virtual StreamHandle CreateStream(bool non_blocking) = 0;
  virtual void DestroyStream(StreamHandle stream) = 0;
  // The per-thread default stream.
  StreamHandle PerThreadStream() const { return reinterpret_cast<StreamHandle>(2); }
  // Whatever is submitted to the stream from now on is not done before Unblock.
  virtual void Block(StreamHandle stream) = 0;
  virtual void MakeWait(StreamHandle stream, EventHandle event) = 0;
  // Whether all blocks stood until now: false if something waited for a blocked stream.
  virtual bool Unblock() = 0;
  // Whether a blocked stream leaves others free.
  virtual bool BlocksOneStream() const = 0;

  // Whether the calling thread has a current CUDA context.
  virtual bool HasContext() = 0;

  virtual void BeginCapture(StreamHandle stream, ContractCaptureMode mode) = 0;
  // Whether the capture was still valid.
  virtual bool EndCapture(StreamHandle stream) = 0;
  // The same, and a launch of the graph, which lives until the world ends.
  virtual bool EndCaptureAndLaunch(StreamHandle stream) = 0;

  // Whether device memory holds data; without, the functions below only check access.
  virtual bool HasMemory() const = 0;
  virtual absl::Status Write(DevicePtr address, const std::vector<uint8_t>& bytes) = 0;
  virtual absl::StatusOr<std::vector<uint8_t>> Read(DevicePtr address, Bytes bytes) = 0;
  // In the stream's order, without waiting.
  virtual absl::Status Fill(StreamHandle stream, DevicePtr address, uint8_t value, Bytes bytes) = 0;

  // A failure for everything that a test left behind, as far as the world can tell.
  virtual void ExpectNothingLeft() = 0;
};

// Unavailable where the machine has no such driver: the test is skipped, with the reason.
struct ContractParam {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<ContractWorld>>()> make;

  friend void PrintTo(const ContractParam& param, std::ostream* out) { *out << param.name; }
};

class DriverContract : public testing::TestWithParam<ContractParam> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Driver& driver() { return world_->driver(); }
  ContractWorld& world() { return *world_; }

  // Each expects success; what they make is undone at the end of the test, unless it was before.
  DevicePtr Reserve(Bytes bytes);
  PhysicalHandle Create(Bytes bytes);
  void Release(PhysicalHandle handle);
  void Map(DevicePtr address, Bytes bytes, PhysicalHandle handle);
  void Open(DevicePtr address, Bytes bytes);
  void Unmap(DevicePtr address, Bytes bytes);
  DevicePtr Allocate(Bytes bytes);
  void Free(DevicePtr address);
  DriverPool CreatePool(const DriverPoolOptions& options = {});
  // Undone only by FreeAsync.
  DevicePtr AllocateAsync(DriverPool pool, Bytes bytes, StreamHandle stream);
  void FreeAsync(DevicePtr address, StreamHandle stream);
  DriverPoolUsage Usage(DriverPool pool);
  void Synchronize();
  EventHandle CreateEvent();
  StreamHandle CreateStream(bool non_blocking = true);
  // Reserved, mapped, opened and released to the mapping.
  DevicePtr MappedMemory(Bytes bytes);
  Bytes FreeBytes();
  bool IsDone(EventHandle event);

  void ExpectBytes(DevicePtr address, Bytes bytes, uint8_t value);

  Bytes granule_ = 0;

 private:
  struct Extent {
    DevicePtr address;
    Bytes bytes;
  };

  std::unique_ptr<ContractWorld> world_;
  std::vector<Extent> reservations_, mappings_;
  std::vector<PhysicalHandle> handles_;
  std::vector<DevicePtr> allocations_;
  std::vector<DriverPool> pools_;
  std::vector<EventHandle> events_;
  std::vector<StreamHandle> streams_;
};

}  // namespace offcut

#endif  // OFFCUT_TESTS_CONTRACT_DRIVER_CONTRACT_H_
