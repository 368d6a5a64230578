#include "allocator/sim/memory_model.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/driver/cuda_results.h"
#include "allocator/driver/driver.h"
#include "allocator/sim/device_model.h"

namespace offcut::sim {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kGranule = kGranularity;

std::unique_ptr<DeviceModel> MakeModel(Backing backing, Bytes memory_bytes = 0, int devices = 1) {
  ModelOptions options{.backing = backing};
  options.machine.memory_bytes = memory_bytes;
  options.machine.devices = devices;
  auto model = DeviceModel::Create(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

int Code(const absl::Status& status) { return DriverErrorCode(status); }

class MemoryModelTest : public testing::TestWithParam<Backing> {
 protected:
  // Reserved, mapped and opened, one granule each.
  DevicePtr MapGranules(int count) {
    const DevicePtr address = *memory().ReserveAddress(0, count * kGranule, 0, 0);
    for (int i = 0; i < count; ++i) {
      const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
      EXPECT_TRUE(memory().Map(address + i * kGranule, kGranule, 0, handle).ok());
      EXPECT_TRUE(memory().ReleaseMemory(handle).ok());
    }
    EXPECT_TRUE(memory().SetAccess(address, count * kGranule, 0, Access::kReadWrite).ok());
    return address;
  }

  MemoryModel& memory() { return model_->memory(); }

  std::unique_ptr<DeviceModel> model_ = MakeModel(GetParam(), 8 * kGiB, /*devices=*/2);
};

INSTANTIATE_TEST_SUITE_P(, MemoryModelTest, testing::Values(Backing::kNone, Backing::kHostMemory),
                         [](const auto& info) {
                           return info.param == Backing::kNone ? "AddressesOnly" : "HostMemory";
                         });

TEST_P(MemoryModelTest, ReleasingTwiceFailsAndSaysSo) {
  const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
  EXPECT_TRUE(memory().ReleaseMemory(handle).ok());
  const absl::Status again = memory().ReleaseMemory(handle);
  EXPECT_EQ(Code(again), CudaResult::kInvalidValue);
  EXPECT_THAT(std::string(again.message()), HasSubstr("released before"));
}

TEST_P(MemoryModelTest, AReleasedHandleIsNotMappedAgainThoughItsMappingLives) {
  const DevicePtr address = *memory().ReserveAddress(0, 2 * kGranule, 0, 0);
  const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
  ASSERT_TRUE(memory().Map(address, kGranule, 0, handle).ok());
  ASSERT_TRUE(memory().ReleaseMemory(handle).ok());
  EXPECT_EQ(Code(memory().Map(address + kGranule, kGranule, 0, handle)), CudaResult::kInvalidValue);
  EXPECT_EQ(Code(memory().GetHandle(handle).status()), CudaResult::kInvalidValue);
}

TEST_P(MemoryModelTest, ARetainedHandleNeedsTwoReleases) {
  const DevicePtr address = *memory().ReserveAddress(0, kGranule, 0, 0);
  const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
  ASSERT_TRUE(memory().Map(address, kGranule, 0, handle).ok());
  EXPECT_EQ(*memory().RetainMemory(address + 100), handle);
  EXPECT_TRUE(memory().ReleaseMemory(handle).ok());
  EXPECT_TRUE(memory().Unmap(address, kGranule).ok());
  EXPECT_EQ(memory().Census().physical_bytes, kGranule);
  EXPECT_TRUE(memory().ReleaseMemory(handle).ok());
  EXPECT_EQ(memory().Census().physical_bytes, 0u);
  EXPECT_FALSE(memory().RetainMemory(address).ok());
}

TEST_P(MemoryModelTest, UnmappingTheUnmappedFailsThoughHardwareForgivesIt) {
  const DevicePtr address = *memory().ReserveAddress(0, 2 * kGranule, 0, 0);
  EXPECT_EQ(Code(memory().Unmap(address, kGranule)), CudaResult::kInvalidValue);
  EXPECT_EQ(Code(memory().Unmap(address, 0)), CudaResult::kInvalidValue);
}

TEST_P(MemoryModelTest, UnmappingAcrossAGapFailsAndUnmapsNothing) {
  const DevicePtr address = *memory().ReserveAddress(0, 3 * kGranule, 0, 0);
  for (const int i : {0, 2}) {
    const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
    ASSERT_TRUE(memory().Map(address + i * kGranule, kGranule, 0, handle).ok());
  }
  const absl::Status unmapped = memory().Unmap(address, 3 * kGranule);
  EXPECT_EQ(Code(unmapped), CudaResult::kInvalidValue);
  EXPECT_EQ(memory().Census().mappings, 2u);
}

TEST_P(MemoryModelTest, UnmappingWhatSubmittedWorkUsesFails) {
  const DevicePtr address = MapGranules(2);
  ASSERT_TRUE(model_->UseMemory(0, nullptr, address, 100, /*duration_ns=*/1000).ok());
  const absl::Status unmapped = memory().Unmap(address, kGranule);
  EXPECT_EQ(Code(unmapped), CudaResult::kIllegalAddress);
  EXPECT_THAT(std::string(unmapped.message()), HasSubstr("for 1000 ns"));
  EXPECT_TRUE(memory().Unmap(address + kGranule, kGranule).ok()) << "its neighbour is idle";
  model_->clock().Advance(1000);
  EXPECT_TRUE(memory().Unmap(address, kGranule).ok());
}

TEST_P(MemoryModelTest, AccessIsPerDevice) {
  const DevicePtr address = MapGranules(1);
  EXPECT_TRUE(memory().CheckAccess(address, kGranule, 0, Access::kReadWrite).ok());
  EXPECT_EQ(Code(memory().CheckAccess(address, 8, 1, Access::kRead)), CudaResult::kIllegalAddress);
  EXPECT_EQ(*memory().GetAccess(address, 1), Access::kNone);
  ASSERT_TRUE(memory().SetAccess(address, kGranule, 1, Access::kRead).ok());
  EXPECT_TRUE(memory().CheckAccess(address, 8, 1, Access::kRead).ok());
  EXPECT_FALSE(memory().CheckAccess(address, 8, 1, Access::kReadWrite).ok());
  ASSERT_TRUE(memory().SetAccess(address, kGranule, 1, Access::kNone).ok());
  EXPECT_FALSE(memory().CheckAccess(address, 8, 1, Access::kRead).ok());
  EXPECT_EQ(*memory().GetAccess(address, 0), Access::kReadWrite);
}

TEST_P(MemoryModelTest, AnAccessAcrossNeighboursNamesTheFirstBadByte) {
  const DevicePtr address = *memory().ReserveAddress(0, 3 * kGranule, 0, 0);
  const PhysicalHandle handle = *memory().CreateMemory(0, kGranule);
  ASSERT_TRUE(memory().Map(address, kGranule, 0, handle).ok());
  ASSERT_TRUE(memory().SetAccess(address, kGranule, 0, Access::kReadWrite).ok());
  EXPECT_TRUE(memory().CheckAccess(address + 1, kGranule - 1, 0, Access::kRead).ok());
  const absl::Status beyond = memory().CheckAccess(address + 1, kGranule, 0, Access::kRead);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("nothing is mapped at 0x"));
}

TEST_P(MemoryModelTest, AnAllocationHoldsExactlyWhatWasAskedFor) {
  const DevicePtr address = *memory().AllocateMemory(0, 1000);
  EXPECT_TRUE(memory().CheckAccess(address, 1000, 0, Access::kReadWrite).ok());
  EXPECT_FALSE(memory().CheckAccess(address, 1001, 0, Access::kReadWrite).ok());
  EXPECT_FALSE(memory().CheckAccess(address + 1000, 1, 0, Access::kReadWrite).ok());
  EXPECT_TRUE(memory().FreeMemory(address).ok());
  EXPECT_FALSE(memory().CheckAccess(address, 1, 0, Access::kReadWrite).ok());
}

TEST_P(MemoryModelTest, FreeingTwiceOrInsideFails) {
  const DevicePtr address = *memory().AllocateMemory(0, 3 * kMiB);
  EXPECT_EQ(Code(memory().FreeMemory(address + 512)), CudaResult::kInvalidValue);
  EXPECT_TRUE(memory().FreeMemory(address).ok());
  EXPECT_EQ(Code(memory().FreeMemory(address)), CudaResult::kInvalidValue);
}

TEST_P(MemoryModelTest, AllocationsAndHandlesShareOneLimit) {
  const Bytes free_bytes = memory().GetInfo(0)->free_bytes;
  const Bytes half = RoundDown(free_bytes / 2, kGranule);
  ASSERT_TRUE(memory().AllocateMemory(0, half).ok());
  ASSERT_TRUE(memory().CreateMemory(0, half).ok());
  EXPECT_EQ(Code(memory().CreateMemory(0, half).status()), CudaResult::kOutOfMemory);
  EXPECT_EQ(Code(memory().AllocateMemory(0, half).status()), CudaResult::kOutOfMemory);
  EXPECT_TRUE(memory().CreateMemory(1, half).ok()) << "the other device has its own";
}

TEST_P(MemoryModelTest, AbsurdSizesAreOutOfMemoryNotOverflow) {
  for (const Bytes bytes : {~Bytes{0}, ~Bytes{0} - kGranule, Bytes{1} << 63}) {
    EXPECT_EQ(Code(memory().AllocateMemory(0, bytes).status()), CudaResult::kOutOfMemory);
    EXPECT_FALSE(memory().CreateMemory(0, RoundDown(bytes, kGranule)).ok());
    EXPECT_FALSE(memory().ReserveAddress(0, RoundDown(bytes, kGranule), 0, 0).ok());
  }
}

TEST_P(MemoryModelTest, WhatOthersUseIsNotOurs) {
  const Bytes total_bytes = memory().GetInfo(0)->total_bytes;
  ASSERT_TRUE(memory().SetOutsideBytes(0, total_bytes - kGranule).ok());
  EXPECT_EQ(memory().GetInfo(0)->free_bytes, kGranule);
  EXPECT_TRUE(memory().CreateMemory(0, kGranule).ok());
  EXPECT_EQ(memory().GetInfo(0)->free_bytes, 0u);
  EXPECT_EQ(Code(memory().CreateMemory(0, kGranule).status()), CudaResult::kOutOfMemory);
}

TEST_P(MemoryModelTest, LooksUpWhatAnAddressLiesIn) {
  const DevicePtr mapped = MapGranules(1);
  const DevicePtr reserved = *memory().ReserveAddress(0, kGranule, 0, 0);
  const DevicePtr allocated = *memory().AllocateMemory(1, 5000);
  EXPECT_EQ(memory().LookUp(mapped + 7)->kind, PointerKind::kMapping);
  EXPECT_EQ(memory().LookUp(mapped + 7)->base, mapped);
  EXPECT_EQ(memory().LookUp(reserved)->kind, PointerKind::kReserved);
  EXPECT_EQ(memory().LookUp(allocated + 4999)->kind, PointerKind::kAllocation);
  EXPECT_EQ(memory().LookUp(allocated + 4999)->device, 1);
  EXPECT_EQ(memory().LookUp(allocated)->bytes, 5000u);
  EXPECT_FALSE(memory().LookUp(allocated + 5000).has_value());
  EXPECT_NE(memory().LookUp(mapped)->buffer_id, memory().LookUp(allocated)->buffer_id);
}

TEST_P(MemoryModelTest, HostRangesAreRegisteredOnce) {
  char page[4096];
  const DevicePtr address = reinterpret_cast<DevicePtr>(page);
  ASSERT_TRUE(memory().RegisterHost(address, sizeof(page), 0).ok());
  EXPECT_EQ(memory().LookUp(address + 5)->kind, PointerKind::kHost);
  EXPECT_EQ(Code(memory().RegisterHost(address + 100, 8, 0)),
            CudaResult::kHostMemoryAlreadyRegistered);
  EXPECT_TRUE(memory().UnregisterHost(address).ok());
  EXPECT_EQ(Code(memory().UnregisterHost(address)), CudaResult::kHostMemoryNotRegistered);
}

TEST_P(MemoryModelTest, FreedAddressesAreUsedAgain) {
  const DevicePtr a = *memory().ReserveAddress(0, kGranule, 0, 0);
  const DevicePtr b = *memory().ReserveAddress(0, kGranule, 0, 0);
  ASSERT_TRUE(memory().FreeAddress(a, kGranule).ok());
  EXPECT_EQ(*memory().ReserveAddress(0, kGranule, 0, 0), a);
  EXPECT_EQ(*memory().ReserveAddress(0, kGranule, 0, b), b + kGranule) << "the hint is taken";
}

TEST(UnbackedMemoryTest, TheSameCallsGiveTheSameAddresses) {
  const auto one = MakeModel(Backing::kNone), other = MakeModel(Backing::kNone);
  for (const Bytes bytes : {kGranule, 7 * kGranule, 3 * kGranule}) {
    EXPECT_EQ(*one->memory().ReserveAddress(0, bytes, 0, 0),
              *other->memory().ReserveAddress(0, bytes, 0, 0));
  }
}

TEST_P(MemoryModelTest, TheCensusCountsWhatIsLeft) {
  const DevicePtr address = MapGranules(3);
  ASSERT_TRUE(memory().AllocateMemory(0, 100).ok());
  const MemoryCensus census = memory().Census();
  EXPECT_EQ(census.reservations, 1u);
  EXPECT_EQ(census.handles, 3u);
  EXPECT_EQ(census.mappings, 3u);
  EXPECT_EQ(census.mapped_bytes, 3 * kGranule);
  EXPECT_EQ(census.allocations, 1u);
  EXPECT_EQ(census.allocation_bytes, 100u);
  ASSERT_TRUE(memory().Unmap(address, 3 * kGranule).ok());
  EXPECT_EQ(memory().Census().handles, 0u) << "released before, gone with their mappings";
}

// --- Memory that is real ---

uint64_t CountHostMappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * HostBacking::PageBytes();
}

TEST(BackedMemoryTest, AWholeCardCostsNothingUntilItIsTouched) {
  const auto model = MakeModel(Backing::kHostMemory);
  MemoryModel& memory = model->memory();
  const uint64_t resident_before = ResidentBytes();
  const Bytes bytes = RoundDown(memory.GetInfo(0)->free_bytes / 2, kGranule);
  ASSERT_GT(bytes, 60 * kGiB);
  const DevicePtr allocated = *memory.AllocateMemory(0, bytes);
  const DevicePtr mapped = *memory.ReserveAddress(0, bytes, 0, 0);
  const PhysicalHandle handle = *memory.CreateMemory(0, bytes);
  ASSERT_TRUE(memory.Map(mapped, bytes, 0, handle).ok());
  ASSERT_TRUE(memory.SetAccess(mapped, bytes, 0, Access::kReadWrite).ok());
  for (const DevicePtr address : {allocated, mapped}) {
    *reinterpret_cast<volatile char*>(address) = 1;
    *reinterpret_cast<volatile char*>(address + bytes - 1) = 2;
    EXPECT_EQ(*reinterpret_cast<volatile char*>(address + bytes - 1), 2);
  }
  EXPECT_LT(ResidentBytes(), resident_before + 64 * kMiB);
}

TEST(BackedMemoryTest, GranulesMappedSideBySideShareMappingsOfTheHost) {
  const auto model = MakeModel(Backing::kHostMemory);
  MemoryModel& memory = model->memory();
  const int granules = 20'000;
  const DevicePtr address = *memory.ReserveAddress(0, granules * kGranule, 0, 0);
  const uint64_t before = CountHostMappings();
  // Handles made out of order, as a warm pool has them.
  std::vector<PhysicalHandle> handles;
  for (int i = 0; i < granules; ++i) handles.push_back(*memory.CreateMemory(0, kGranule));
  for (int i = 0; i < granules; ++i) {
    const PhysicalHandle handle = handles[(i * 7919) % granules];
    ASSERT_TRUE(memory.Map(address + i * kGranule, kGranule, 0, handle).ok());
  }
  ASSERT_TRUE(memory.SetAccess(address, granules * kGranule, 0, Access::kReadWrite).ok());
  EXPECT_LT(CountHostMappings(), before + granules / 100);
  ASSERT_TRUE(memory.Unmap(address, granules * kGranule).ok());
  EXPECT_LT(CountHostMappings(), before + granules / 100);
}

TEST(BackedMemoryTest, MemoryWithoutAccessFaults) {
  const auto model = MakeModel(Backing::kHostMemory);
  MemoryModel& memory = model->memory();
  const DevicePtr address = *memory.ReserveAddress(0, kGranule, 0, 0);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "") << "reserved";
  const PhysicalHandle handle = *memory.CreateMemory(0, kGranule);
  ASSERT_TRUE(memory.Map(address, kGranule, 0, handle).ok());
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "") << "mapped";
  ASSERT_TRUE(memory.SetAccess(address, kGranule, 0, Access::kReadWrite).ok());
  *reinterpret_cast<volatile char*>(address) = 1;
  ASSERT_TRUE(memory.Unmap(address, kGranule).ok());
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "") << "unmapped";
}

TEST(BackedMemoryTest, AHandleThatWasNeverTouchedIsZeroThoughItsPlaceWasUsed) {
  const auto model = MakeModel(Backing::kHostMemory);
  MemoryModel& memory = model->memory();
  const DevicePtr address = *memory.ReserveAddress(0, kGranule, 0, 0);
  for (int round = 0; round < 3; ++round) {
    const PhysicalHandle handle = *memory.CreateMemory(0, kGranule);
    ASSERT_TRUE(memory.Map(address, kGranule, 0, handle).ok());
    ASSERT_TRUE(memory.SetAccess(address, kGranule, 0, Access::kReadWrite).ok());
    volatile char* byte = reinterpret_cast<volatile char*>(address + 12345);
    EXPECT_EQ(*byte, 0);
    *byte = 9;
    ASSERT_TRUE(memory.Unmap(address, kGranule).ok());
    ASSERT_TRUE(memory.ReleaseMemory(handle).ok());
  }
}

}  // namespace
}  // namespace offcut::sim
