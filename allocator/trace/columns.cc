#include "allocator/trace/columns.h"

#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "allocator/trace/varint.h"

namespace offcut {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

enum class Refers { kNot, kPlace, kWholeBlock };

// What an event of `kind` can take from the allocation of the block that it is about. Part of the
// format: a kind that is added later refers to nothing.
Refers RefersToAllocation(EventKind kind) {
  switch (kind) {
    case EventKind::kBlockFreed:
    case EventKind::kBlockFreePended:
    case EventKind::kPendingFreeFinished:
      return Refers::kWholeBlock;
    case EventKind::kStreamUseRecorded:
      return Refers::kPlace;
    default:
      return Refers::kNot;
  }
}

// What an event is coded against: the events before it in the same chunk.
struct History {
  uint64_t time_ns = 0;
  // Of the previous event of each kind.
  std::array<uint64_t, 256> address_units{};
  std::array<uint32_t, 256> extra{};
  // The BlockAllocated events, in order.
  std::vector<Event> allocations;
};

class Writing {
 public:
  static constexpr bool kReads = false;

  Writing(std::array<uint8_t*, kColumnCount> ends,
          absl::flat_hash_map<DevicePtr, uint32_t>* newest_at)
      : ends_(ends), newest_at_(newest_at) {}

  void Byte(Column column, uint8_t& value) { *ends_[column]++ = value; }
  void Varint(Column column, uint64_t& value) { ends_[column] = WriteVarint(ends_[column], value); }

  void NoteAllocation(const Event& event, size_t ordinal) {
    (*newest_at_)[event.address] = static_cast<uint32_t>(ordinal);
  }
  // How many allocations ago the one that `event` refers to was: 1 is the newest. 0: none fits.
  uint64_t Distance(const Event& event, Refers refers, const History& history) const {
    const auto found = newest_at_->find(event.address);
    if (found == newest_at_->end()) return 0;
    const Event& block = history.allocations[found->second];
    if (block.pool != event.pool) return 0;
    if (refers == Refers::kWholeBlock &&
        (block.bytes != event.bytes || block.extra != event.extra)) {
      return 0;
    }
    return history.allocations.size() - found->second;
  }

  uint8_t* end(Column column) const { return ends_[column]; }

 private:
  std::array<uint8_t*, kColumnCount> ends_;
  absl::flat_hash_map<DevicePtr, uint32_t>* newest_at_;
};

class Reading {
 public:
  static constexpr bool kReads = true;

  explicit Reading(std::array<absl::Span<const uint8_t>, kColumnCount> columns) {
    for (size_t i = 0; i < kColumnCount; ++i) {
      next_[i] = columns[i].data();
      ends_[i] = columns[i].data() + columns[i].size();
    }
  }

  void Byte(Column column, uint8_t& value) {
    if (next_[column] == ends_[column]) {
      Fail(column);
    } else {
      value = *next_[column]++;
    }
  }
  void Varint(Column column, uint64_t& value) {
    const uint8_t* const after = ReadVarint(next_[column], ends_[column], &value);
    if (after == nullptr) {
      Fail(column);
    } else {
      next_[column] = after;
    }
  }

  void NoteAllocation(const Event&, size_t) {}
  uint64_t Distance(const Event&, Refers, const History&) const { return 0; }

  void Fail(Column column) { failed_ = column; }
  Column failed() const { return failed_; }  // kColumnCount: nothing did
  bool at_end(Column column) const { return next_[column] == ends_[column]; }

 private:
  std::array<const uint8_t*, kColumnCount> next_;
  std::array<const uint8_t*, kColumnCount> ends_;
  Column failed_ = kColumnCount;
};

// Time as the difference to the previous event's. The low eight bits, which nothing can compress,
// have a column of their own: that saves a tenth of a whole trace.
template <typename Coder>
void CodeTime(Coder& coder, uint64_t& previous_ns, uint64_t& time_ns) {
  const uint64_t coded = ZigZag(time_ns - previous_ns);
  uint8_t low = static_cast<uint8_t>(coded);
  uint64_t high = coded >> 8;
  coder.Byte(kTimeLowColumn, low);
  coder.Varint(kTimeColumn, high);
  if constexpr (Coder::kReads) time_ns = previous_ns + UnZigZag(high << 8 | low);
  previous_ns = time_ns;
}

// `extra` as the difference to what is expected.
template <typename Coder>
void CodeExtra(Coder& coder, uint32_t expected, uint32_t& extra) {
  uint64_t coded = ZigZag(static_cast<uint64_t>(extra) - expected);
  coder.Varint(kExtraColumn, coded);
  if constexpr (Coder::kReads) extra = static_cast<uint32_t>(expected + UnZigZag(coded));
}

// An address in block units against the previous one, with a second number for the odd address that
// is no multiple.
template <typename Coder>
void CodeAddress(Coder& coder, uint64_t& previous_units, uint64_t& address) {
  const uint64_t units = address / kBlockAlignment;
  uint64_t remainder = address % kBlockAlignment;
  uint64_t coded = ZigZag(units - previous_units) << 1 | (remainder != 0);
  coder.Varint(kAddressColumn, coded);
  if (coded & 1) coder.Varint(kAddressColumn, remainder);
  if constexpr (Coder::kReads) {
    address =
        (previous_units + UnZigZag(coded >> 1)) * kBlockAlignment + ((coded & 1) ? remainder : 0);
  }
  previous_units = address / kBlockAlignment;
}

// The definition. `Coder` is Writing or Reading: the former takes each value from `event`, the
// latter puts it there.
template <typename Coder>
void CodeEvent(Coder& coder, History& history, Event& event) {
  uint8_t kind = static_cast<uint8_t>(event.kind);
  coder.Byte(kKindColumn, kind);
  event.kind = static_cast<EventKind>(kind);

  CodeTime(coder, history.time_ns, event.time_ns);

  Refers refers = RefersToAllocation(event.kind);
  if (refers != Refers::kNot) {
    uint64_t distance = coder.Distance(event, refers, history);
    coder.Varint(kReferenceColumn, distance);
    if (distance == 0) {
      refers = Refers::kNot;
    } else if constexpr (Coder::kReads) {
      if (distance > history.allocations.size()) return coder.Fail(kReferenceColumn);
      const Event& block = history.allocations[history.allocations.size() - distance];
      event.address = block.address;
      event.pool = block.pool;
      event.bytes = block.bytes;
      event.extra = block.extra;
    }
  }
  if (refers == Refers::kWholeBlock) return;

  if (refers == Refers::kNot) {
    uint64_t pool = static_cast<uint16_t>(event.pool + 1);  // kNoPool is 0
    coder.Varint(kPoolColumn, pool);
    event.pool = static_cast<uint16_t>(pool - 1);
    CodeAddress(coder, history.address_units[kind], event.address);
  }
  coder.Varint(kBytesColumn, event.bytes);
  const bool is_allocation = event.kind == EventKind::kBlockAllocated;
  const uint64_t whole_units = event.bytes / kBlockAlignment + (event.bytes % kBlockAlignment != 0);
  CodeExtra(coder, is_allocation ? static_cast<uint32_t>(whole_units) : history.extra[kind],
            event.extra);
  history.extra[kind] = event.extra;

  if (is_allocation) {
    coder.NoteAllocation(event, history.allocations.size());
    history.allocations.push_back(event);
  }
}

constexpr const char* kColumnNames[kColumnCount] = {"kind", "time_low", "time",  "reference",
                                                    "pool", "address",  "bytes", "extra"};

// The most bytes per event in each column.
constexpr size_t kColumnEventBytes[kColumnCount] = {1, 1, 9, 5, 3, 11, 10, 5};
static_assert(std::accumulate(std::begin(kColumnEventBytes), std::end(kColumnEventBytes),
                              size_t{0}) <= kMaxEventColumnBytes);

}  // namespace

void ColumnEncoder::Encode(absl::Span<const Event> events) {
  std::array<uint8_t*, kColumnCount> begins;
  for (size_t i = 0; i < kColumnCount; ++i) {
    const size_t most = events.size() * kColumnEventBytes[i];
    if (buffers_[i].size() < most) buffers_[i].resize(most);
    begins[i] = buffers_[i].data();
  }
  newest_at_.clear();
  Writing writing(begins, &newest_at_);
  History history;
  for (Event event : events) CodeEvent(writing, history, event);
  for (size_t i = 0; i < kColumnCount; ++i) {
    columns_[i] = absl::MakeConstSpan(begins[i], writing.end(static_cast<Column>(i)) - begins[i]);
  }
}

absl::Status DecodeColumns(absl::Span<const uint8_t> bytes, size_t count, uint8_t device,
                           std::vector<Event>* events) {
  if (bytes.size() < kColumnLengthsBytes) {
    return absl::DataLossError(
        absl::StrCat("the columns are ", bytes.size(), " bytes, too few for their own lengths"));
  }
  std::array<absl::Span<const uint8_t>, kColumnCount> columns;
  absl::Span<const uint8_t> rest = bytes.subspan(kColumnLengthsBytes);
  for (size_t i = 0; i < kColumnCount; ++i) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data() + i * sizeof(length), sizeof(length));
    if (length > rest.size()) {
      return absl::DataLossError(absl::StrCat("column ", kColumnNames[i], " claims ", length,
                                              " bytes where ", rest.size(), " are left"));
    }
    columns[i] = rest.first(length);
    rest.remove_prefix(length);
  }
  if (!rest.empty()) {
    return absl::DataLossError(absl::StrCat(rest.size(), " bytes follow the last column"));
  }
  Reading reading(columns);
  History history;
  events->assign(count, Event{.device = device});
  for (Event& event : *events) {
    CodeEvent(reading, history, event);
    if (reading.failed() != kColumnCount) {
      return absl::DataLossError(absl::StrCat("event ", &event - events->data(), " of ", count,
                                              " is not in column ",
                                              kColumnNames[reading.failed()]));
    }
  }
  for (size_t i = 0; i < kColumnCount; ++i) {
    if (!reading.at_end(static_cast<Column>(i))) {
      return absl::DataLossError(
          absl::StrCat("column ", kColumnNames[i], " goes on after the last event"));
    }
  }
  return absl::OkStatus();
}

}  // namespace offcut
