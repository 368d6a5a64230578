// The driver contract over SimDriver, with and without memory behind its addresses.

#include <utility>

#include "allocator/driver/cuda_results.h"
#include "allocator/sim/sim_driver.h"
#include "tests/contract/driver_contract.h"

namespace offcut {
namespace {

class SimWorld final : public ContractWorld {
 public:
  explicit SimWorld(std::unique_ptr<SimDriver> driver) : driver_(std::move(driver)) {}

  Driver& driver() override { return *driver_; }

  StreamHandle CreateStream(bool non_blocking) override {
    return *streams().CreateStream(0, {.non_blocking = non_blocking});
  }
  void DestroyStream(StreamHandle stream) override {
    EXPECT_TRUE(streams().DestroyStream(stream).ok());
  }
  void Block(StreamHandle stream) override {
    EXPECT_TRUE(streams().Submit(0, stream, kBlockNs).ok());
    blocked_until_ns_ = driver_->model().clock().NowNs() + kBlockNs;
  }
  bool Unblock() override {
    const uint64_t now_ns = driver_->model().clock().NowNs();
    const bool stood = now_ns < blocked_until_ns_;
    if (stood) driver_->AdvanceNs(blocked_until_ns_ - now_ns);
    blocked_until_ns_ = 0;
    return stood;
  }
  bool BlocksOneStream() const override { return true; }

  bool HasContext() override { return false; }  // the model knows none

  void BeginCapture(StreamHandle stream, ContractCaptureMode mode) override {
    EXPECT_TRUE(streams().BeginCapture(0, stream, static_cast<sim::CaptureMode>(mode)).ok());
  }
  bool EndCapture(StreamHandle stream) override {
    const auto graph = streams().EndCapture(0, stream);
    return graph.ok() && streams().DestroyGraph(*graph).ok();
  }

  bool EndCaptureAndLaunch(StreamHandle stream) override {
    const auto graph = streams().EndCapture(0, stream);
    if (!graph.ok()) return false;
    const auto exec = streams().InstantiateGraph(*graph);
    EXPECT_TRUE(streams().DestroyGraph(*graph).ok());
    if (!exec.ok()) return false;
    graphs_.push_back(*exec);
    return streams().LaunchGraph(0, *exec, stream).ok();
  }

  bool HasMemory() const override { return driver_->model().memory().backed(); }
  absl::Status Write(DevicePtr address, const std::vector<uint8_t>& bytes) override {
    return CopyAndWait(address, reinterpret_cast<DevicePtr>(bytes.data()), bytes.size());
  }
  absl::StatusOr<std::vector<uint8_t>> Read(DevicePtr address, Bytes bytes) override {
    std::vector<uint8_t> read(bytes);
    const absl::Status copied =
        CopyAndWait(reinterpret_cast<DevicePtr>(read.data()), address, bytes);
    if (!copied.ok()) return copied;
    return read;
  }
  absl::Status Fill(StreamHandle stream, DevicePtr address, uint8_t value, Bytes bytes) override {
    return driver_->model().Fill(0, stream, address, value, bytes);
  }

  void MakeWait(StreamHandle stream, EventHandle event) override {
    EXPECT_TRUE(streams().StreamWaitEvent(0, stream, event).ok());
  }

  void ExpectNothingLeft() override {
    for (const sim::GraphExecHandle graph : graphs_) {
      EXPECT_TRUE(streams().DestroyGraphExec(graph).ok());
    }
    EXPECT_TRUE(driver_->SynchronizeDevice(0).ok());
    const sim::MemoryCensus memory = driver_->model().memory().Census();
    EXPECT_EQ(memory.reservations, 0u);
    EXPECT_EQ(memory.handles, 0u);
    EXPECT_EQ(memory.mappings, 0u);
    EXPECT_EQ(memory.physical_bytes, 0u);
    EXPECT_EQ(memory.allocations, 0u);
    const sim::StreamCensus left = streams().Census();
    EXPECT_EQ(left.streams, 0u);
    EXPECT_EQ(left.events, 0u);
    EXPECT_EQ(left.captures, 0u);
    EXPECT_EQ(left.graphs, 0u);
    EXPECT_EQ(left.graph_execs, 0u);
  }

 private:
  static constexpr uint64_t kBlockNs = 1'000'000'000;

  absl::Status CopyAndWait(DevicePtr to, DevicePtr from, Bytes bytes) {
    const absl::Status copied = driver_->model().Copy(0, nullptr, to, from, bytes);
    return copied.ok() ? streams().SynchronizeStream(0, nullptr) : copied;
  }

  sim::StreamModel& streams() { return driver_->model().streams(); }

  const std::unique_ptr<SimDriver> driver_;
  uint64_t blocked_until_ns_ = 0;
  std::vector<sim::GraphExecHandle> graphs_;
};

ContractParam SimParam(const std::string& name, sim::Backing backing, uint64_t lag_ns) {
  return {name, [=]() -> absl::StatusOr<std::unique_ptr<ContractWorld>> {
            sim::ModelOptions options{.backing = backing};
            options.machine.lag_ns = lag_ns;
            auto driver = SimDriver::Create(options);
            if (!driver.ok()) return driver.status();
            const absl::Status initialized = (*driver)->Initialize();
            if (!initialized.ok()) return initialized;
            return std::make_unique<SimWorld>(*std::move(driver));
          }};
}

INSTANTIATE_TEST_SUITE_P(Sim, DriverContract,
                         testing::Values(SimParam("AddressesOnly", sim::Backing::kNone, 0),
                                         SimParam("AddressesOnlyWithLag", sim::Backing::kNone,
                                                  50'000'000),
                                         SimParam("HostMemory", sim::Backing::kHostMemory, 0)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace offcut
