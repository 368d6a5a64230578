#include "tests/fuzz/program.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace offcut::fuzz {
namespace {

// Collects ".name = value" for the fields that differ from their default.
class Fields {
 public:
  template <typename T>
  void Add(absl::string_view name, T value, T default_value) {
    if (value == default_value) return;
    // C++ takes a number for unsigned only if it is told so.
    const bool beyond_signed = static_cast<uint64_t>(value) >> 63 != 0 && value > 0;
    texts_.push_back(absl::StrCat(".", name, " = ", value, beyond_signed ? "u" : ""));
  }
  void AddText(absl::string_view name, absl::string_view text) {
    texts_.push_back(absl::StrCat(".", name, " = ", text));
  }
  std::string Braced() const { return absl::StrCat("{", absl::StrJoin(texts_, ", "), "}"); }

 private:
  std::vector<std::string> texts_;
};

std::string ToCxx(const Setup& setup) {
  const Setup kDefault;
  Fields fields;
  if (!setup.conf.empty()) {
    fields.AddText("conf", absl::StrCat("\"", absl::CEscape(setup.conf), "\""));
  }
  fields.Add("devices", setup.devices, kDefault.devices);
  fields.Add("streams", setup.streams, kDefault.streams);
  if (setup.per_thread) fields.AddText("per_thread", "true");
  fields.Add("memory_bytes", setup.memory_bytes, kDefault.memory_bytes);
  fields.Add("lag_ns", setup.lag_ns, kDefault.lag_ns);
  fields.Add("limit", setup.limit, kDefault.limit);
  fields.Add("check_every", setup.check_every, kDefault.check_every);
  return fields.Braced();
}

}  // namespace

absl::string_view OpName(OpKind kind) {
  static constexpr absl::string_view kNames[] = {
#define FUZZ_OP(name, sentence) #name,
#include "tests/fuzz/ops.def"
#undef FUZZ_OP
  };
  return kNames[static_cast<size_t>(kind)];
}

std::string ToCxx(const Op& op) {
  const Op kDefault;
  Fields fields;
  fields.AddText("kind", absl::StrCat("k", OpName(op.kind)));
  fields.Add("device", op.device, kDefault.device);
  fields.Add("stream", op.stream, kDefault.stream);
  fields.Add("pool", op.pool, kDefault.pool);
  fields.Add("block", op.block, kDefault.block);
  fields.Add("bytes", op.bytes, kDefault.bytes);
  fields.Add("ns", op.ns, kDefault.ns);
  fields.Add("value", op.value, kDefault.value);
  fields.Add("call", op.call, kDefault.call);
  fields.Add("times", op.times, kDefault.times);
  fields.Add("result", op.result, kDefault.result);
  return fields.Braced();
}

std::string ToCxxTest(const Program& program, absl::string_view name, absl::string_view comment) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(comment, '\n', absl::SkipWhitespace())) {
    absl::StrAppend(&text, "// ", line, "\n");
  }
  absl::StrAppend(&text, "TEST(FuzzRegression, ", name,
                  ") {\n  using enum OpKind;\n  Play({.setup = ", ToCxx(program.setup),
                  ",\n        .ops = {\n");
  for (const Op& op : program.ops) absl::StrAppend(&text, "            ", ToCxx(op), ",\n");
  absl::StrAppend(&text, "        }});\n}\n");
  return text;
}

}  // namespace offcut::fuzz
