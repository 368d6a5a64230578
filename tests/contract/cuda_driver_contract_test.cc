// The driver contract over CudaDriver: on the simulated CUDA where that is preloaded (OFFCUT_SIM is
// set, and nothing may be skipped), else on the machine's own GPU.

#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "tests/contract/driver_contract.h"

namespace offcut {
namespace {

// What a program does beside the driver. Under the names that libcuda exports.
struct ProgramFunctions {
  decltype(&::cuDevicePrimaryCtxRetain) retain_context;
  decltype(&::cuCtxSetCurrent) set_context;
  decltype(&::cuCtxGetCurrent) get_context;
  decltype(&::cuStreamCreate) create_stream;
  decltype(&::cuStreamDestroy) destroy_stream;
  decltype(&::cuStreamBeginCapture) begin_capture;
  decltype(&::cuStreamEndCapture) end_capture;
  decltype(&::cuGraphDestroy) destroy_graph;
  decltype(&::cuGraphInstantiateWithFlags) instantiate;
  decltype(&::cuGraphLaunch) launch;
  decltype(&::cuGraphExecDestroy) destroy_executable;
  decltype(&::cuDeviceGraphMemTrim) trim_graphs;
  decltype(&::cuStreamWaitEvent) make_wait;
  decltype(&::cuLaunchHostFunc) launch_host_function;
  decltype(&::cuMemcpyHtoD) write;
  decltype(&::cuMemcpyDtoH) read;
  decltype(&::cuMemsetD8Async) fill;

  ProgramFunctions() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      EXPECT_NE(function, nullptr) << name;
    };
    find(retain_context, "cuDevicePrimaryCtxRetain");
    find(set_context, "cuCtxSetCurrent");
    find(get_context, "cuCtxGetCurrent");
    find(create_stream, "cuStreamCreate");
    find(destroy_stream, "cuStreamDestroy_v2");
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(destroy_graph, "cuGraphDestroy");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(launch, "cuGraphLaunch");
    find(destroy_executable, "cuGraphExecDestroy");
    find(trim_graphs, "cuDeviceGraphMemTrim");
    find(make_wait, "cuStreamWaitEvent");
    find(launch_host_function, "cuLaunchHostFunc");
    find(write, "cuMemcpyHtoD_v2");
    find(read, "cuMemcpyDtoH_v2");
    find(fill, "cuMemsetD8Async");
  }
};

// Holds streams back by host functions that wait in them; gives up after a while, so that whoever
// waits for a blocked stream is found out instead of standing for ever.
class Gate {
 public:
  ~Gate() { Open(); }

  void Pass() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return open_; })) stood_ = false;
    --inside_;
    changed_.notify_all();
  }
  void Enter() {
    std::unique_lock lock(mutex_);
    open_ = false;
    ++inside_;
  }
  bool Open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return inside_ == 0; });
    return stood_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, stood_ = true;
  int inside_ = 0;
};

bool IsSimulated() { return std::getenv("OFFCUT_SIM") != nullptr; }

class CudaWorld final : public ContractWorld {
 public:
  explicit CudaWorld(std::unique_ptr<CudaDriver> driver) : driver_(std::move(driver)) {
    CUcontext context = nullptr;
    EXPECT_EQ(program_.retain_context(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(program_.set_context(context), CUDA_SUCCESS);
  }

  Driver& driver() override { return *driver_; }

  StreamHandle CreateStream(bool non_blocking) override {
    CUstream stream = nullptr;
    EXPECT_EQ(
        program_.create_stream(&stream, non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
        CUDA_SUCCESS);
    return stream;
  }
  void DestroyStream(StreamHandle stream) override {
    EXPECT_EQ(program_.destroy_stream(stream), CUDA_SUCCESS);
  }
  void Block(StreamHandle stream) override {
    if (IsSimulated()) return;  // its lag does it
    gate_.Enter();
    EXPECT_EQ(program_.launch_host_function(
                  stream, [](void* gate) { static_cast<Gate*>(gate)->Pass(); }, &gate_),
              CUDA_SUCCESS);
  }
  bool Unblock() override { return gate_.Open(); }
  bool BlocksOneStream() const override { return !IsSimulated(); }

  bool HasContext() override {
    CUcontext context = nullptr;
    EXPECT_EQ(program_.get_context(&context), CUDA_SUCCESS);
    return context != nullptr;
  }

  void BeginCapture(StreamHandle stream, ContractCaptureMode mode) override {
    EXPECT_EQ(program_.begin_capture(stream, static_cast<CUstreamCaptureMode>(mode)), CUDA_SUCCESS);
  }
  bool EndCapture(StreamHandle stream) override {
    CUgraph graph = nullptr;
    if (program_.end_capture(stream, &graph) != CUDA_SUCCESS) return false;
    return program_.destroy_graph(graph) == CUDA_SUCCESS;
  }

  bool EndCaptureAndLaunch(StreamHandle stream) override {
    CUgraph graph = nullptr;
    if (program_.end_capture(stream, &graph) != CUDA_SUCCESS) return false;
    CUgraphExec exec = nullptr;
    if (program_.instantiate(&exec, graph, 0) != CUDA_SUCCESS) return false;
    graphs_.push_back(exec);
    EXPECT_EQ(program_.destroy_graph(graph), CUDA_SUCCESS);
    return program_.launch(exec, stream) == CUDA_SUCCESS;
  }

  bool HasMemory() const override { return true; }
  absl::Status Write(DevicePtr address, const std::vector<uint8_t>& bytes) override {
    return DriverError(program_.write(address, bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }
  absl::StatusOr<std::vector<uint8_t>> Read(DevicePtr address, Bytes bytes) override {
    std::vector<uint8_t> read(bytes);
    const absl::Status copied =
        DriverError(program_.read(read.data(), address, bytes), "cuMemcpyDtoH");
    if (!copied.ok()) return copied;
    return read;
  }
  absl::Status Fill(StreamHandle stream, DevicePtr address, uint8_t value, Bytes bytes) override {
    return DriverError(program_.fill(address, value, bytes, stream), "cuMemsetD8Async");
  }

  void MakeWait(StreamHandle stream, EventHandle event) override {
    EXPECT_EQ(program_.make_wait(stream, event, 0), CUDA_SUCCESS);
  }

  // The census of a GPU is its free memory, which the statements look at themselves.
  void ExpectNothingLeft() override {
    for (const CUgraphExec graph : graphs_) {
      EXPECT_EQ(program_.destroy_executable(graph), CUDA_SUCCESS);
    }
    EXPECT_EQ(program_.trim_graphs(0), CUDA_SUCCESS);
  }

 private:
  const std::unique_ptr<CudaDriver> driver_;
  ProgramFunctions program_;
  Gate gate_;
  std::vector<CUgraphExec> graphs_;
};

absl::StatusOr<std::unique_ptr<ContractWorld>> MakeCudaWorld() {
  // One for each test: a driver that has made pools waits in another way.
  auto driver = std::make_unique<CudaDriver>();
  const absl::Status initialized = driver->Initialize();
  if (!initialized.ok() && IsSimulated()) {
    return absl::InternalError(absl::StrCat("OFFCUT_SIM is set, but: ", initialized.message()));
  }
  if (!initialized.ok()) return initialized;
  return std::make_unique<CudaWorld>(std::move(driver));
}

INSTANTIATE_TEST_SUITE_P(Cuda, DriverContract,
                         testing::Values(ContractParam{IsSimulated() ? "Simulated" : "Hardware",
                                                       MakeCudaWorld}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace offcut
