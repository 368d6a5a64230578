#include "allocator/trace/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/base/status_macros.h"
#include "allocator/trace/checksum.h"
#include "allocator/trace/file.h"

namespace offcut {
namespace {

// Allocates the blocks of a new file and maps it.
absl::StatusOr<void*> MapAllocated(const FileDescriptor& file, const std::string& path,
                                   Bytes bytes) {
  int error;
  do {
    error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot allocate ", bytes, " bytes for ", path));
  }
  // Populated: the first pass of the ring should not fault either.
  void* const mapping =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (mapping == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  return mapping;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ring>> Ring::Create(const std::string& path,
                                                   absl::string_view file_header,
                                                   uint64_t capacity_events) {
  OFFCUT_CHECK(std::has_single_bit(capacity_events) && capacity_events <= kMaxRingEvents,
               "capacity of a ring");
  RingHeader header;
  header.capacity_events = capacity_events;
  header.slots_offset = RoundUp(kRingFileHeaderOffset + file_header.size(), kRingPageBytes);
  header.file_header_bytes = file_header.size();
  header.checksum = Checksum(BytesBeforeChecksum(header));
  const Bytes bytes = header.slots_offset + capacity_events * sizeof(Event);

  const FileSizeSignalBlocker no_signal;
  OFFCUT_ASSIGN_OR_RETURN(const FileDescriptor file, CreateFile(path));
  absl::StatusOr<void*> mapping = MapAllocated(file, path, bytes);
  if (!mapping.ok()) {
    unlink(path.c_str());
    return mapping.status();
  }
  std::memcpy(static_cast<char*>(*mapping) + kRingFileHeaderOffset, file_header.data(),
              file_header.size());
  std::memcpy(*mapping, &header, sizeof(header));
  return std::unique_ptr<Ring>(
      new Ring(path, *mapping, bytes, header.slots_offset, capacity_events));
}

Ring::Ring(std::string path, void* mapping, Bytes mapping_bytes, Bytes slots_offset,
           uint64_t capacity_events)
    : header_(static_cast<RingHeader*>(mapping)),
      slots_(reinterpret_cast<Event*>(static_cast<char*>(mapping) + slots_offset)),
      mask_(capacity_events - 1),
      path_(std::move(path)),
      mapping_bytes_(mapping_bytes),
      limit_(capacity_events) {}

Ring::~Ring() { munmap(header_, mapping_bytes_); }

void Ring::Remove() { unlink(path_.c_str()); }

void Ring::PushSlow(const Event& event) {
  if (detached_) return;
  const uint64_t limit = Word(header_->tail).load(std::memory_order_acquire) + capacity_events();
  const uint64_t needed = untold_drops_ == 0 ? 1 : 2;
  if (limit - head_ < needed) {
    // `limit_` stays equal to `head_`: every push comes here until the drops are told of.
    ++untold_drops_;
    last_drop_ = event;
    Word(header_->dropped_events).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (untold_drops_ != 0) StoreDropRecord();
  Store(event);
  limit_ = limit;
}

void Ring::StoreDropRecord() {
  Store(Event{.time_ns = last_drop_.time_ns,
              .bytes = std::exchange(untold_drops_, 0),
              .kind = EventKind::kEventsDropped,
              .device = last_drop_.device});
}

bool Ring::PushDropRecord() {
  if (untold_drops_ == 0) return true;
  if (Word(header_->tail).load(std::memory_order_acquire) + capacity_events() == head_)
    return false;
  StoreDropRecord();
  return true;
}

void Ring::Copy(uint64_t first, absl::Span<Event> events) const {
  const uint64_t slot = first & mask_;
  const uint64_t until_end = std::min<uint64_t>(events.size(), capacity_events() - slot);
  std::copy_n(slots_ + slot, until_end, events.begin());
  std::copy_n(slots_, events.size() - until_end, events.begin() + until_end);
}

}  // namespace offcut
