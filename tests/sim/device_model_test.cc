#include "allocator/sim/device_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"

namespace offcut::sim {
namespace {

class DeviceModelTest : public testing::Test {
 protected:
  DeviceModelTest() {
    ModelOptions options{.backing = Backing::kHostMemory};
    options.machine.devices = 2;
    auto model = DeviceModel::Create(options);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  static DevicePtr Address(const void* pointer) { return reinterpret_cast<DevicePtr>(pointer); }
  const char* Data(DevicePtr address) { return reinterpret_cast<const char*>(address); }

  std::unique_ptr<DeviceModel> model_;
};

TEST_F(DeviceModelTest, CopiesBetweenHostAndDevice) {
  const DevicePtr memory = *model_->AllocateMemory(0, 100);
  const std::string text = "what remains";
  std::string read(text.size(), ' ');
  ASSERT_TRUE(model_->Copy(0, nullptr, memory, Address(text.data()), text.size()).ok());
  ASSERT_TRUE(model_->Copy(0, nullptr, Address(read.data()), memory, text.size()).ok());
  EXPECT_EQ(read, text);
}

TEST_F(DeviceModelTest, CopiesThatLeaveTheirAllocationFail) {
  const DevicePtr memory = *model_->AllocateMemory(0, 100);
  std::vector<char> host(200);
  const auto code = [](const absl::Status& status) { return DriverErrorCode(status); };
  EXPECT_EQ(code(model_->Copy(0, nullptr, memory, Address(host.data()), 101)),
            CudaResult::kIllegalAddress);
  EXPECT_EQ(code(model_->Copy(0, nullptr, Address(host.data()), memory + 1, 100)),
            CudaResult::kIllegalAddress);
  EXPECT_EQ(code(model_->Fill(0, nullptr, memory, 0, 101)), CudaResult::kIllegalAddress);
  ASSERT_TRUE(model_->FreeMemory(memory).ok());
  EXPECT_EQ(code(model_->Copy(0, nullptr, memory, Address(host.data()), 1)),
            CudaResult::kIllegalAddress);
}

TEST_F(DeviceModelTest, SmallCopiesBetweenDevicesAreReal) {
  const DevicePtr from = *model_->AllocateMemory(0, 4096), to = *model_->AllocateMemory(1, 4096);
  ASSERT_TRUE(model_->Fill(0, nullptr, from, 'x', 4096).ok());
  ASSERT_TRUE(model_->Copy(0, nullptr, to, from, 4096).ok());
  EXPECT_EQ(Data(to)[4095], 'x');
}

TEST_F(DeviceModelTest, ZeroFillsZeroAndKeepTheRest) {
  for (const bool mapped : {false, true}) {
    const Bytes bytes = kGranularity;
    DevicePtr memory = 0;
    if (mapped) {
      memory = *model_->memory().ReserveAddress(0, bytes, 0, 0);
      const PhysicalHandle handle = *model_->memory().CreateMemory(0, bytes);
      ASSERT_TRUE(model_->memory().Map(memory, bytes, 0, handle).ok());
      ASSERT_TRUE(model_->memory().SetAccess(memory, bytes, 0, Access::kReadWrite).ok());
    } else {
      memory = *model_->AllocateMemory(0, bytes);
    }
    ASSERT_TRUE(model_->Fill(0, nullptr, memory, 1, bytes).ok());
    ASSERT_TRUE(model_->Fill(0, nullptr, memory + 100, 0, 20'000).ok());
    std::string expected(bytes, 1);
    std::fill_n(expected.begin() + 100, 20'000, 0);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), Data(memory)));
  }
}

TEST_F(DeviceModelTest, FreeingWaitsForTheWholeDevice) {
  const DevicePtr memory = *model_->AllocateMemory(0, 100);
  ASSERT_TRUE(model_->streams().Submit(0, nullptr, 86'000'000).ok());
  ASSERT_TRUE(model_->FreeMemory(memory).ok());
  EXPECT_EQ(model_->clock().WaitedNs(), 86'000'000u);
}

TEST_F(DeviceModelTest, FreeingNothingIsNothing) {
  ASSERT_TRUE(model_->streams().Submit(0, nullptr, 1000).ok());
  EXPECT_TRUE(model_->FreeMemory(0).ok());
  EXPECT_EQ(model_->clock().WaitedNs(), 0u);
}

TEST_F(DeviceModelTest, UsingMemoryThatIsNotOpenFailsAtOnce) {
  const DevicePtr address = *model_->memory().ReserveAddress(0, kGranularity, 0, 0);
  EXPECT_EQ(DriverErrorCode(model_->UseMemory(0, nullptr, address, 8)),
            CudaResult::kIllegalAddress);
  EXPECT_EQ(model_->streams().Census().submissions, 0u);
}

TEST(DeviceModelMachineTest, TheMachineIsWhatWasAskedFor) {
  ModelOptions options;
  options.machine = *ParseSimOptions("H100,memory=10GiB,devices=3,outside=1GiB");
  const auto model = *DeviceModel::Create(options);
  EXPECT_EQ(model->device_count(), 3);
  EXPECT_STREQ(model->card().key, "H100");
  EXPECT_EQ(model->memory().GetInfo(2)->total_bytes, 10 * kGiB);
  EXPECT_EQ(model->memory().GetInfo(2)->free_bytes, 9 * kGiB);
}

}  // namespace
}  // namespace offcut::sim
