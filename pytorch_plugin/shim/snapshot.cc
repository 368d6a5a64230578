// Snapshots: segments and blocks as they are, with the history of how they came to be.

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

#include <map>
#include <tuple>

#include "pytorch_plugin/shim/history.h"
#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

constexpr MempoolId_t kAllPools = {0, 0};

struct SnapshotOwner {
  SnapshotOwner() = default;
  SnapshotOwner(const SnapshotOwner&) = delete;
  SnapshotOwner& operator=(const SnapshotOwner&) = delete;
  ~SnapshotOwner() { offcut_destroy_snapshot(state); }
  offcut_snapshot* state = nullptr;
};

Context Find(const std::unordered_map<uint64_t, Context>& contexts, uint64_t address) {
  const auto found = contexts.find(address);
  return found == contexts.end() ? nullptr : found->second;
}

cca::SegmentInfo ToInfo(const offcut_snapshot_segment& segment, const offcut_snapshot_block* blocks,
                        DeviceIndex device, const History::Device& history) {
  cca::SegmentInfo info;
  info.device = device;
  info.address = reinterpret_cast<size_t>(segment.address);
  info.stream = segment.stream;
  info.is_large = segment.small == 0;
  info.is_expandable = segment.in_one_piece == 0;
  info.owner_private_pool_id = {segment.pool.first, segment.pool.second};
  info.context_when_allocated = Find(history.segments, info.address);
  info.blocks.reserve(segment.block_count);
  for (size_t i = 0; i < segment.block_count; ++i) {
    const offcut_snapshot_block& from = blocks[segment.first_block + i];
    cca::BlockInfo& block = info.blocks.emplace_back();
    block.size = from.size;
    block.requested_size = from.requested;
    block.allocated = from.state == OFFCUT_BLOCK_LIVE;
    block.active = from.state != OFFCUT_BLOCK_FREE;
    if (block.active) {
      block.context_when_allocated = Find(history.blocks, info.address + info.total_size);
      info.active_size += block.size;
      info.requested_size += block.requested_size;
    }
    if (block.allocated) info.allocated_size += block.size;
    info.total_size += block.size;
  }
  return info;
}

cca::AllocatorConfigInfo ConfigInfo() {
  cca::AllocatorConfigInfo info;
  info.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  info.max_split_size = AcceleratorAllocatorConfig::max_split_size();
  info.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
  info.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
  info.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
  info.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
  info.graph_capture_record_stream_reuse = CUDAAllocatorConfig::graph_capture_record_stream_reuse();
  info.last_allocator_settings = AcceleratorAllocatorConfig::last_allocator_settings();
  info.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  return info;
}

}  // namespace

cca::SnapshotInfo TorchAllocator::snapshot(MempoolId_t pool, bool include_traces) {
  History& history = History::Get();
  const auto to_us = History::ToUnixMicroseconds();
  cca::SnapshotInfo info;
  info.external_annotations = history.Annotations();
  for (auto& annotation : info.external_annotations) {
    annotation.time_.t_ = to_us(annotation.time_.approx_t_);
  }
  for (int device = 0; device < device_count_.load(); ++device) {
    History::Device kept;
    const auto copy = [&] { kept = history.CopyOf(device, include_traces); };
    SnapshotOwner snapshot;
    CheckStatus(offcut_take_snapshot(
                    device, [](void* moment) { (*static_cast<decltype(copy)*>(moment))(); },
                    const_cast<void*>(static_cast<const void*>(&copy)), &snapshot.state),
                "snapshot");
    size_t active_bytes = 0;
    for (size_t i = 0; i < snapshot.state->segment_count; ++i) {
      const offcut_snapshot_segment& segment = snapshot.state->segments[i];
      if (pool != kAllPools && pool != MempoolId_t{segment.pool.first, segment.pool.second}) {
        continue;
      }
      info.segments.push_back(
          ToInfo(segment, snapshot.state->blocks, static_cast<DeviceIndex>(device), kept));
      active_bytes += info.segments.back().active_size;
    }
    if (include_traces) {
      auto& trace = info.device_traces.emplace_back(kept.entries.begin(), kept.entries.end());
      for (auto& entry : trace) entry.time_.t_ = to_us(entry.time_.approx_t_);
    }
    history.AddSnapshotEntry(device, pool, active_bytes);
  }
  info.config_metadata = ConfigInfo();
  return info;
}

std::vector<cca::StreamSegmentSize> TorchAllocator::getExpandableSegmentSizes(DeviceIndex device) {
  SnapshotOwner snapshot;
  CheckStatus(offcut_take_snapshot(device, nullptr, nullptr, &snapshot.state),
              "getExpandableSegmentSizes");
  std::map<std::pair<offcut_stream, bool>, size_t> sizes;
  for (size_t i = 0; i < snapshot.state->segment_count; ++i) {
    const offcut_snapshot_segment& segment = snapshot.state->segments[i];
    if (segment.in_one_piece == 0) sizes[{segment.stream, segment.small != 0}] += segment.size;
  }
  std::vector<cca::StreamSegmentSize> list;
  for (const auto& [of, bytes] : sizes) list.emplace_back(of.first, of.second, bytes);
  return list;
}

}  // namespace offcut::torch_shim
