#include "tests/fuzz/claims.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/status_macros.h"

namespace offcut::fuzz {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("claims: ", parts...));
}

std::string Hex(DevicePtr address) { return absl::StrFormat("0x%x", address); }

}  // namespace

absl::StatusOr<std::vector<Claims::Piece>> Claims::PiecesOf(DevicePtr address, Bytes bytes) const {
  std::vector<Piece> pieces;
  for (DevicePtr at = address; at < address + bytes;) {
    const std::optional<sim::PointerInfo> info = memory_.LookUp(at);
    if (!info.has_value() || info->kind == sim::PointerKind::kReserved) {
      return Wrong("no memory stands behind ", Hex(at), " of the block of ", bytes, " bytes at ",
                   Hex(address));
    }
    const Bytes piece = std::min(info->base + info->bytes, address + bytes) - at;
    pieces.push_back({.point = {info->buffer_id, at - info->base},
                      .bytes = piece,
                      .buffer = {info->base, info->bytes}});
    at += piece;
  }
  return pieces;
}

absl::StatusOr<Claims::Block*> Claims::Find(Owner owner) {
  const auto it = blocks_.find(owner);
  if (it == blocks_.end()) return Wrong("block ", owner, " claims nothing");
  return &it->second;
}

// A live block's memory stays where it is: its data would be lost.
absl::Status Claims::CheckUnmoved(Owner owner, const Block& block) const {
  OFFCUT_ASSIGN_OR_RETURN(const std::vector<Piece> now, PiecesOf(block.address, block.bytes));
  if (now == block.pieces) return absl::OkStatus();
  return Wrong("other memory than at its allocation stands behind block ", owner, " at ",
               Hex(block.address));
}

void Claims::Add(Uses& uses, StreamId stream, uint64_t done_ns) {
  for (auto& [known, until_ns] : uses) {
    if (known != stream) continue;
    until_ns = std::max(until_ns, done_ns);
    return;
  }
  uses.emplace_back(stream, done_ns);
}

template <typename Visit>
absl::Status Claims::CarveOut(const Piece& piece, Visit visit) {
  const uint64_t buffer = piece.point.buffer;
  const Bytes begin = piece.point.offset, end = begin + piece.bytes;
  auto it = spans_.lower_bound(piece.point);
  if (it != spans_.begin()) {
    const auto before = std::prev(it);
    if (before->first.buffer == buffer && before->second.end > begin) it = before;
  }
  while (it != spans_.end() && it->first.buffer == buffer && it->first.offset < end) {
    OFFCUT_RETURN_IF_ERROR(visit(it->first, it->second));
    const Bytes span_begin = it->first.offset;
    Span span = std::move(it->second);
    it = spans_.erase(it);
    if (span_begin < begin) {
      Span front = span;
      front.end = begin;
      it = std::next(spans_.emplace(Point{buffer, span_begin}, std::move(front)).first);
    }
    if (span.end > end) {
      it = std::next(spans_.emplace(Point{buffer, end}, std::move(span)).first);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Claims::Pool> Claims::Settle(const std::vector<Piece>& pieces, Owner owner,
                                            Pool pool) {
  Pool of = pool;
  for (const Piece& piece : pieces) {
    const auto [it, is_new] = tenants_.try_emplace(piece.point.buffer);
    Tenant& tenant = it->second;
    if (is_new) {
      tenant = {.pool = pool, .place = piece.buffer, .in_use = pool != 0};
    } else if (tenant.pool != pool) {
      if (pool != 0 || !lenders_.contains(tenant.pool)) {
        return Wrong("block ", owner, " for pool ", pool, " got memory of pool ", tenant.pool,
                     " at ", Hex(tenant.place.address));
      }
      of = tenant.pool;
    }
  }
  return of;
}

void Claims::SetLends(Pool pool, bool lends) {
  absl::MutexLock lock(&mutex_);
  if (lends) {
    lenders_.insert(pool);
  } else {
    lenders_.erase(pool);
  }
}

void Claims::ReleasePool(Pool pool) {
  absl::MutexLock lock(&mutex_);
  lenders_.erase(pool);
  for (auto& [buffer, tenant] : tenants_) {
    if (tenant.pool == pool) tenant.in_use = false;
  }
}

std::vector<Claims::Place> Claims::MemoryOf(Pool pool) const {
  absl::MutexLock lock(&mutex_);
  std::vector<Place> places;
  for (const auto& [buffer, tenant] : tenants_) {
    if (tenant.pool == pool) places.push_back(tenant.place);
  }
  return places;
}

absl::Status Claims::CheckPools() const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [buffer, tenant] : tenants_) {
    if (tenant.in_use && !IsThere(buffer, tenant)) {
      return Wrong("memory of private pool ", tenant.pool, ", in use, at ",
                   Hex(tenant.place.address), " is gone from there");
    }
  }
  return absl::OkStatus();
}

bool Claims::IsThere(uint64_t buffer, const Tenant& tenant) const {
  const std::optional<sim::PointerInfo> info = memory_.LookUp(tenant.place.address);
  return info.has_value() && info->kind != sim::PointerKind::kReserved && info->buffer_id == buffer;
}

absl::StatusOr<Claims::Pool> Claims::Claim(Owner owner, DevicePtr address, Bytes bytes,
                                           StreamId stream, Pool pool) {
  absl::MutexLock lock(&mutex_);
  if (owner == 0 || blocks_.contains(owner)) return Wrong("block ", owner, " has a claim");
  OFFCUT_ASSIGN_OR_RETURN(std::vector<Piece> pieces, PiecesOf(address, bytes));
  OFFCUT_ASSIGN_OR_RETURN(const Pool of, Settle(pieces, owner, pool));
  const uint64_t now_ns = clock_.NowNs();
  Uses inherited;
  const auto check = [&](const Point& point, const Span& span) -> absl::Status {
    if (span.owner != 0) {
      return Wrong("block ", owner, " at ", Hex(address), " got memory of block ", span.owner,
                   ", which is not freed (byte ", point.offset, " of buffer ", point.buffer, ")");
    }
    for (const auto& [user, until_ns] : span.left) {
      if (until_ns <= now_ns) continue;
      if (user != stream) {
        return Wrong("block ", owner, " at ", Hex(address), " for stream id ", stream,
                     " got memory that work on stream id ", user, " uses for ", until_ns - now_ns,
                     " ns more (byte ", point.offset, " of buffer ", point.buffer, ")");
      }
      Add(inherited, user, until_ns);
    }
    return absl::OkStatus();
  };
  for (const Piece& piece : pieces) {
    OFFCUT_RETURN_IF_ERROR(CarveOut(piece, check));
    spans_[piece.point] = {.end = piece.point.offset + piece.bytes, .owner = owner};
  }
  blocks_[owner] = {.address = address,
                    .bytes = bytes,
                    .stream = stream,
                    .pieces = std::move(pieces),
                    .uses = std::move(inherited)};
  return of;
}

absl::Status Claims::Use(Owner owner, StreamId stream, uint64_t done_ns) {
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Block * block, Find(owner));
  OFFCUT_RETURN_IF_ERROR(CheckUnmoved(owner, *block));
  Add(block->uses, stream, done_ns);
  return absl::OkStatus();
}

absl::Status Claims::Join(Owner owner, uint64_t own_ns) {
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Block * block, Find(owner));
  for (const auto& [stream, until_ns] : block->uses) {
    if (until_ns > own_ns) {
      return Wrong("the harness joined block ", owner, " with work that it did not wait for");
    }
  }
  block->uses = {{block->stream, own_ns}};
  return absl::OkStatus();
}

absl::Status Claims::Free(Owner owner) {
  absl::MutexLock lock(&mutex_);
  OFFCUT_ASSIGN_OR_RETURN(Block * block, Find(owner));
  OFFCUT_RETURN_IF_ERROR(CheckUnmoved(owner, *block));
  const uint64_t now_ns = clock_.NowNs();
  Uses left;
  for (const auto& [stream, until_ns] : block->uses) {
    if (until_ns > now_ns) left.emplace_back(stream, until_ns);
  }
  for (const Piece& piece : block->pieces) {
    const auto it = spans_.find(piece.point);
    if (left.empty()) {
      spans_.erase(it);
    } else {
      it->second.owner = 0;
      it->second.left = left;
    }
  }
  blocks_.erase(owner);
  return absl::OkStatus();
}

void Claims::Prune() {
  absl::MutexLock lock(&mutex_);
  const uint64_t now_ns = clock_.NowNs();
  const auto is_done = [&](const auto& use) { return use.second <= now_ns; };
  for (auto it = spans_.begin(); it != spans_.end();) {
    const Span& span = it->second;
    const bool done = span.owner == 0 && std::all_of(span.left.begin(), span.left.end(), is_done);
    it = done ? spans_.erase(it) : std::next(it);
  }
  // Buffers are never named again.
  absl::erase_if(tenants_, [&](const auto& entry) {
    return !entry.second.in_use && !IsThere(entry.first, entry.second);
  });
}

}  // namespace offcut::fuzz
