#include "tests/fuzz/pool_book.h"

#include <algorithm>

namespace offcut::fuzz {

PoolBook::Pool* PoolBook::Find(DeviceIndex device, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  const auto it = pools_.find({device, number});
  return it == pools_.end() ? nullptr : &it->second;
}

void PoolBook::Retain(DeviceIndex device, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  Pool& pool = pools_[{device, number}];
  if (pool.name == 0) pool.name = next_name_++;
  ++pool.uses;
}

std::optional<Claims::Pool> PoolBook::Release(DeviceIndex device, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  --pools_.at({device, number}).uses;
  return ForgetIfUnused({device, number});
}

void PoolBook::Begin(const Route& route) {
  Retain(route.device, route.number);
  absl::MutexLock lock(&mutex_);
  ++pools_.at({route.device, route.number}).routes;
  routes_.push_back(route);
}

std::optional<Claims::Pool> PoolBook::End(DeviceIndex device, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  --pools_.at({device, number}).routes;
  routes_.erase(std::find_if(routes_.begin(), routes_.end(), [&](const Route& route) {
    return route.device == device && route.number == number;
  }));
  return ForgetIfUnused({device, number});
}

std::optional<Claims::Pool> PoolBook::ForgetIfUnused(const Key& key) {
  const auto it = pools_.find(key);
  if (it->second.uses > 0 || it->second.routes > 0) return std::nullopt;
  const Claims::Pool name = it->second.name;
  pools_.erase(it);
  return name;
}

uint32_t PoolBook::Lead(DeviceIndex device, const void* thread, StreamHandle stream) const {
  absl::MutexLock lock(&mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device == device && route->Leads(thread, stream)) return route->number;
  }
  return 0;
}

void PoolBook::ForEach(
    absl::FunctionRef<void(DeviceIndex, uint32_t number, const Pool&)> visit) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, pool] : pools_) visit(key.first, key.second, pool);
}

}  // namespace offcut::fuzz
