#include "allocator/trace/metadata.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "allocator/base/status_macros.h"
#include "allocator/events/event.h"
#include "allocator/trace/checksum.h"

namespace offcut {
namespace {

using Json = nlohmann::json;

// Printing recurses; what we write is a few levels deep.
constexpr int kMaxJsonDepth = 64;

// Never throws. Discarded if `text` is no JSON, or too deep.
Json Parse(absl::string_view text) {
  bool too_deep = false;
  Json parsed = Json::parse(
      text.begin(), text.end(),
      [&too_deep](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxJsonDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  return too_deep ? Json(Json::value_t::discarded) : parsed;
}

std::string Print(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json Schema() {
  Json events = Json::array();
  for (const EventDescription& event : EventDescriptions()) {
    events.push_back({{"kind", static_cast<int>(event.kind)},
                      {"name", std::string(event.name)},
                      {"address", std::string(event.address)},
                      {"bytes", std::string(event.bytes)},
                      {"extra", std::string(event.extra)},
                      {"sentence", std::string(event.sentence)}});
  }
  return events;
}

// Takes members out of an object and remembers what was wrong.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  std::string String(const char* name) {
    const Json* member = Find(name);
    if (member != nullptr && member->is_string()) return member->get<std::string>();
    Complain(name, "a string");
    return "";
  }
  // An integer from `lowest` to `highest`.
  int64_t Integer(const char* name, int64_t lowest, int64_t highest) {
    const Json* member = Find(name);
    if (member != nullptr && member->is_number_integer()) {
      const bool fits = !member->is_number_unsigned() ||
                        member->get<uint64_t>() <= static_cast<uint64_t>(highest);
      const int64_t value = member->get<int64_t>();
      if (fits && value >= lowest && value <= highest) return value;
    }
    Complain(name, absl::StrCat("an integer from ", lowest, " to ", highest));
    return 0;
  }
  uint64_t Unsigned(const char* name) {
    const Json* member = Find(name);
    if (member != nullptr && member->is_number_unsigned()) return member->get<uint64_t>();
    Complain(name, "an integer from 0 to 2^64-1");
    return 0;
  }

  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* name) {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  void Complain(const char* name, absl::string_view right) {
    if (!status_.ok()) return;
    const Json* member = Find(name);
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "the metadata's '", name, "' is ",
        member == nullptr ? "missing" : Print(*member).substr(0, 40), ", not ", right));
  }

  const Json& object_;
  absl::Status status_;
};

}  // namespace

std::string MetadataToJson(const TraceMetadata& metadata) {
  Json options = Parse(metadata.options_json);
  if (options.is_discarded()) options = metadata.options_json;
  const Json json = {
      {"format", "offcut trace"},
      {"format_version", metadata.format_version},
      {"offcut_version", metadata.offcut_version},
      {"host", metadata.host},
      {"pid", metadata.pid},
      {"command_line", metadata.command_line},
      {"epoch_unix_ns", metadata.epoch_unix_ns},
      {"device", metadata.device},
      {"device_name", metadata.device_name},
      {"device_total_bytes", metadata.device_total_bytes},
      {"options", std::move(options)},
      {"event_bytes", sizeof(Event)},
      {"block_unit_bytes", kBlockAlignment},
      {"events", Schema()},
  };
  return Print(json);
}

absl::StatusOr<TraceMetadata> MetadataFromJson(absl::string_view text) {
  const Json json = Parse(text);
  if (!json.is_object()) return absl::InvalidArgumentError("the metadata is no JSON object");
  Members members(json);
  TraceMetadata metadata;
  metadata.format_version = static_cast<uint32_t>(
      members.Integer("format_version", 1, std::numeric_limits<uint32_t>::max()));
  metadata.offcut_version = members.String("offcut_version");
  metadata.host = members.String("host");
  metadata.pid = members.Integer("pid", std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max());
  metadata.command_line = members.String("command_line");
  metadata.epoch_unix_ns = members.Unsigned("epoch_unix_ns");
  metadata.device = static_cast<DeviceIndex>(members.Integer("device", 0, 255));
  metadata.device_name = members.String("device_name");
  metadata.device_total_bytes = members.Unsigned("device_total_bytes");
  OFFCUT_RETURN_IF_ERROR(members.status());
  if (json.contains("options")) metadata.options_json = Print(json["options"]);
  return metadata;
}

uint64_t FileHeaderChecksum(const FileHeader& header, absl::string_view json) {
  return Checksum(BytesBeforeChecksum(header),
                  absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(json.data()), json.size()));
}

std::string FileHeaderBytes(absl::string_view json) {
  FileHeader header;
  header.metadata_bytes = static_cast<uint32_t>(json.size());
  header.checksum = FileHeaderChecksum(header, json);
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)),
                      json);
}

}  // namespace offcut
