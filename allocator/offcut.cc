// offcut.h over Library: C types and status codes in, C types and status codes out; no policy.

#include "allocator/offcut.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "allocator/core/audit.h"
#include "allocator/core/device_allocator.h"
#include "allocator/core/memory_report.h"
#include "allocator/core/snapshot.h"
#include "allocator/events/accounting.h"
#include "allocator/events/counters.h"
#include "allocator/library.h"

namespace offcut {
namespace {

// Never destroyed: tensors are freed, and may fail to be, after a thread's own destructors have
// run. A thread without errors allocates none.
std::string& LastError() {
  thread_local std::string* const text = new std::string();
  return *text;
}
std::string& LastReport() {
  thread_local std::string* const text = new std::string();
  return *text;
}

offcut_status StatusCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return OFFCUT_OK;
    case absl::StatusCode::kResourceExhausted:
      return OFFCUT_OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return OFFCUT_INVALID_ARGUMENT;
    case absl::StatusCode::kUnavailable:
      return OFFCUT_NO_DRIVER;
    case absl::StatusCode::kUnimplemented:
      return OFFCUT_NOT_SUPPORTED;
    case absl::StatusCode::kFailedPrecondition:
      return OFFCUT_WRONG_STATE;
    case absl::StatusCode::kAborted:
      return OFFCUT_CALLBACK_FAILED;
    default:
      return OFFCUT_DRIVER_ERROR;
  }
}

offcut_status ReturnErrorSlow(const absl::Status& status) {
  LastError() = std::string(status.message());
  return StatusCode(status.code());
}

offcut_status Return(const absl::Status& status) {
  return ABSL_PREDICT_TRUE(status.ok()) ? OFFCUT_OK : ReturnErrorSlow(status);
}

DevicePtr AddressOf(const void* pointer) { return reinterpret_cast<DevicePtr>(pointer); }

absl::Status ForkedChildError() {
  return absl::UnavailableError(
      "CUDA cannot be used in a process forked from one that uses it; start the process with "
      "\"spawn\" instead");
}

ABSL_ATTRIBUTE_NOINLINE void KeepReportSlow(const absl::Status& failed) {
  std::string report(failed.message());
  if (const auto whole = failed.GetPayload(kWholeReportPayload); whole.has_value()) {
    const std::string path = Library::Get().SaveReport(std::string(*whole));
    if (!path.empty()) absl::StrAppend(&report, "\n  The whole report: ", path);
  }
  LastReport() = std::move(report);
}

absl::StatusOr<DevicePtr> Allocate(int device, offcut_stream stream, size_t size) {
  if (Library::InForkedChild()) return ForkedChildError();
  absl::StatusOr<DeviceAllocator*> allocator = Library::Get().AllocatorFor(device);
  if (ABSL_PREDICT_FALSE(!allocator.ok())) return allocator.status();
  absl::StatusOr<DevicePtr> address = (*allocator)->Allocate(stream, size);
  if (ABSL_PREDICT_FALSE(absl::IsResourceExhausted(address.status()))) {
    KeepReportSlow(address.status());
  }
  return address;
}

absl::Status Free(const void* pointer) {
  // A child inherits its parent's tensors and destroys them: nothing of the device is its to free.
  if (pointer == nullptr || Library::InForkedChild()) return absl::OkStatus();
  Library& library = Library::Get();
  if (DeviceAllocator* const owner = library.FindAllocatorOf(AddressOf(pointer))) {
    return owner->Free(AddressOf(pointer));
  }
  // In no range of ours: any device may count it, and the first in use does.
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("0x", absl::Hex(AddressOf(pointer)), " was never handed out"));
  bool counted = false;
  library.ForEachAllocator([&](DeviceAllocator& allocator) {
    if (!counted) status = allocator.Free(AddressOf(pointer));
    counted = true;
  });
  return status;
}

offcut_gauge ToC(const Gauge& gauge) {
  return {gauge.current, gauge.peak, gauge.risen, gauge.fallen};
}

offcut_counters ToC(const Counters& counters) {
  offcut_counters out = {};
#define OFFCUT_GAUGE(name, unit, sentence) \
  for (size_t i = 0; i < counters.name.size(); ++i) out.name[i] = ToC(counters.name[i]);
#define OFFCUT_COUNT(name, unit, sentence) out.name = counters.name;
#define OFFCUT_LEVEL(name, unit, sentence) out.name = counters.name;
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_COUNT
#undef OFFCUT_LEVEL
  return out;
}

offcut_segment_counters ToC(const SegmentCounters& counters) {
  offcut_segment_counters out = {};
  for (size_t i = 0; i < counters.segments.size(); ++i) {
    out.segments[i] = ToC(counters.segments[i]);
    out.remainders[i] = ToC(counters.remainders[i]);
    out.remainder_bytes[i] = ToC(counters.remainder_bytes[i]);
  }
  out.oversize_blocks = ToC(counters.oversize_blocks);
  out.oversize_segments = ToC(counters.oversize_segments);
  out.max_split_bytes = counters.max_split_bytes;
  return out;
}

// The allocator of a device in use; `*status` if there is none. A device that exists but is not in
// use is no error.
DeviceAllocator* InUse(int device, offcut_status* status) {
  *status = OFFCUT_OK;
  if (Library::InForkedChild()) return nullptr;
  if (device < 0) {
    *status = Return(absl::InvalidArgumentError(absl::StrCat("device ", device)));
    return nullptr;
  }
  return Library::Get().FindAllocator(device);
}

offcut_status OnDevice(int device, absl::FunctionRef<absl::Status(DeviceAllocator&)> act) {
  if (Library::InForkedChild()) return Return(ForkedChildError());
  const absl::StatusOr<DeviceAllocator*> allocator = Library::Get().AllocatorFor(device);
  return Return(allocator.ok() ? act(**allocator) : allocator.status());
}

PrivatePoolId FromC(offcut_pool_id id) { return {.first = id.first, .second = id.second}; }

}  // namespace
}  // namespace offcut

using offcut::DeviceAllocator;
using offcut::Library;

const char* offcut_last_error(void) { return offcut::LastError().c_str(); }

const char* offcut_version(void) { return OFFCUT_VERSION; }

offcut_status offcut_init(void) { return offcut::Return(Library::Get().start_status()); }

const char* offcut_options_json(void) { return Library::Get().options_json().c_str(); }

void* offcut_malloc(ssize_t size, int device, offcut_stream stream) {
  void* out = nullptr;
  if (size > 0) offcut_allocate(device, stream, static_cast<size_t>(size), &out);
  return out;
}

void offcut_free(void* pointer, ssize_t /*size*/, int /*device*/, offcut_stream /*stream*/) {
  offcut_deallocate(pointer);
}

offcut_status offcut_allocate(int device, offcut_stream stream, size_t size, void** out) {
  *out = nullptr;
  if (size == 0) return OFFCUT_OK;
  const absl::StatusOr<offcut::DevicePtr> address = offcut::Allocate(device, stream, size);
  if (ABSL_PREDICT_FALSE(!address.ok())) return offcut::ReturnErrorSlow(address.status());
  *out = reinterpret_cast<void*>(*address);
  return OFFCUT_OK;
}

offcut_status offcut_deallocate(void* pointer) { return offcut::Return(offcut::Free(pointer)); }

offcut_status offcut_record_stream(void* pointer, int device, offcut_stream stream) {
  if (Library::InForkedChild()) return offcut::Return(offcut::ForkedChildError());
  DeviceAllocator* const owner = Library::Get().FindAllocatorOf(offcut::AddressOf(pointer));
  if (owner == nullptr) {
    return offcut::Return(absl::InvalidArgumentError(
        absl::StrCat("0x", absl::Hex(offcut::AddressOf(pointer)), " was never handed out")));
  }
  return offcut::Return(owner->RecordStream(offcut::AddressOf(pointer), device, stream));
}

offcut_status offcut_find_block(const void* pointer, offcut_block* out) {
  *out = {};
  if (Library::InForkedChild()) return offcut::Return(offcut::ForkedChildError());
  const offcut::DevicePtr address = offcut::AddressOf(pointer);
  const std::optional<offcut::DeviceIndex> device = Library::Get().FindDeviceOf(address);
  DeviceAllocator* const owner =
      device.has_value() ? Library::Get().FindAllocator(*device) : nullptr;
  if (owner == nullptr) {
    return offcut::Return(absl::InvalidArgumentError(
        absl::StrCat("0x", absl::Hex(address), " was never handed out")));
  }
  const absl::StatusOr<offcut::BlockInfo> block = owner->FindBlock(address);
  if (!block.ok()) return offcut::Return(block.status());
  *out = {.address = reinterpret_cast<void*>(block->address),
          .requested = block->requested,
          .size = block->size,
          .device = *device,
          .stream = block->stream,
          .range_address = reinterpret_cast<void*>(block->range_address),
          .range_size = block->range_bytes};
  return OFFCUT_OK;
}

offcut_status offcut_empty_cache(int device) {
  if (Library::InForkedChild()) return offcut::Return(offcut::ForkedChildError());
  if (device < -1) {
    return offcut::Return(absl::InvalidArgumentError(absl::StrCat("device ", device)));
  }
  if (device >= 0) {
    DeviceAllocator* const allocator = Library::Get().FindAllocator(device);
    if (allocator != nullptr) allocator->EmptyCache();
    return OFFCUT_OK;
  }
  Library::Get().ForEachAllocator([](DeviceAllocator& allocator) { allocator.EmptyCache(); });
  return OFFCUT_OK;
}

void offcut_set_free_memory_callback(int (*callback)(void*), void* context) {
  if (callback == nullptr) {
    Library::Get().SetFreeMemoryCallback(nullptr);
  } else {
    Library::Get().SetFreeMemoryCallback([=] { return callback(context) != 0; });
  }
}

offcut_status offcut_retain_pool(int device, offcut_pool_id pool) {
  return offcut::OnDevice(device, [pool](DeviceAllocator& allocator) {
    return allocator.RetainPool(offcut::FromC(pool));
  });
}

offcut_status offcut_retain_foreign_pool(int device, offcut_pool_id pool,
                                         const offcut_foreign_allocator* allocator) {
  // Shared by both functions; the last of them destroys the context.
  const std::shared_ptr<void> context(allocator->context, [destroy = allocator->destroy](void* c) {
    if (destroy != nullptr) destroy(c);
  });
  const auto foreign = std::make_shared<offcut::ForeignAllocator>();
  foreign->allocate = [context, device, allocate = allocator->allocate](
                          offcut::Bytes bytes) -> absl::StatusOr<offcut::DevicePtr> {
    void* out = nullptr;
    if (allocate(context.get(), bytes, device, &out) != 0) {
      return absl::AbortedError(
          absl::StrCat("the private pool's own allocator failed to give ", bytes, " bytes"));
    }
    return offcut::AddressOf(out);
  };
  foreign->free = [context, device, release = allocator->release](offcut::DevicePtr address,
                                                                  offcut::Bytes bytes) {
    release(context.get(), reinterpret_cast<void*>(address), bytes, device);
  };
  return offcut::OnDevice(device, [&](DeviceAllocator& device_allocator) {
    return device_allocator.RetainPool(offcut::FromC(pool), foreign);
  });
}

offcut_status offcut_release_pool(int device, offcut_pool_id pool) {
  return offcut::OnDevice(device, [pool](DeviceAllocator& allocator) {
    return allocator.ReleasePool(offcut::FromC(pool));
  });
}

offcut_status offcut_pool_use_count(int device, offcut_pool_id pool, unsigned* out) {
  *out = 0;
  offcut_status status;
  if (const DeviceAllocator* const allocator = offcut::InUse(device, &status)) {
    *out = allocator->PoolUseCount(offcut::FromC(pool));
  }
  return status;
}

offcut_status offcut_begin_allocate_to_pool(int device, offcut_pool_id pool, offcut_stream stream,
                                            offcut_stream_filter filter, void (*destroy)(void*),
                                            void* context) {
  // Shared by the copies of the function; the last of them destroys the context.
  const std::shared_ptr<void> owner(context, [destroy](void* owned) {
    if (destroy != nullptr) destroy(owned);
  });
  return offcut::OnDevice(device, [&](DeviceAllocator& allocator) {
    return allocator.BeginAllocateToPool(
        offcut::FromC(pool), stream,
        [filter, owner](offcut::StreamHandle handle) -> absl::StatusOr<bool> {
          const int answer = filter(owner.get(), handle);
          if (answer < 0) {
            return absl::AbortedError(
                "the filter of a route to a private pool could not tell whether a request is its");
          }
          return answer != 0;
        });
  });
}

offcut_status offcut_end_allocate_to_pool(int device, offcut_pool_id pool) {
  return offcut::OnDevice(device, [pool](DeviceAllocator& allocator) {
    return allocator.EndAllocateToPool(offcut::FromC(pool));
  });
}

offcut_status offcut_set_no_split(int device, offcut_pool_id pool) {
  return offcut::OnDevice(device, [pool](DeviceAllocator& allocator) {
    return allocator.SetNoSplit(offcut::FromC(pool));
  });
}

offcut_status offcut_set_use_on_oom(int device, offcut_pool_id pool, int use) {
  return offcut::OnDevice(device, [=](DeviceAllocator& allocator) {
    return allocator.SetUseOnOom(offcut::FromC(pool), use != 0);
  });
}

offcut_status offcut_empty_cache_of_pool(int device, offcut_pool_id pool) {
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) {
    allocator->EmptyCacheOf(offcut::FromC(pool));
  }
  return status;
}

offcut_status offcut_check_pool_live_allocations(int device, offcut_pool_id pool,
                                                 void* const* addresses, size_t count, int* out) {
  *out = 0;
  std::vector<offcut::DevicePtr> expected;
  for (size_t i = 0; i < count; ++i) expected.push_back(offcut::AddressOf(addresses[i]));
  return offcut::OnDevice(device, [&](DeviceAllocator& allocator) {
    const absl::StatusOr<bool> equal = allocator.HasLiveBlocks(offcut::FromC(pool), expected);
    *out = equal.ok() && *equal ? 1 : 0;
    return equal.status();
  });
}

struct offcut_checkpoint {
  offcut::PoolCheckpoint state;
};

offcut_status offcut_take_checkpoint(int device, offcut_pool_id pool, offcut_checkpoint** out) {
  *out = nullptr;
  return offcut::OnDevice(device, [&](DeviceAllocator& allocator) {
    absl::StatusOr<offcut::PoolCheckpoint> state = allocator.TakeCheckpoint(offcut::FromC(pool));
    if (state.ok()) *out = new offcut_checkpoint{*std::move(state)};
    return state.status();
  });
}

void offcut_destroy_checkpoint(offcut_checkpoint* checkpoint) { delete checkpoint; }

offcut_status offcut_restore_checkpoint(int device, const offcut_checkpoint* checkpoint,
                                        void (*freed)(void*, void*),
                                        void (*allocated)(void*, void*), void* context) {
  return offcut::OnDevice(device, [&](DeviceAllocator& allocator) {
    const absl::StatusOr<offcut::RestoredBlocks> blocks =
        allocator.RestoreCheckpoint(checkpoint->state);
    if (!blocks.ok()) return blocks.status();
    for (const offcut::DevicePtr address : blocks->freed) {
      freed(context, reinterpret_cast<void*>(address));
    }
    for (const offcut::DevicePtr address : blocks->allocated) {
      allocated(context, reinterpret_cast<void*>(address));
    }
    return absl::OkStatus();
  });
}

offcut_status offcut_open_to_peer(int device, int peer) {
  return offcut::OnDevice(device,
                          [peer](DeviceAllocator& allocator) { return allocator.OpenTo(peer); });
}

offcut_status offcut_set_memory_fraction(int device, double fraction) {
  if (Library::InForkedChild()) return offcut::Return(offcut::ForkedChildError());
  return offcut::Return(Library::Get().SetMemoryFraction(device, fraction));
}

offcut_status offcut_get_memory_fraction(int device, double* out) {
  offcut_status status;
  offcut::InUse(device, &status);
  *out = status == OFFCUT_OK ? Library::Get().MemoryFraction(device) : 1.0;
  return status;
}

offcut_status offcut_set_size_options(const offcut_size_options* options) {
  if (Library::InForkedChild()) return offcut::Return(offcut::ForkedChildError());
  const double threshold = options->garbage_collection_threshold;
  if (!(threshold >= 0 && threshold < 1)) {
    return offcut::Return(absl::InvalidArgumentError(
        absl::StrCat("a garbage collection threshold of ", threshold, ": from 0 to below 1")));
  }
  if (options->large_segment_bytes < offcut::policy::native::kOwnSegmentMin) {
    return offcut::Return(absl::InvalidArgumentError(
        absl::StrCat("large segments of ", options->large_segment_bytes, " bytes: at least ",
                     offcut::policy::native::kOwnSegmentMin)));
  }
  offcut::SizeOptions wanted(Library::Get().config());
  wanted.split = {.max_split = options->max_split_bytes,
                  .max_non_split_rounding = options->max_non_split_rounding_bytes};
  wanted.large_segment = options->large_segment_bytes;
  wanted.garbage_collection_threshold = threshold;
  for (size_t i = 0; i < wanted.divisions.size(); ++i) {
    const uint64_t divisions = options->roundup_power2_divisions[i];
    if ((divisions & (divisions - 1)) != 0) {
      return offcut::Return(
          absl::InvalidArgumentError(absl::StrCat(divisions, " divisions are no power of two")));
    }
    wanted.divisions[i] = divisions;
  }
  Library::Get().SetSizeOptions(wanted);
  return OFFCUT_OK;
}

offcut_status offcut_get_counters(int device, offcut_counters* out) {
  *out = {};
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) {
    *out = offcut::ToC(allocator->counters());
  }
  return status;
}

offcut_status offcut_get_segment_counters(int device, offcut_segment_counters* out) {
  *out = {};
  offcut_status status;
  DeviceAllocator* const allocator = offcut::InUse(device, &status);
  if (allocator != nullptr) {
    *out = offcut::ToC(allocator->segment_counters());
  } else {
    out->max_split_bytes = Library::Get().config().max_split_size_mb().bytes();
  }
  return status;
}

offcut_status offcut_reset_peaks(int device) {
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) allocator->ResetPeaks();
  return status;
}

offcut_status offcut_reset_totals(int device) {
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) allocator->ResetTotals();
  return status;
}

offcut_status offcut_get_accounting(int device, offcut_accounting* out) {
  *out = {};
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) {
    const offcut::Accounting sum = allocator->Account();
    *out = {.live_bytes = sum.live_bytes,
            .rounding_bytes = sum.rounding_bytes,
            .pending_bytes = sum.pending_bytes,
            .private_pools_free_bytes = sum.private_pools_free_bytes,
            .pinned_bytes = sum.pinned_bytes,
            .idle_bytes = sum.idle_bytes,
            .driver_pool_free_bytes = sum.driver_pool_free_bytes,
            .outside_bytes = sum.outside_bytes,
            .reserved_bytes = sum.reserved_bytes,
            .device_used_bytes = sum.device_used_bytes,
            .foreign_bytes = sum.foreign_bytes};
  }
  return status;
}

offcut_status offcut_largest_free_block(int device, size_t* out) {
  *out = 0;
  offcut_status status;
  if (DeviceAllocator* const allocator = offcut::InUse(device, &status)) {
    *out = allocator->LargestFreeBlock();
  }
  return status;
}

const char* offcut_out_of_memory_report(void) { return offcut::LastReport().c_str(); }

offcut_status offcut_audit(void) {
  if (Library::InForkedChild()) return OFFCUT_OK;
  absl::Status status;
  Library::Get().ForEachAllocator(
      [&](DeviceAllocator& allocator) { status.Update(offcut::Audit(allocator.View())); });
  return offcut::Return(status);
}

namespace {

// A snapshot with what its pointers point to.
struct OwnedSnapshot : offcut_snapshot {
  std::vector<offcut_snapshot_segment> all_segments;
  std::vector<offcut_snapshot_block> all_blocks;
};

offcut_block_state ToC(offcut::BlockState state) {
  switch (state) {
    case offcut::BlockState::kLive:
      return OFFCUT_BLOCK_LIVE;
    case offcut::BlockState::kPending:
      return OFFCUT_BLOCK_PENDING;
    default:
      return OFFCUT_BLOCK_FREE;
  }
}

void Copy(const offcut::Snapshot& from, OwnedSnapshot& to) {
  for (const offcut::Snapshot::Segment& segment : from.segments) {
    to.all_segments.push_back({.address = reinterpret_cast<void*>(segment.address),
                               .size = segment.bytes,
                               .stream = segment.stream,
                               .pool = {segment.pool.first, segment.pool.second},
                               .small = segment.small ? 1 : 0,
                               .in_one_piece = segment.in_one_piece ? 1 : 0,
                               .first_block = segment.first_block,
                               .block_count = segment.block_count});
  }
  for (const offcut::Snapshot::Block& block : from.blocks) {
    to.all_blocks.push_back(
        {.size = block.size, .requested = block.requested, .state = ToC(block.state)});
  }
  to.segments = to.all_segments.data();
  to.segment_count = to.all_segments.size();
  to.blocks = to.all_blocks.data();
  to.block_count = to.all_blocks.size();
}

}  // namespace

offcut_status offcut_take_snapshot(int device, void (*at_moment)(void*), void* context,
                                   offcut_snapshot** out) {
  *out = nullptr;
  offcut_status status;
  const DeviceAllocator* const allocator = offcut::InUse(device, &status);
  if (status != OFFCUT_OK) return status;
  auto* const snapshot = new OwnedSnapshot();
  *out = snapshot;
  const auto call = [&] {
    if (at_moment != nullptr) at_moment(context);
  };
  if (allocator == nullptr) {
    call();
  } else {
    Copy(offcut::SnapshotOf(allocator->View(call)), *snapshot);
  }
  return OFFCUT_OK;
}

void offcut_destroy_snapshot(offcut_snapshot* snapshot) {
  delete static_cast<OwnedSnapshot*>(snapshot);
}

void offcut_set_observer(offcut_observer observer, void* context) {
  Library::Get().SetChangeCallback({observer, context});
}

const char* offcut_recording_directory(void) {
  return Library::Get().recording_directory().c_str();
}

void offcut_mark_step(uint64_t number) {
  if (Library::InForkedChild()) return;
  Library::Get().ForEachAllocator(
      [number](DeviceAllocator& allocator) { allocator.MarkStep(number); });
}

void offcut_flush_recording(void) {
  if (!Library::InForkedChild()) Library::Get().FlushRecording();
}
