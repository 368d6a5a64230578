#include "tests/fuzz/minimise.h"

#include <algorithm>
#include <map>
#include <utility>

namespace offcut::fuzz {
namespace {

class Minimiser {
 public:
  Minimiser(Program program, absl::FunctionRef<bool(const Program&)> fails, size_t trials)
      : best_(std::move(program)), fails_(fails), trials_(trials) {}

  Program Run() {
    SimplifySetup();
    Program before;
    do {
      before = best_;
      LeaveOutOps();
      SimplifyOps();
      SimplifySetup();
    } while (best_ != before && trials_ > 0);
    RenumberBlocks();
    return best_;
  }

 private:
  // Keeps the candidate if it fails, too.
  bool Try(const Program& candidate) {
    if (trials_ == 0 || candidate == best_) return false;
    --trials_;
    if (!fails_(candidate)) return false;
    best_ = candidate;
    return true;
  }

  void LeaveOutOps() {
    for (size_t chunk = std::max<size_t>(best_.ops.size() / 2, 1); chunk > 0; chunk /= 2) {
      // From the end: what comes last depends on what was before.
      for (size_t end = best_.ops.size(); end > 0 && trials_ > 0;) {
        const size_t begin = end > chunk ? end - chunk : 0;
        Program candidate = best_;
        candidate.ops.erase(candidate.ops.begin() + static_cast<ptrdiff_t>(begin),
                            candidate.ops.begin() + static_cast<ptrdiff_t>(end));
        Try(candidate);
        end = begin;
      }
    }
  }

  template <typename T>
  bool TryField(size_t index, T Op::* field, T value) {
    Program candidate = best_;
    candidate.ops[index].*field = value;
    return Try(candidate);
  }

  // The first of the choices, which are below the present value, that fails too; else, by
  // bisection, about the smallest value.
  template <typename T>
  void SimplifyField(size_t index, T Op::* field, const std::vector<T>& choices) {
    for (const T& choice : choices) {
      if (choice >= best_.ops[index].*field) break;
      if (TryField(index, field, choice)) return;
    }
    T passes = choices.front();
    while (best_.ops[index].*field > passes + 1) {
      const T middle = static_cast<T>(passes + (best_.ops[index].*field - passes) / 2);
      if (!TryField(index, field, middle)) passes = middle;
      if (trials_ == 0) return;
    }
  }

  void SimplifyOps() {
    for (size_t i = 0; i < best_.ops.size(); ++i) {
      SimplifyField<uint8_t>(i, &Op::device, {0});
      SimplifyField<uint8_t>(i, &Op::stream, {0});
      SimplifyField<uint8_t>(i, &Op::pool, {1});
      SimplifyField<Bytes>(i, &Op::bytes, {0, 1, 512, kMiB, kMiB + 1, 2 * kMiB, 2 * kMiB + 1});
      SimplifyField<uint64_t>(i, &Op::ns, {0, 1, 1'000, 1'000'000});
      SimplifyField<uint64_t>(i, &Op::value, {0});
      SimplifyField<uint32_t>(i, &Op::times, {1});
    }
  }

  template <typename T>
  void SimplifySetupField(T Setup::* field, const std::vector<T>& choices) {
    for (const T& choice : choices) {
      Program candidate = best_;
      candidate.setup.*field = choice;
      if (Try(candidate)) return;
    }
  }

  void SimplifySetup() {
    SimplifySetupField<uint32_t>(&Setup::check_every, {1});
    SimplifySetupField<std::string>(&Setup::conf, {""});
    SimplifySetupField<uint8_t>(&Setup::devices, {1});
    SimplifySetupField<bool>(&Setup::per_thread, {false});
    SimplifySetupField<uint64_t>(&Setup::lag_ns, {0});
    SimplifySetupField<Bytes>(&Setup::limit, {kNoLimit});
    SimplifySetupField<Bytes>(&Setup::memory_bytes, {64 * kMiB});
    for (uint8_t streams = 1; streams < best_.setup.streams; ++streams) {
      SimplifySetupField<uint8_t>(&Setup::streams, {streams});
    }
  }

  void RenumberBlocks() {
    Program candidate = best_;
    std::map<uint32_t, uint32_t> names;
    for (Op& op : candidate.ops) {
      if (op.block == 0) continue;
      op.block = names.try_emplace(op.block, static_cast<uint32_t>(names.size() + 1)).first->second;
    }
    Try(candidate);
  }

  Program best_;
  const absl::FunctionRef<bool(const Program&)> fails_;
  size_t trials_;
};

}  // namespace

Program Minimise(Program program, absl::FunctionRef<bool(const Program&)> fails, size_t trials) {
  return Minimiser(std::move(program), fails, trials).Run();
}

}  // namespace offcut::fuzz
