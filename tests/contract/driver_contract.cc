#include "tests/contract/driver_contract.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "allocator/driver/cuda_results.h"

namespace offcut {

// --- Fixture ---

void DriverContract::SetUp() {
  auto made = GetParam().make();
  if (!made.ok() && made.status().code() == absl::StatusCode::kUnavailable) {
    GTEST_SKIP() << "no such driver here: " << made.status().message();
  }
  ASSERT_TRUE(made.ok()) << made.status();
  world_ = *std::move(made);
  const auto properties = driver().GetProperties(0);
  ASSERT_TRUE(properties.ok()) << properties.status();
  granule_ = properties->granularity;
}

void DriverContract::TearDown() {
  if (world_ == nullptr) return;
  world_->Unblock();
  EXPECT_TRUE(driver().SynchronizeDevice(0).ok());
  for (const Extent& mapping : mappings_) {
    EXPECT_TRUE(driver().Unmap(mapping.address, mapping.bytes).ok());
  }
  for (const PhysicalHandle handle : handles_) EXPECT_TRUE(driver().ReleaseMemory(handle).ok());
  for (const Extent& range : reservations_) {
    EXPECT_TRUE(driver().FreeAddress(range.address, range.bytes).ok());
  }
  for (const DevicePtr address : allocations_) {
    EXPECT_TRUE(driver().FreeMemory(0, address).ok());
  }
  for (const DriverPool pool : pools_) EXPECT_TRUE(driver().DestroyDriverPool(pool).ok());
  for (const EventHandle event : events_) EXPECT_TRUE(driver().DestroyEvent(0, event).ok());
  for (const StreamHandle stream : streams_) world_->DestroyStream(stream);
  world_->ExpectNothingLeft();
}

DevicePtr DriverContract::Reserve(Bytes bytes) {
  const auto address = driver().ReserveAddress(0, bytes, 0, 0);
  EXPECT_TRUE(address.ok()) << address.status();
  if (!address.ok()) return 0;
  reservations_.push_back({*address, bytes});
  return *address;
}

PhysicalHandle DriverContract::Create(Bytes bytes) {
  const auto handle = driver().CreateMemory(0, bytes, {});
  EXPECT_TRUE(handle.ok()) << handle.status();
  if (!handle.ok()) return 0;
  handles_.push_back(*handle);
  return *handle;
}

void DriverContract::Release(PhysicalHandle handle) {
  const absl::Status released = driver().ReleaseMemory(handle);
  EXPECT_TRUE(released.ok()) << released;
  handles_.erase(std::find(handles_.begin(), handles_.end(), handle));
}

void DriverContract::Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) {
  const absl::Status mapped = driver().Map(address, bytes, handle);
  EXPECT_TRUE(mapped.ok()) << mapped;
  mappings_.push_back({address, bytes});
}

void DriverContract::Open(DevicePtr address, Bytes bytes) {
  const absl::Status opened = driver().SetAccess(address, bytes, 0);
  EXPECT_TRUE(opened.ok()) << opened;
}

void DriverContract::Unmap(DevicePtr address, Bytes bytes) {
  const absl::Status unmapped = driver().Unmap(address, bytes);
  EXPECT_TRUE(unmapped.ok()) << unmapped;
  std::erase_if(mappings_, [&](const Extent& mapping) {
    return mapping.address >= address && mapping.address < address + bytes;
  });
}

DevicePtr DriverContract::Allocate(Bytes bytes) {
  const auto address = driver().AllocateMemory(0, bytes);
  EXPECT_TRUE(address.ok()) << address.status();
  if (!address.ok()) return 0;
  allocations_.push_back(*address);
  return *address;
}

void DriverContract::Free(DevicePtr address) {
  const absl::Status freed = driver().FreeMemory(0, address);
  EXPECT_TRUE(freed.ok()) << freed;
  std::erase(allocations_, address);
}

DriverPool DriverContract::CreatePool(const DriverPoolOptions& options) {
  const auto pool = driver().CreateDriverPool(0, {});
  EXPECT_TRUE(pool.ok()) << pool.status();
  if (!pool.ok()) return nullptr;
  pools_.push_back(*pool);
  const absl::Status set = driver().SetDriverPoolOptions(*pool, options);
  EXPECT_TRUE(set.ok()) << set;
  return *pool;
}

DevicePtr DriverContract::AllocateAsync(DriverPool pool, Bytes bytes, StreamHandle stream) {
  const auto address = driver().AllocateAsync(pool, bytes, 0, stream);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.value_or(0);
}

void DriverContract::FreeAsync(DevicePtr address, StreamHandle stream) {
  const absl::Status freed = driver().FreeAsync(address, 0, stream);
  EXPECT_TRUE(freed.ok()) << freed;
}

DriverPoolUsage DriverContract::Usage(DriverPool pool) {
  const auto usage = driver().GetDriverPoolUsage(pool);
  EXPECT_TRUE(usage.ok()) << usage.status();
  const auto reserved = driver().GetDriverPoolReserved(pool);
  EXPECT_TRUE(reserved.ok() && usage.ok() && *reserved == usage->reserved_bytes);
  return usage.value_or(DriverPoolUsage{});
}

void DriverContract::Synchronize() {
  const absl::Status synchronized = driver().SynchronizeDevice(0);
  EXPECT_TRUE(synchronized.ok()) << synchronized;
}

EventHandle DriverContract::CreateEvent() {
  const auto event = driver().CreateEvent(0);
  EXPECT_TRUE(event.ok()) << event.status();
  if (!event.ok()) return nullptr;
  events_.push_back(*event);
  return *event;
}

StreamHandle DriverContract::CreateStream(bool non_blocking) {
  streams_.push_back(world_->CreateStream(non_blocking));
  return streams_.back();
}

DevicePtr DriverContract::MappedMemory(Bytes bytes) {
  const DevicePtr address = Reserve(bytes);
  const PhysicalHandle handle = Create(bytes);
  Map(address, bytes, handle);
  Open(address, bytes);
  Release(handle);
  return address;
}

Bytes DriverContract::FreeBytes() {
  const auto info = driver().GetMemoryInfo(0);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->free_bytes : 0;
}

bool DriverContract::IsDone(EventHandle event) {
  const auto done = driver().QueryEvent(0, event);
  EXPECT_TRUE(done.ok()) << done.status();
  return done.ok() && *done;
}

void DriverContract::ExpectBytes(DevicePtr address, Bytes bytes, uint8_t value) {
  const auto read = world_->Read(address, bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  if (!world_->HasMemory()) return;
  EXPECT_EQ(*read, std::vector<uint8_t>(bytes, value));
}

namespace {

// --- Start and devices ---

TEST_P(DriverContract, InitializesTwice) {
  EXPECT_TRUE(driver().Initialize().ok());
  EXPECT_TRUE(driver().Initialize().ok());
}

TEST_P(DriverContract, DescribesItsDevices) {
  const auto count = driver().DeviceCount();
  ASSERT_TRUE(count.ok()) << count.status();
  ASSERT_GE(*count, 1);
  for (DeviceIndex device = 0; device < *count; ++device) {
    const auto properties = driver().GetProperties(device);
    ASSERT_TRUE(properties.ok()) << properties.status();
    EXPECT_FALSE(properties->name.empty());
    EXPECT_TRUE(properties->virtual_memory);
    EXPECT_GT(properties->granularity, 0u);
    EXPECT_EQ(properties->granularity & (properties->granularity - 1), 0u);
    EXPECT_GT(properties->total_bytes, properties->granularity);
    EXPECT_GT(properties->compute_major, 0);
  }
}

TEST_P(DriverContract, MemoryInfoAgreesWithTheProperties) {
  const auto info = driver().GetMemoryInfo(0);
  const auto properties = driver().GetProperties(0);
  ASSERT_TRUE(info.ok() && properties.ok());
  EXPECT_EQ(info->total_bytes, properties->total_bytes);
  EXPECT_LE(info->free_bytes, info->total_bytes);
}

TEST_P(DriverContract, ADeviceThatIsNotThereIsAnInvalidArgument) {
  const DeviceIndex beyond = *driver().DeviceCount();
  for (const DeviceIndex device : {-1, beyond}) {
    EXPECT_EQ(driver().GetProperties(device).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(driver().GetMemoryInfo(device).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(driver().CreateMemory(device, granule_, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DriverErrorCode(driver().CreateEvent(device).status()), CudaResult::kInvalidDevice);
  }
}

TEST_P(DriverContract, ServesAThreadWithoutAContextAndLeavesItSo) {
  std::thread([&] {
    EXPECT_FALSE(world().HasContext());
    const DevicePtr address = MappedMemory(granule_);
    const EventHandle event = CreateEvent();
    EXPECT_TRUE(driver().RecordEvent(0, event, nullptr).ok());
    EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
    Unmap(address, granule_);
    EXPECT_FALSE(world().HasContext());
  }).join();
}

// --- Address space ---

TEST_P(DriverContract, ReservationsAreAlignedToTheGranularityAndDisjoint) {
  const DevicePtr a = Reserve(granule_), b = Reserve(3 * granule_), c = Reserve(granule_);
  for (const DevicePtr address : {a, b, c}) EXPECT_EQ(address % granule_, 0u);
  EXPECT_TRUE(a + granule_ <= b || b + 3 * granule_ <= a);
  EXPECT_TRUE(c + granule_ <= b || b + 3 * granule_ <= c);
  EXPECT_NE(a, c);
}

TEST_P(DriverContract, ReservesAtALargerAlignment) {
  const Bytes alignment = 64 * granule_;
  const auto address = driver().ReserveAddress(0, granule_, alignment, 0);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address % alignment, 0u);
  EXPECT_TRUE(driver().FreeAddress(*address, granule_).ok());
}

TEST_P(DriverContract, HonoursAHintThatIsFree) {
  const auto first = driver().ReserveAddress(0, 4 * granule_, 0, 0);
  ASSERT_TRUE(first.ok() && driver().FreeAddress(*first, 4 * granule_).ok());
  const auto second = driver().ReserveAddress(0, 2 * granule_, 0, *first + granule_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, *first + granule_);
  EXPECT_TRUE(driver().FreeAddress(*second, 2 * granule_).ok());
}

TEST_P(DriverContract, AHintThatIsTakenIsNotAnError) {
  const DevicePtr taken = Reserve(granule_);
  const auto address = driver().ReserveAddress(0, granule_, 0, taken);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_NE(*address, taken);
  EXPECT_TRUE(driver().FreeAddress(*address, granule_).ok());
}

TEST_P(DriverContract, ReservesFarMoreThanThereIsMemory) {
  const Bytes bytes = RoundUp(8 * driver().GetProperties(0)->total_bytes, granule_);
  EXPECT_NE(Reserve(bytes), 0u);
}

TEST_P(DriverContract, AReservationIsNotFreedTwice) {
  const auto address = driver().ReserveAddress(0, granule_, 0, 0);
  ASSERT_TRUE(address.ok());
  EXPECT_TRUE(driver().FreeAddress(*address, granule_).ok());
  EXPECT_FALSE(driver().FreeAddress(*address, granule_).ok());
}

TEST_P(DriverContract, AReservationIsNotFreedInPart) {
  const DevicePtr address = Reserve(2 * granule_);
  EXPECT_FALSE(driver().FreeAddress(address, granule_).ok());
  EXPECT_FALSE(driver().FreeAddress(address + granule_, granule_).ok());
}

TEST_P(DriverContract, AReservationWithMappingsIsNotFreed) {
  const DevicePtr address = Reserve(2 * granule_);
  Map(address + granule_, granule_, Create(granule_));
  EXPECT_FALSE(driver().FreeAddress(address, 2 * granule_).ok());
}

// --- Physical memory ---

TEST_P(DriverContract, OddSizesAreInvalidArguments) {
  EXPECT_EQ(driver().CreateMemory(0, granule_ / 2, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver().CreateMemory(0, 0, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver().ReserveAddress(0, 0, 0, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DriverContract, CreatingTakesMemoryAndReleasingGivesItBack) {
  const Bytes bytes = 128 * granule_, before = FreeBytes();
  const PhysicalHandle handle = Create(bytes);
  EXPECT_LE(FreeBytes() + bytes, before);
  Release(handle);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, ReservingTakesNoMemory) {
  const Bytes before = FreeBytes();
  Reserve(1024 * granule_);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, MemoryReleasedWhileMappedStaysUntilItsLastMappingGoes) {
  const Bytes bytes = 128 * granule_, before = FreeBytes();
  const DevicePtr address = Reserve(2 * bytes);
  const PhysicalHandle handle = Create(bytes);
  Map(address, bytes, handle);
  Map(address + bytes, bytes, handle);
  Open(address, 2 * bytes);
  Release(handle);
  EXPECT_LE(FreeBytes() + bytes, before);
  EXPECT_TRUE(world().Write(address, {1, 2, 3}).ok());
  Unmap(address, bytes);
  EXPECT_LE(FreeBytes() + bytes, before);
  Unmap(address + bytes, bytes);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, MoreThanThereIsIsOutOfMemoryAndHarmless) {
  const Bytes before = FreeBytes();
  const Bytes bytes = RoundDown(driver().GetProperties(0)->total_bytes, granule_);
  const auto handle = driver().CreateMemory(0, bytes, {});
  EXPECT_EQ(handle.status().code(), absl::StatusCode::kResourceExhausted) << handle.status();
  EXPECT_EQ(DriverErrorCode(handle.status()), CudaResult::kOutOfMemory);
  EXPECT_EQ(FreeBytes(), before);
  MappedMemory(granule_);
}

TEST_P(DriverContract, ErrorsNameTheFunctionItsSizesAndCudasName) {
  const Bytes bytes = RoundDown(driver().GetProperties(0)->total_bytes, granule_);
  const std::string message(driver().CreateMemory(0, bytes, {}).status().message());
  EXPECT_NE(message.find("cuMemCreate"), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(bytes)), std::string::npos) << message;
  EXPECT_NE(message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << message;
}

// --- Mappings ---

TEST_P(DriverContract, AHandleMapsOnlyWhole) {
  const DevicePtr address = Reserve(2 * granule_);
  const PhysicalHandle handle = Create(2 * granule_);
  const absl::Status half = driver().Map(address, granule_, handle);
  EXPECT_EQ(half.code(), absl::StatusCode::kUnimplemented) << half;
  Map(address, 2 * granule_, handle);
}

TEST_P(DriverContract, NothingIsMappedOverAMapping) {
  const DevicePtr address = Reserve(2 * granule_);
  Map(address, granule_, Create(granule_));
  EXPECT_FALSE(driver().Map(address, granule_, Create(granule_)).ok());
  EXPECT_FALSE(driver().Map(address, 2 * granule_, Create(2 * granule_)).ok());
}

TEST_P(DriverContract, NothingIsMappedOutsideAReservation) {
  const auto address = driver().ReserveAddress(0, granule_, 0, 0);
  ASSERT_TRUE(address.ok() && driver().FreeAddress(*address, granule_).ok());
  EXPECT_FALSE(driver().Map(*address, granule_, Create(granule_)).ok());
}

TEST_P(DriverContract, UnmapTakesSeveralMappingsAtOnce) {
  const DevicePtr address = Reserve(4 * granule_);
  Map(address, granule_, Create(granule_));
  Map(address + granule_, 2 * granule_, Create(2 * granule_));
  Map(address + 3 * granule_, granule_, Create(granule_));
  Unmap(address, 4 * granule_);
  Map(address, granule_, Create(granule_));
}

TEST_P(DriverContract, UnmapTakesWholeMappingsOnly) {
  const DevicePtr address = Reserve(4 * granule_);
  Map(address, 2 * granule_, Create(2 * granule_));
  EXPECT_FALSE(driver().Unmap(address, granule_).ok());
  EXPECT_FALSE(driver().Unmap(address + granule_, granule_).ok());
  Open(address, 2 * granule_);
}

TEST_P(DriverContract, AccessIsOpenedToSeveralMappingsAtOnce) {
  const DevicePtr address = Reserve(3 * granule_);
  for (int i = 0; i < 3; ++i) Map(address + i * granule_, granule_, Create(granule_));
  Open(address, 3 * granule_);
  const std::vector<uint8_t> written(64, 7);
  EXPECT_TRUE(world().Write(address + granule_ - 32, written).ok());
  ExpectBytes(address + granule_ - 32, 64, 7);
}

TEST_P(DriverContract, AccessIsNotOpenedToAGap) {
  const DevicePtr address = Reserve(2 * granule_);
  Map(address, granule_, Create(granule_));
  EXPECT_FALSE(driver().SetAccess(address, 2 * granule_, 0).ok());
  EXPECT_FALSE(driver().SetAccess(address + granule_, granule_, 0).ok());
}

TEST_P(DriverContract, AMappingWithoutAccessCannotBeRead) {
  const DevicePtr address = Reserve(granule_);
  Map(address, granule_, Create(granule_));
  EXPECT_FALSE(world().Read(address, 16).ok());
}

TEST_P(DriverContract, AHandleMappedAtSeveralAddressesIsOneMemory) {
  const int aliases = 8;
  const DevicePtr address = Reserve(aliases * granule_);
  const PhysicalHandle handle = Create(granule_);
  for (int i = 0; i < aliases; ++i) Map(address + i * granule_, granule_, handle);
  Open(address, aliases * granule_);
  for (int i = 0; i < aliases; ++i) {
    EXPECT_TRUE(world().Write(address + i * granule_, std::vector<uint8_t>(512, 10 + i)).ok());
    ExpectBytes(address + (aliases - 1 - i) * granule_, 512, 10 + i);
  }
}

TEST_P(DriverContract, EachAliasNeedsItsOwnAccess) {
  const DevicePtr address = Reserve(2 * granule_);
  const PhysicalHandle handle = Create(granule_);
  Map(address, granule_, handle);
  Open(address, granule_);
  Map(address + granule_, granule_, handle);
  EXPECT_TRUE(world().Read(address, 16).ok());
  EXPECT_FALSE(world().Read(address + granule_, 16).ok());
}

TEST_P(DriverContract, ContentsMoveWithTheirHandle) {
  const DevicePtr from = Reserve(granule_), to = Reserve(4 * granule_);
  const PhysicalHandle handle = Create(granule_);
  Map(from, granule_, handle);
  Open(from, granule_);
  EXPECT_TRUE(world().Write(from + 4096, std::vector<uint8_t>(1000, 42)).ok());
  Unmap(from, granule_);
  Map(to + 2 * granule_, granule_, handle);
  Open(to + 2 * granule_, granule_);
  ExpectBytes(to + 2 * granule_ + 4096, 1000, 42);
}

TEST_P(DriverContract, ASecondMappingServesAStreamBeforeTheFirstIsDoneWith) {
  const DevicePtr address = Reserve(2 * granule_), old_address = address;
  const DevicePtr new_address = address + granule_;
  const PhysicalHandle handle = Create(granule_);
  const StreamHandle stream = CreateStream();
  const EventHandle event = CreateEvent();
  Map(old_address, granule_, handle);
  Open(old_address, granule_);
  world().Block(stream);
  EXPECT_TRUE(world().Fill(stream, old_address, 1, granule_).ok());
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  Map(new_address, granule_, handle);
  Open(new_address, granule_);
  EXPECT_TRUE(world().Fill(stream, new_address, 2, granule_ / 2).ok());
  EXPECT_TRUE(world().Unblock());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  Unmap(old_address, granule_);
  EXPECT_TRUE(driver().SynchronizeDevice(0).ok());
  ExpectBytes(new_address, granule_ / 2, 2);
  ExpectBytes(new_address + granule_ / 2, granule_ / 2, 1);
}

TEST_P(DriverContract, NoMemoryCallWaitsForWork) {
  const StreamHandle stream = CreateStream();
  world().Block(stream);
  const EventHandle event = CreateEvent();
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  const DevicePtr address = MappedMemory(4 * granule_);
  FreeBytes();
  Unmap(address, 4 * granule_);
  EXPECT_FALSE(IsDone(event));
  EXPECT_TRUE(world().Unblock());
}

TEST_P(DriverContract, SecondMappingsShowTheSameMemory) {
  const Bytes before = FreeBytes();
  const absl::StatusOr<bool> works = SecondMappingsWork(driver(), 0);
  ASSERT_TRUE(works.ok()) << works.status();
  EXPECT_TRUE(*works);
  EXPECT_EQ(FreeBytes(), before);
}

// --- Flags of physical memory ---

TEST_P(DriverContract, MemoryHasTheFlagsThatTheDeviceGrants) {
  const auto granted = GrantedMemoryFlags(driver(), 0);
  ASSERT_TRUE(granted.ok()) << granted.status();
  const MemoryFlags claimed = driver().GetProperties(0)->memory_flags;
  EXPECT_LE(granted->rdma, claimed.rdma);
  EXPECT_LE(granted->export_fd, claimed.export_fd);
  EXPECT_LE(granted->export_fabric, claimed.export_fabric);
  const auto handle = driver().CreateMemory(0, granule_, *granted);
  ASSERT_TRUE(handle.ok()) << handle.status();
  const DevicePtr address = Reserve(granule_);
  Map(address, granule_, *handle);
  Open(address, granule_);
  EXPECT_TRUE(driver().ReleaseMemory(*handle).ok());
  EXPECT_TRUE(world().Write(address, {1, 2, 3}).ok());
}

TEST_P(DriverContract, FlagsThatAreRefusedAreNoLackOfMemory) {
  for (const bool rdma : {false, true}) {
    for (const bool export_fd : {false, true}) {
      for (const bool export_fabric : {false, true}) {
        const auto handle = driver().CreateMemory(
            0, granule_, {.rdma = rdma, .export_fd = export_fd, .export_fabric = export_fabric});
        EXPECT_FALSE(absl::IsResourceExhausted(handle.status())) << handle.status();
        if (handle.ok()) {
          EXPECT_TRUE(driver().ReleaseMemory(*handle).ok());
        }
      }
    }
  }
}

// --- Memory with an address of its own ---

TEST_P(DriverContract, AllocationsAreAlignedDisjointAndOpen) {
  DevicePtr last = 0;
  for (const Bytes bytes : {Bytes{1}, Bytes{512}, kMiB, 2 * kMiB, 2 * kMiB + 1, 20 * kMiB}) {
    const DevicePtr address = Allocate(bytes);
    EXPECT_EQ(address % (bytes < 2 * kMiB ? kBlockAlignment : granule_), 0u) << bytes;
    EXPECT_TRUE(world().Write(address + bytes - 1, {7}).ok());
    ExpectBytes(address + bytes - 1, 1, 7);
    EXPECT_NE(address, last);
    last = address;
  }
}

TEST_P(DriverContract, AllocatingTakesMemoryAndFreeingGivesItBack) {
  const Bytes bytes = 128 * granule_, before = FreeBytes();
  const DevicePtr address = Allocate(bytes);
  EXPECT_LE(FreeBytes() + bytes, before);
  Free(address);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, AllocatingNothingIsAnInvalidArgument) {
  EXPECT_EQ(driver().AllocateMemory(0, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DriverContract, AllocatingMoreThanThereIsIsOutOfMemory) {
  const auto address = driver().AllocateMemory(0, driver().GetProperties(0)->total_bytes);
  EXPECT_EQ(address.status().code(), absl::StatusCode::kResourceExhausted) << address.status();
  EXPECT_EQ(DriverErrorCode(address.status()), CudaResult::kOutOfMemory);
}

TEST_P(DriverContract, AnAllocationIsNotFreedTwice) {
  const DevicePtr address = Allocate(granule_);
  Free(address);
  EXPECT_EQ(driver().FreeMemory(0, address).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DriverContract, AllocatingDoesNotWaitButFreeingWaitsForTheDevice) {
  const StreamHandle stream = CreateStream();
  const EventHandle event = CreateEvent();
  world().Block(stream);
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  const DevicePtr address = Allocate(20 * kMiB);
  EXPECT_FALSE(IsDone(event));
  std::thread freeing([&] {
    Free(address);
    EXPECT_TRUE(IsDone(event));
  });
  // Time in which a free that does not wait would be found out.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  world().Unblock();
  freeing.join();
}

// --- Pools of stream-ordered memory ---

constexpr DriverPoolOptions kKeepsAll{.release_threshold_bytes = ~Bytes{0}};
constexpr DriverPoolOptions kReusesNothing{.release_threshold_bytes = ~Bytes{0},
                                           .reuse_follow_events = false,
                                           .reuse_opportunistic = false,
                                           .reuse_internal_dependencies = false};

TEST_P(DriverContract, PoolMemoryIsAlignedAndOpen) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream();
  std::vector<DevicePtr> addresses;
  for (const Bytes bytes : {Bytes{1}, Bytes{513}, 3 * kMiB, 40 * kMiB}) {
    const DevicePtr address = AllocateAsync(pool, bytes, stream);
    addresses.push_back(address);
    EXPECT_EQ(address % kBlockAlignment, 0u);
    EXPECT_TRUE(world().Fill(stream, address, 5, bytes).ok());
    EXPECT_TRUE(driver().SynchronizeDevice(0).ok());
    ExpectBytes(address + bytes - 1, 1, 5);
  }
  EXPECT_EQ(Usage(pool).used_bytes, 1 + 513 + 43 * kMiB);
  EXPECT_GE(Usage(pool).reserved_bytes, 43 * kMiB);
  for (const DevicePtr address : addresses) FreeAsync(address, stream);
  EXPECT_EQ(Usage(pool).used_bytes, 0u);
  EXPECT_EQ(Usage(pool).used_bytes_max, 1 + 513 + 43 * kMiB);
}

TEST_P(DriverContract, APoolTakesMemoryAndGivesItBackWhenTheHostHasWaited) {
  const Bytes before = FreeBytes();
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream();
  const DevicePtr address = AllocateAsync(pool, 256 * kMiB, stream);
  EXPECT_LE(FreeBytes() + 256 * kMiB, before);
  FreeAsync(address, stream);
  EXPECT_EQ(Usage(pool).reserved_bytes, 256 * kMiB) << "nobody has waited yet";
  Synchronize();
  EXPECT_EQ(Usage(pool).reserved_bytes, 0u);
  EXPECT_EQ(Usage(pool).reserved_bytes_max, 256 * kMiB);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, AnEventThatTheHostWaitedForGivesBackToo) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream(), other = CreateStream();
  const EventHandle event = CreateEvent(), other_event = CreateEvent();
  FreeAsync(AllocateAsync(pool, 64 * kMiB, stream), stream);
  EXPECT_TRUE(driver().RecordEvent(0, other_event, other).ok());
  EXPECT_TRUE(driver().SynchronizeEvent(0, other_event).ok());
  EXPECT_EQ(Usage(pool).reserved_bytes, 64 * kMiB) << "the other stream says nothing of this one";
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  EXPECT_EQ(Usage(pool).reserved_bytes, 0u);
}

TEST_P(DriverContract, APoolHoldsItsReleaseThreshold) {
  const DriverPool pool = CreatePool({.release_threshold_bytes = 64 * kMiB});
  const StreamHandle stream = CreateStream();
  FreeAsync(AllocateAsync(pool, 256 * kMiB, stream), stream);
  Synchronize();
  EXPECT_EQ(Usage(pool).reserved_bytes, 64 * kMiB);
  EXPECT_TRUE(driver().TrimDriverPool(pool, 0).ok());
  EXPECT_EQ(Usage(pool).reserved_bytes, 0u);
}

TEST_P(DriverContract, TrimmingLeavesWhatIsUsedOrPending) {
  const DriverPool pool = CreatePool(kKeepsAll);
  const StreamHandle stream = CreateStream();
  const DevicePtr used = AllocateAsync(pool, 32 * kMiB, stream);
  const DevicePtr pending = AllocateAsync(pool, 32 * kMiB, stream);
  Synchronize();
  world().Block(stream);
  FreeAsync(pending, stream);
  EXPECT_TRUE(driver().TrimDriverPool(pool, 0).ok());
  EXPECT_EQ(Usage(pool).reserved_bytes, 64 * kMiB);
  EXPECT_TRUE(world().Unblock());
  Synchronize();
  EXPECT_TRUE(driver().TrimDriverPool(pool, 0).ok());
  EXPECT_EQ(Usage(pool).reserved_bytes, 32 * kMiB);
  EXPECT_TRUE(world().Write(used, {1}).ok());
  FreeAsync(used, stream);
}

TEST_P(DriverContract, PoolMemoryServesItsStreamAtOnce) {
  const DriverPool pool = CreatePool(kReusesNothing);
  const StreamHandle stream = CreateStream();
  const DevicePtr first = AllocateAsync(pool, 64 * kMiB, stream);
  Synchronize();
  world().Block(stream);
  FreeAsync(first, stream);
  const DevicePtr second = AllocateAsync(pool, 64 * kMiB, stream);
  EXPECT_EQ(first, second);
  EXPECT_EQ(Usage(pool).reserved_bytes, 64 * kMiB);
  EXPECT_TRUE(world().Unblock());
  FreeAsync(second, stream);
}

TEST_P(DriverContract, PoolMemoryServesAnotherStreamAfterTheHostHasWaited) {
  const DriverPool pool = CreatePool(kReusesNothing);
  const StreamHandle stream = CreateStream(), other = CreateStream();
  FreeAsync(AllocateAsync(pool, 64 * kMiB, stream), stream);
  const DevicePtr beside = AllocateAsync(pool, 64 * kMiB, other);
  EXPECT_EQ(Usage(pool).reserved_bytes, 128 * kMiB);
  FreeAsync(beside, other);
  Synchronize();
  const DevicePtr again = AllocateAsync(pool, 128 * kMiB, other);
  EXPECT_EQ(Usage(pool).reserved_bytes, 128 * kMiB);
  FreeAsync(again, other);
}

TEST_P(DriverContract, PoolMemoryServesAnotherStreamAfterAnEventItWaitedFor) {
  for (const bool follow : {false, true}) {
    DriverPoolOptions options = kReusesNothing;
    options.reuse_follow_events = follow;
    const DriverPool pool = CreatePool(options);
    const StreamHandle stream = CreateStream(), other = CreateStream();
    const EventHandle event = CreateEvent();
    const DevicePtr first = AllocateAsync(pool, 64 * kMiB, stream);
    Synchronize();
    world().Block(stream);
    FreeAsync(first, stream);
    EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
    world().MakeWait(other, event);
    const DevicePtr second = AllocateAsync(pool, 64 * kMiB, other);
    EXPECT_EQ(first == second, follow);
    EXPECT_TRUE(world().Unblock());
    FreeAsync(second, other);
    Synchronize();
  }
}

TEST_P(DriverContract, PoolMemoryIsFreedOnce) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream();
  const DevicePtr address = AllocateAsync(pool, kMiB, stream);
  EXPECT_EQ(driver().FreeAsync(address + 512, 0, stream).code(),
            absl::StatusCode::kInvalidArgument);
  FreeAsync(address, stream);
  EXPECT_EQ(driver().FreeAsync(address, 0, stream).code(), absl::StatusCode::kInvalidArgument);
  Synchronize();
  EXPECT_EQ(driver().FreeAsync(address, 0, stream).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DriverContract, PoolMemoryMayBeFreedWithAWaitToo) {
  const Bytes before = FreeBytes();
  const DriverPool pool = CreatePool();
  EXPECT_TRUE(driver().FreeMemory(0, AllocateAsync(pool, 64 * kMiB, CreateStream())).ok());
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, APoolIsDestroyedBeforeItsMemoryIsFreed) {
  const Bytes before = FreeBytes();
  const auto pool = driver().CreateDriverPool(0, {});
  ASSERT_TRUE(pool.ok()) << pool.status();
  const StreamHandle stream = CreateStream();
  const DevicePtr address = AllocateAsync(*pool, 64 * kMiB, stream);
  EXPECT_TRUE(driver().DestroyDriverPool(*pool).ok());
  EXPECT_TRUE(world().Fill(stream, address, 1, 64 * kMiB).ok());
  FreeAsync(address, stream);
  Synchronize();
  EXPECT_EQ(FreeBytes(), before);
}

TEST_P(DriverContract, PoolsGiveWayToOthersThatNeedMemory) {
  const DriverPool pool = CreatePool(kKeepsAll);
  const StreamHandle stream = CreateStream();
  const Bytes most = RoundDown(FreeBytes() / 10 * 9, granule_);
  FreeAsync(AllocateAsync(pool, most, stream), stream);
  Synchronize();
  EXPECT_LT(FreeBytes(), most);
  Create(most);
}

TEST_P(DriverContract, MoreThanAPoolCanGetIsOutOfMemory) {
  const DriverPool pool = CreatePool();
  const auto address =
      driver().AllocateAsync(pool, driver().GetProperties(0)->total_bytes, 0, CreateStream());
  EXPECT_EQ(address.status().code(), absl::StatusCode::kResourceExhausted) << address.status();
}

TEST_P(DriverContract, APoolHasTheExportFlagsThatTheDeviceGrants) {
  MemoryFlags flags = *GrantedMemoryFlags(driver(), 0);
  flags.rdma = false;
  const auto pool = driver().CreateDriverPool(0, flags);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_TRUE(driver().DestroyDriverPool(*pool).ok());
  EXPECT_EQ(driver().CreateDriverPool(0, {.rdma = true}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// --- Streams and events ---

TEST_P(DriverContract, StreamIdsAreNeverReusedThoughHandlesAre) {
  std::vector<StreamId> ids;
  for (int i = 0; i < 8; ++i) {
    const StreamHandle stream = world().CreateStream(/*non_blocking=*/true);
    const auto id = driver().GetStreamId(0, stream);
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
    world().DestroyStream(stream);
  }
  ids.push_back(*driver().GetStreamId(0, nullptr));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST_P(DriverContract, TheSameStreamKeepsItsId) {
  const StreamHandle stream = CreateStream();
  EXPECT_EQ(*driver().GetStreamId(0, stream), *driver().GetStreamId(0, stream));
  EXPECT_EQ(*driver().GetStreamId(0, nullptr), *driver().GetStreamId(0, nullptr));
  EXPECT_NE(*driver().GetStreamId(0, stream), *driver().GetStreamId(0, nullptr));
}

TEST_P(DriverContract, ThePerThreadStreamIsAnotherOnEachThread) {
  const StreamHandle per_thread = world().PerThreadStream();
  const auto here = driver().GetStreamId(0, per_thread);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(*here, *driver().GetStreamId(0, per_thread));
  EXPECT_NE(*here, *driver().GetStreamId(0, nullptr));
  std::thread([&] { EXPECT_NE(*here, *driver().GetStreamId(0, per_thread)); }).join();
}

TEST_P(DriverContract, AnEventNeverRecordedIsDone) { EXPECT_TRUE(IsDone(CreateEvent())); }

TEST_P(DriverContract, AnEventIsDoneAfterTheWorkBeforeItAndNoSooner) {
  const StreamHandle stream = CreateStream();
  const EventHandle event = CreateEvent();
  world().Block(stream);
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  EXPECT_FALSE(IsDone(event));
  EXPECT_TRUE(world().Unblock());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  EXPECT_TRUE(IsDone(event));
}

TEST_P(DriverContract, AnEventDoesNotWaitForAnotherStream) {
  if (!world().BlocksOneStream()) GTEST_SKIP() << "all streams lag together in this world";
  const StreamHandle blocked = CreateStream(), other = CreateStream();
  const EventHandle event = CreateEvent(), blocked_event = CreateEvent();
  world().Block(blocked);
  EXPECT_TRUE(driver().RecordEvent(0, blocked_event, blocked).ok());
  EXPECT_TRUE(driver().RecordEvent(0, event, other).ok());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  EXPECT_TRUE(IsDone(event));
  EXPECT_FALSE(IsDone(blocked_event));
  EXPECT_TRUE(world().Unblock());
}

TEST_P(DriverContract, RecordingAgainMovesTheEvent) {
  const StreamHandle stream = CreateStream();
  const EventHandle event = CreateEvent();
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  world().Block(stream);
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  EXPECT_FALSE(IsDone(event));
  EXPECT_TRUE(world().Unblock());
}

TEST_P(DriverContract, AnEventIsDestroyedWhileItIsPending) {
  const StreamHandle stream = CreateStream();
  const auto event = driver().CreateEvent(0);
  ASSERT_TRUE(event.ok());
  world().Block(stream);
  EXPECT_TRUE(driver().RecordEvent(0, *event, stream).ok());
  EXPECT_TRUE(driver().DestroyEvent(0, *event).ok());
  EXPECT_TRUE(world().Unblock());
}

TEST_P(DriverContract, SynchronizingTheDeviceFinishesAllStreams) {
  const EventHandle a = CreateEvent(), b = CreateEvent();
  EXPECT_TRUE(driver().RecordEvent(0, a, CreateStream(/*non_blocking=*/true)).ok());
  EXPECT_TRUE(driver().RecordEvent(0, b, CreateStream(/*non_blocking=*/false)).ok());
  EXPECT_TRUE(driver().SynchronizeDevice(0).ok());
  EXPECT_TRUE(IsDone(a));
  EXPECT_TRUE(IsDone(b));
}

TEST_P(DriverContract, AnEventOfTheDeviceCoversAllStreamsAndWaitsForNone) {
  const StreamHandle blocked = CreateStream(), other = CreateStream();
  const EventHandle event = CreateEvent(), other_event = CreateEvent();
  world().Block(blocked);
  EXPECT_TRUE(driver().RecordEvent(0, other_event, other).ok());
  const absl::Status recorded = driver().RecordDeviceEvent(0, event);
  if (absl::IsUnimplemented(recorded)) GTEST_SKIP() << recorded;
  EXPECT_TRUE(recorded.ok()) << recorded;
  EXPECT_FALSE(IsDone(event));
  EXPECT_TRUE(world().Unblock());
  EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
  EXPECT_TRUE(IsDone(event));
  EXPECT_TRUE(IsDone(other_event));
}

// --- Captures ---

TEST_P(DriverContract, TellsWhetherAStreamIsCapturing) {
  const StreamHandle stream = CreateStream(), other = CreateStream();
  EXPECT_FALSE(*driver().IsCapturing(0, stream));
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  EXPECT_TRUE(*driver().IsCapturing(0, stream));
  EXPECT_FALSE(*driver().IsCapturing(0, other));
  EXPECT_FALSE(*driver().IsCapturing(0, nullptr));
  EXPECT_TRUE(world().EndCapture(stream));
  EXPECT_FALSE(*driver().IsCapturing(0, stream));
}

TEST_P(DriverContract, ACaptureSurvivesGrowth) {
  for (const auto mode : {ContractCaptureMode::kGlobal, ContractCaptureMode::kThreadLocal,
                          ContractCaptureMode::kRelaxed}) {
    const StreamHandle stream = CreateStream();
    world().BeginCapture(stream, mode);
    const DevicePtr address = MappedMemory(2 * granule_);
    FreeBytes();
    Unmap(address, 2 * granule_);
    Free(Allocate(20 * kMiB));
    EXPECT_TRUE(world().EndCapture(stream)) << "mode " << static_cast<int>(mode);
  }
}

TEST_P(DriverContract, ACaptureSurvivesEventsOfOtherStreams) {
  for (const auto mode : {ContractCaptureMode::kGlobal, ContractCaptureMode::kThreadLocal,
                          ContractCaptureMode::kRelaxed}) {
    const StreamHandle stream = CreateStream(), other = CreateStream();
    world().BeginCapture(stream, mode);
    const EventHandle event = CreateEvent();
    EXPECT_TRUE(driver().RecordEvent(0, event, other).ok());
    EXPECT_TRUE(driver().QueryEvent(0, event).ok());
    EXPECT_TRUE(driver().SynchronizeEvent(0, event).ok());
    EXPECT_TRUE(IsDone(event));
    std::thread([&] { EXPECT_TRUE(driver().QueryEvent(0, event).ok()); }).join();
    EXPECT_TRUE(world().EndCapture(stream)) << "mode " << static_cast<int>(mode);
  }
}

TEST_P(DriverContract, TheLegacyStreamBesideABlockingCaptureCountsAsCapturing) {
  const StreamHandle stream = CreateStream(/*non_blocking=*/false);
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  const auto capturing = driver().IsCapturing(0, nullptr);
  ASSERT_TRUE(capturing.ok()) << capturing.status();
  EXPECT_TRUE(*capturing);
  EXPECT_TRUE(world().EndCapture(stream)) << "asking ends no capture";
}

TEST_P(DriverContract, ACaptureSurvivesPoolsOnOtherStreams) {
  for (const auto mode : {ContractCaptureMode::kGlobal, ContractCaptureMode::kThreadLocal,
                          ContractCaptureMode::kRelaxed}) {
    const StreamHandle stream = CreateStream(), other = CreateStream();
    world().BeginCapture(stream, mode);
    const DriverPool pool = CreatePool();
    FreeAsync(AllocateAsync(pool, kMiB, other), other);
    Usage(pool);
    EXPECT_TRUE(driver().TrimDriverPool(pool, 0).ok());
    EXPECT_TRUE(world().EndCapture(stream)) << "mode " << static_cast<int>(mode);
  }
}

TEST_P(DriverContract, ACaptureDoesNotFreeMemoryFromOutside) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream();
  const DevicePtr outside = AllocateAsync(pool, kMiB, stream);
  Synchronize();
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  EXPECT_EQ(driver().FreeAsync(outside, 0, stream).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(world().EndCapture(stream)) << "asking ends no capture";
  FreeAsync(outside, stream);
}

TEST_P(DriverContract, AllocationsInACaptureAreTheGraphs) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream();
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  const DevicePtr inner = AllocateAsync(pool, 4 * kMiB, stream);
  const DevicePtr kept = AllocateAsync(pool, 4 * kMiB, stream);
  EXPECT_NE(inner, kept);
  FreeAsync(inner, stream);
  EXPECT_EQ(driver().FreeAsync(inner, 0, stream).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(world().EndCaptureAndLaunch(stream));
  EXPECT_EQ(Usage(pool).used_bytes, 0u) << "it is none of the pool's";
  FreeAsync(kept, stream);
  EXPECT_EQ(driver().FreeAsync(kept, 0, stream).code(), absl::StatusCode::kInvalidArgument)
      << "once per launch";
  Synchronize();
}

TEST_P(DriverContract, MemoryOfAGraphComesWithALaunchAndIsFreedAfterIt) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream(), other = CreateStream();
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  const DevicePtr kept = AllocateAsync(pool, 4 * kMiB, stream);
  EXPECT_EQ(driver().FreeAsync(kept, 0, other).code(), absl::StatusCode::kInvalidArgument)
      << "there is nothing to free before a launch";
  EXPECT_TRUE(world().EndCaptureAndLaunch(stream));
  const EventHandle event = CreateEvent();
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  EXPECT_TRUE(driver().WaitForEvent(0, other, event).ok());
  FreeAsync(kept, other);
  Synchronize();
}

TEST_P(DriverContract, ACaptureHasANumberOfItsOwn) {
  const StreamHandle stream = CreateStream(), joined = CreateStream(), other = CreateStream();
  const auto capture_of = [&](StreamHandle asked) {
    const auto id = driver().GetCaptureId(0, asked);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  };
  if (absl::IsUnimplemented(driver().GetCaptureId(0, stream).status())) {
    GTEST_SKIP() << driver().GetCaptureId(0, stream).status();
  }
  EXPECT_EQ(capture_of(stream), 0u);
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  const uint64_t first = capture_of(stream);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(capture_of(other), 0u);
  const EventHandle forked = CreateEvent(), done = CreateEvent();
  EXPECT_TRUE(driver().RecordEvent(0, forked, stream).ok());
  EXPECT_TRUE(driver().WaitForEvent(0, joined, forked).ok());
  EXPECT_EQ(capture_of(joined), first) << "a stream that waits for captured work joins the capture";
  EXPECT_TRUE(driver().RecordEvent(0, done, joined).ok());
  EXPECT_TRUE(driver().WaitForEvent(0, stream, done).ok());
  EXPECT_TRUE(world().EndCapture(stream)) << "asking ends no capture";
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  EXPECT_NE(capture_of(stream), first);
  EXPECT_TRUE(world().EndCapture(stream));
}

TEST_P(DriverContract, TheThreadsDefaultStreamAllocatesBesideABlockingCapture) {
  const DriverPool pool = CreatePool();
  const StreamHandle stream = CreateStream(/*non_blocking=*/false);
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  const auto capturing = driver().IsCapturing(0, world().PerThreadStream());
  ASSERT_TRUE(capturing.ok()) << capturing.status();
  EXPECT_FALSE(*capturing);
  const DevicePtr address = AllocateAsync(pool, kMiB, world().PerThreadStream());
  EXPECT_TRUE(world().EndCapture(stream));
  FreeAsync(address, nullptr);
  Synchronize();
}

TEST_P(DriverContract, ARecordOnTheLegacyStreamEndsABlockingCapture) {
  const StreamHandle stream = CreateStream(/*non_blocking=*/false);
  const EventHandle event = CreateEvent();
  world().BeginCapture(stream, ContractCaptureMode::kRelaxed);
  const absl::Status recorded = driver().RecordEvent(0, event, nullptr);
  EXPECT_EQ(DriverErrorCode(recorded), CudaResult::kStreamCaptureImplicit) << recorded;
  EXPECT_EQ(recorded.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(world().EndCapture(stream));
  EXPECT_TRUE(driver().RecordEvent(0, event, nullptr).ok());
}

TEST_P(DriverContract, SynchronizingTheDeviceWaitsDuringACaptureAndDoesItNoHarm) {
  for (const bool non_blocking : {true, false}) {
    for (const auto mode : {ContractCaptureMode::kGlobal, ContractCaptureMode::kThreadLocal,
                            ContractCaptureMode::kRelaxed}) {
      const StreamHandle captured = CreateStream(non_blocking), other = CreateStream(true);
      const EventHandle event = CreateEvent();
      world().BeginCapture(captured, mode);
      EXPECT_TRUE(driver().RecordEvent(0, event, other).ok());
      EXPECT_TRUE(driver().SynchronizeDevice(0).ok());
      std::thread([&] { EXPECT_TRUE(driver().SynchronizeDevice(0).ok()); }).join();
      EXPECT_TRUE(IsDone(event));
      EXPECT_TRUE(world().EndCapture(captured));
    }
  }
}

TEST_P(DriverContract, AnEventOfTheDeviceEndsACapture) {
  for (const auto mode : {ContractCaptureMode::kGlobal, ContractCaptureMode::kThreadLocal,
                          ContractCaptureMode::kRelaxed}) {
    const StreamHandle stream = CreateStream();
    const EventHandle event = CreateEvent();
    world().BeginCapture(stream, mode);
    const absl::Status recorded = driver().RecordDeviceEvent(0, event);
    if (absl::IsUnimplemented(recorded)) {
      world().EndCapture(stream);
      GTEST_SKIP() << recorded;
    }
    EXPECT_EQ(recorded.code(), absl::StatusCode::kFailedPrecondition) << recorded;
    EXPECT_FALSE(world().EndCapture(stream)) << "mode " << static_cast<int>(mode);
  }
}

TEST_P(DriverContract, AnEventRecordedInACaptureCannotBeQueried) {
  const StreamHandle stream = CreateStream();
  const EventHandle event = CreateEvent();
  world().BeginCapture(stream, ContractCaptureMode::kGlobal);
  EXPECT_TRUE(driver().RecordEvent(0, event, stream).ok());
  const auto done = driver().QueryEvent(0, event);
  EXPECT_EQ(done.status().code(), absl::StatusCode::kFailedPrecondition) << done.status();
  world().EndCapture(stream);
}

}  // namespace
}  // namespace offcut
