// The harness must be able to fail: drivers that lie and cores that are wrong, each found out by
// the witness that is there for it.

#include <map>
#include <string>
#include <utility>

#include "allocator/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/run.h"

namespace offcut::fuzz {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kPrograms = 300;

// The first failure among the first programs; "" if there is none.
std::string FirstFailure(const Replacements& replacements) {
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const absl::Status status = RunProgram(Generate(seed), replacements);
    if (!status.ok()) return std::string(status.message());
  }
  return "";
}

template <typename Wrong>
std::string FirstFailureOfDriver() {
  return FirstFailure({.driver = [](Driver* driver) { return std::make_unique<Wrong>(driver); }});
}

template <typename Wrong>
std::string FirstFailureOfCore() {
  return FirstFailure({.core = [](SimDriver& sim, Driver& driver) {
    return std::make_unique<Wrong>(sim, driver);
  }});
}

// --- Drivers ---

class CompletesEventsEarly final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::StatusOr<bool> QueryEvent(DeviceIndex device, EventHandle event) override { return true; }
};

TEST(MutationTest, EventsThatCompleteEarly) {
  EXPECT_THAT(FirstFailureOfDriver<CompletesEventsEarly>(),
              AnyOf(StartsWith("claims: "), StartsWith("misuse: cuMemUnmap")));
}

class RecordsOnTheLegacyStream final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status RecordEvent(DeviceIndex device, EventHandle event, StreamHandle stream) override {
    return ForwardingDriver::RecordEvent(device, event, nullptr);
  }
};

TEST(MutationTest, EventsOnTheWrongStream) {
  EXPECT_THAT(FirstFailureOfDriver<RecordsOnTheLegacyStream>(),
              AnyOf(StartsWith("claims: "), StartsWith("misuse: cuMemUnmap")));
}

class DoesNotWait final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status SynchronizeDevice(DeviceIndex device) override { return absl::OkStatus(); }
};

TEST(MutationTest, AWaitForTheDeviceThatDoesNotWait) {
  // The driver's own pools are not misled: they keep what is still in use.
  EXPECT_THAT(FirstFailureOfDriver<DoesNotWait>(),
              AnyOf(StartsWith("claims: "), StartsWith("misuse: cuMemUnmap"), StartsWith("leak: "),
                    StartsWith("answer: ")));
}

// A graph of a private pool may run on any.
class WaitsForOneStreamOnly final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status SynchronizeDevice(DeviceIndex device) override {
    OFFCUT_ASSIGN_OR_RETURN(const EventHandle event, CreateEvent(device));
    absl::Status status = RecordEvent(device, event, nullptr);
    if (status.ok()) status = SynchronizeEvent(device, event);
    status.Update(DestroyEvent(device, event));
    return status;
  }
};

TEST(MutationTest, AWaitForTheDeviceThatWaitsForOneStream) {
  EXPECT_THAT(FirstFailureOfDriver<WaitsForOneStreamOnly>(),
              AnyOf(StartsWith("claims: "), StartsWith("misuse: cuMemUnmap"),
                    HasSubstr("pending bytes are left in an emptied cache")));
}

class KeepsMappings final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status Unmap(DevicePtr address, Bytes bytes) override { return absl::OkStatus(); }
};

TEST(MutationTest, AMappingThatStays) {
  EXPECT_THAT(FirstFailureOfDriver<KeepsMappings>(),
              AnyOf(StartsWith("leak: "), StartsWith("driver: "), StartsWith("misuse: cuMemMap")));
}

class KeepsMemory final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status ReleaseMemory(PhysicalHandle handle) override { return absl::OkStatus(); }
};

TEST(MutationTest, MemoryThatIsNotReleased) {
  EXPECT_THAT(FirstFailureOfDriver<KeepsMemory>(),
              AnyOf(StartsWith("leak: "), StartsWith("driver: ")));
}

// Maps the memory that it mapped before: two places, one memory.
class MapsOneMemoryTwice final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status Map(DevicePtr address, Bytes bytes, PhysicalHandle handle) override {
    if (before_ != 0) std::swap(before_, handle);
    const absl::Status mapped = ForwardingDriver::Map(address, bytes, handle);
    before_ = handle;
    return mapped;
  }

 private:
  PhysicalHandle before_ = 0;
};

TEST(MutationTest, OneMemoryAtTwoPlaces) {
  EXPECT_THAT(FirstFailureOfDriver<MapsOneMemoryTwice>(),
              AnyOf(StartsWith("claims: "), StartsWith("misuse: "), StartsWith("driver: ")));
}

class OpensNothingToPeers final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  absl::Status SetAccess(DevicePtr address, Bytes bytes, DeviceIndex device) override {
    return device == 0 ? ForwardingDriver::SetAccess(address, bytes, device) : absl::OkStatus();
  }
};

TEST(MutationTest, MemoryThatIsNotOpenToPeers) {
  EXPECT_THAT(FirstFailureOfDriver<OpensNothingToPeers>(),
              StartsWith("claims: the block cannot be used"));
}

// --- Cores ---

class ForgetsStreams final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status RecordStream(DeviceIndex device, DevicePtr address, DeviceIndex user,
                            StreamHandle stream) override {
    return absl::OkStatus();
  }
};

TEST(MutationTest, AStreamThatIsNotRecorded) {
  EXPECT_THAT(FirstFailureOfCore<ForgetsStreams>(), StartsWith("claims: block"));
}

// Takes a stream of a peer for one of the block's own device.
class RecordsPeersAtHome final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status RecordStream(DeviceIndex device, DevicePtr address, DeviceIndex user,
                            StreamHandle stream) override {
    return CoreUnderTest::RecordStream(device, address, device, stream);
  }
};

TEST(MutationTest, AStreamOfAPeerTakenForOneOfTheDevice) {
  EXPECT_THAT(FirstFailureOfCore<RecordsPeersAtHome>(), StartsWith("claims: block"));
}

// Serves everybody from the memory of the legacy stream, and does not let it show.
class ServesForAnotherStream final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream,
                                     Bytes bytes) override {
    absl::StatusOr<DevicePtr> address = CoreUnderTest::Allocate(device, nullptr, bytes);
    if (address.ok()) streams_[*address] = stream;
    return address;
  }
  absl::StatusOr<BlockInfo> FindBlock(DeviceIndex device, DevicePtr address) override {
    absl::StatusOr<BlockInfo> info = CoreUnderTest::FindBlock(device, address);
    if (info.ok()) info->stream = streams_[info->address];
    return info;
  }

 private:
  std::map<DevicePtr, StreamHandle> streams_;
};

TEST(MutationTest, ABlockOfAnotherStream) {
  EXPECT_THAT(FirstFailureOfCore<ServesForAnotherStream>(), StartsWith("claims: block"));
}

// Hands the block out that it handed out before, if that was of the same size.
class ServesABlockTwice final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream,
                                     Bytes bytes) override {
    const absl::StatusOr<BlockInfo> before = FindBlock(device, last_);
    if (before.ok() && before->requested == bytes && before->stream == stream) return last_;
    absl::StatusOr<DevicePtr> address = CoreUnderTest::Allocate(device, stream, bytes);
    if (address.ok()) last_ = *address;
    return address;
  }

 private:
  DevicePtr last_ = 0;
};

TEST(MutationTest, ABlockForTwo) {
  EXPECT_THAT(FirstFailureOfCore<ServesABlockTwice>(), HasSubstr("which is not freed"));
}

class ServesBesideTheBlock final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream,
                                     Bytes bytes) override {
    absl::StatusOr<DevicePtr> address = CoreUnderTest::Allocate(device, stream, bytes);
    if (address.ok() && bytes > kBlockAlignment) *address += kBlockAlignment;
    return address;
  }
};

TEST(MutationTest, AnAddressBesideTheBlock) {
  EXPECT_THAT(FirstFailureOfCore<ServesBesideTheBlock>(), StartsWith("answer: the block of"));
}

class FreesNothing final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status Free(DeviceIndex device, DevicePtr address) override { return absl::OkStatus(); }
};

TEST(MutationTest, AFreeThatFreesNothing) {
  EXPECT_THAT(FirstFailureOfCore<FreesNothing>(),
              AnyOf(StartsWith("leak: "), StartsWith("answer: ")));
}

class KeepsTheCache final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  Bytes EmptyCache(DeviceIndex device) override { return 0; }
};

TEST(MutationTest, ACacheThatIsNotEmptied) {
  EXPECT_THAT(FirstFailureOfCore<KeepsTheCache>(),
              AnyOf(StartsWith("leak: "), HasSubstr("left in an emptied cache")));
}

class RefusesEarly final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream,
                                     Bytes bytes) override {
    if (bytes > 0 && HoldingsOf(device).reserved_bytes > 4 * kMiB) {
      return absl::ResourceExhaustedError("no more");
    }
    return CoreUnderTest::Allocate(device, stream, bytes);
  }
};

TEST(MutationTest, ARefusalWithoutNeed) {
  EXPECT_THAT(FirstFailureOfCore<RefusesEarly>(),
              AllOf(StartsWith("answer: "), HasSubstr("was refused")));
}

// --- Private pools ---

class ForgetsToRetain final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status RetainPool(DeviceIndex device, PrivatePoolId pool) override {
    return absl::OkStatus();
  }
};

TEST(MutationTest, APoolThatIsNotRetained) {
  EXPECT_THAT(FirstFailureOfCore<ForgetsToRetain>(), StartsWith("answer: pool "));
}

class LeadsNowhere final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status BeginAllocateToPool(DeviceIndex device, PrivatePoolId pool, StreamHandle stream,
                                   PrivatePools::Filter filter) override {
    return CoreUnderTest::BeginAllocateToPool(device, pool, stream,
                                              [](StreamHandle) { return false; });
  }
};

TEST(MutationTest, ARouteThatLeadsNowhere) {
  EXPECT_THAT(FirstFailureOfCore<LeadsNowhere>(), HasSubstr(" got memory of pool "));
}

class LeadsAllStreams final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status BeginAllocateToPool(DeviceIndex device, PrivatePoolId pool, StreamHandle stream,
                                   PrivatePools::Filter filter) override {
    return CoreUnderTest::BeginAllocateToPool(device, pool, stream,
                                              [](StreamHandle) { return true; });
  }
};

TEST(MutationTest, ARouteThatLeadsEverybody) {
  EXPECT_THAT(FirstFailureOfCore<LeadsAllStreams>(),
              AnyOf(HasSubstr(" got memory of pool "), StartsWith("answer: a checkpoint of")));
}

class LendsAlways final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status BeginAllocateToPool(DeviceIndex device, PrivatePoolId pool, StreamHandle stream,
                                   PrivatePools::Filter filter) override {
    OFFCUT_RETURN_IF_ERROR(
        CoreUnderTest::BeginAllocateToPool(device, pool, stream, std::move(filter)));
    return SetUseOnOom(device, pool, true);
  }
};

TEST(MutationTest, APoolThatLendsUnasked) {
  EXPECT_THAT(FirstFailureOfCore<LendsAlways>(), HasSubstr(" for pool 0 got memory of pool "));
}

// Has a pool released while the cache is emptied, though it is retained.
class GivesPoolsAway final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  Bytes EmptyCache(DeviceIndex device) override {
    std::map<PrivatePoolId, uint32_t> uses;
    for (uint32_t number = 1; number <= 3; ++number) {
      const PrivatePoolId pool = PoolBook::IdOf(number);
      uses[pool] = PoolUseCount(device, pool);
      for (uint32_t i = 0; i < uses[pool]; ++i) ReleasePool(device, pool).IgnoreError();
    }
    const Bytes released = CoreUnderTest::EmptyCache(device);
    for (const auto& [pool, count] : uses) {
      for (uint32_t i = 0; i < count; ++i) RetainPool(device, pool).IgnoreError();
    }
    return released;
  }
};

TEST(MutationTest, MemoryOfAPoolInUseThatIsReleased) {
  EXPECT_THAT(FirstFailureOfCore<GivesPoolsAway>(), StartsWith("claims: memory of private pool"));
}

class SplitsAlways final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::Status SetNoSplit(DeviceIndex device, PrivatePoolId pool) override {
    return HasLiveBlocks(device, pool, {}).status();
  }
};

TEST(MutationTest, ABlockThatIsSplit) {
  EXPECT_THAT(FirstFailureOfCore<SplitsAlways>(), HasSubstr("that is never split lies in"));
}

class KnowsAllBlocks final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<bool> HasLiveBlocks(DeviceIndex device, PrivatePoolId pool,
                                     absl::Span<const DevicePtr> addresses) override {
    return true;
  }
};

TEST(MutationTest, BlocksThatAPoolDoesNotHave) {
  EXPECT_THAT(FirstFailureOfCore<KnowsAllBlocks>(), HasSubstr("is told to have just"));
}

class RestoresNothing final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<RestoredBlocks> RestoreCheckpoint(DeviceIndex device,
                                                   const PoolCheckpoint& checkpoint) override {
    return RestoredBlocks();
  }
};

TEST(MutationTest, ACheckpointThatIsNotRestored) {
  EXPECT_THAT(FirstFailureOfCore<RestoresNothing>(), HasSubstr("restor"));
}

// Says that all blocks are back, and keeps one.
class RestoresOneLess final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<RestoredBlocks> RestoreCheckpoint(DeviceIndex device,
                                                   const PoolCheckpoint& checkpoint) override {
    absl::StatusOr<RestoredBlocks> restored = CoreUnderTest::RestoreCheckpoint(device, checkpoint);
    if (restored.ok() && !restored->allocated.empty()) {
      Free(device, restored->allocated.front()).IgnoreError();
    }
    return restored;
  }
};

TEST(MutationTest, ABlockThatDoesNotComeBack) {
  EXPECT_THAT(FirstFailureOfCore<RestoresOneLess>(), StartsWith("answer: no block at"));
}

// Brings back the blocks of the pool's first checkpoint, whichever is asked for.
class RestoresTheFirst final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<RestoredBlocks> RestoreCheckpoint(DeviceIndex device,
                                                   const PoolCheckpoint& checkpoint) override {
    const auto [it, is_new] = first_.try_emplace({device, checkpoint.pool}, checkpoint);
    const absl::StatusOr<RestoredBlocks> first =
        CoreUnderTest::RestoreCheckpoint(device, it->second);
    return first.ok() ? first : CoreUnderTest::RestoreCheckpoint(device, checkpoint);
  }

 private:
  std::map<std::pair<DeviceIndex, PrivatePoolId>, PoolCheckpoint> first_;
};

TEST(MutationTest, ACheckpointTakenForAnother) {
  EXPECT_THAT(FirstFailureOfCore<RestoresTheFirst>(), StartsWith("answer: restoring is told to"));
}

// --- What becomes of a failure ---

class CrashesOnLargeRequests final : public CoreUnderTest {
 public:
  using CoreUnderTest::CoreUnderTest;
  absl::StatusOr<DevicePtr> Allocate(DeviceIndex device, StreamHandle stream,
                                     Bytes bytes) override {
    if (bytes > 5 * kMiB) abort();
    return CoreUnderTest::Allocate(device, stream, bytes);
  }
};

TEST(MutationTest, AProgramThatCrashesIsMinimisedAndPrinted) {
  const FuzzReport report =
      Fuzz({.operations = 100'000, .replacements = {.core = [](SimDriver& sim, Driver& driver) {
                                     return std::make_unique<CrashesOnLargeRequests>(sim, driver);
                                   }}});
  EXPECT_LT(report.operations, 100'000u);
  EXPECT_THAT(report.failure, HasSubstr("crash: signal 6"));
  EXPECT_THAT(report.failure, HasSubstr(R"(
  Play({.setup = {},
        .ops = {
            {.kind = kAllocate, .block = 1, .bytes = 5242881},
        }});)"));
}

}  // namespace
}  // namespace offcut::fuzz
