// Settings that a program changes while it runs: torch.cuda.memory._set_allocator_settings.

#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <utility>

#include "pytorch_plugin/shim/torch_allocator.h"

namespace offcut::torch_shim {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

// PyTorch has parsed and checked them; what it has not been told is at its default again.
void ApplySettings(const std::string& settings) {
  offcut_size_options options = {};
  options.max_split_bytes = AcceleratorAllocatorConfig::max_split_size();
  options.max_non_split_rounding_bytes = AcceleratorAllocatorConfig::max_non_split_rounding_size();
  options.large_segment_bytes = AcceleratorAllocatorConfig::large_segment_size();
  options.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  const std::vector<size_t>& divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  std::copy_n(divisions.begin(),
              std::min(divisions.size(), std::size(options.roundup_power2_divisions)),
              options.roundup_power2_divisions);
  CheckStatus(offcut_set_size_options(&options), "_set_allocator_settings");
  if (settings.find("expandable_segments") != std::string::npos) {
    TORCH_WARN_ONCE(
        "Offcut: expandable_segments is heeded at the start of the process alone, and stays as it "
        "is.");
  }
}

}  // namespace

void FollowSettings() {
  // PyTorch keeps one hook, by which its CUDA part reads what concerns it; called with the text.
  auto& hook = AcceleratorAllocatorConfig::getConfigParserHook();
  hook = [former = std::move(hook)](const std::string& settings) {
    if (former) former(settings);
    ApplySettings(settings);
  };
}

}  // namespace offcut::torch_shim
