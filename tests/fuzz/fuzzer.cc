#include "tests/fuzz/fuzzer.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "allocator/base/check.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/minimise.h"
#include "tests/fuzz/run.h"

namespace offcut::fuzz {
namespace {

constexpr size_t kThreadRound = 500;        // operations of each thread between two checks
constexpr size_t kThreadOperations = 2000;  // of each thread in one program
constexpr unsigned kHangSeconds = 120;      // no program takes a hundredth of it

// What the child tells its parent, in memory that both see.
struct Told {
  std::atomic<uint64_t> seed{0};  // of the program under way
  Tally tally;
  std::atomic<uint64_t> programs{0};
  char message[4096] = {};  // what went wrong; "" so far
};

void Tell(Told& told, absl::string_view message) {
  const size_t length = std::min(message.size(), sizeof(told.message) - 1);
  std::memcpy(told.message, message.data(), length);
  told.message[length] = 0;
}

// A process that runs a function, and what it tells.
class Child {
 public:
  // `quiet`: its standard error is thrown away.
  Child(bool quiet, absl::FunctionRef<void(Told&)> body) {
    void* const memory =
        mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OFFCUT_CHECK(memory != MAP_FAILED, "no memory to share with a child");
    told_ = new (memory) Told();
    std::fflush(nullptr);
    process_ = fork();
    OFFCUT_CHECK(process_ >= 0, "no child process");
    if (process_ != 0) return;
    if (quiet && std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    alarm(kHangSeconds);
    body(*told_);
#if defined(__SANITIZE_ADDRESS__)
    if (__lsan_do_recoverable_leak_check() != 0) Tell(*told_, "leak: heap memory is lost");
#endif
    _exit(0);
  }
  ~Child() { munmap(told_, sizeof(Told)); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Waits for its end. What went wrong, or "". Once.
  std::string Failure() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0) OFFCUT_CHECK(errno == EINTR, "the child is lost");
    if (told_->message[0] != 0) return told_->message;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "hang: the program does not end";
    if (WIFSIGNALED(status)) {
      return absl::StrCat("crash: signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                          ")");
    }
    if (WEXITSTATUS(status) != 0) return absl::StrCat("crash: exit status ", WEXITSTATUS(status));
    return "";
  }
  const Told& told() const { return *told_; }

 private:
  Told* told_;
  pid_t process_;
};

absl::string_view WitnessOf(absl::string_view failure) {
  return failure.substr(0, failure.find(':'));
}

Program ProgramOf(uint64_t seed, const FuzzOptions& options) {
  Program program = Generate(seed);
  if (options.check_every != 0) program.setup.check_every = options.check_every;
  return program;
}

void FuzzInChild(const FuzzOptions& options, Told& told) {
  for (uint64_t seed = options.seed; told.tally.operations() < options.operations; ++seed) {
    alarm(kHangSeconds);
    told.seed = seed;
    absl::Status status;
    if (options.threads > 1) {
      status = RunThreads(GenerateForThreads(seed, options.threads, kThreadOperations),
                          kThreadRound, options.replacements, &told.tally);
    } else {
      status = RunProgram(ProgramOf(seed, options), options.replacements, &told.tally);
    }
    ++told.programs;
    if (!status.ok()) return Tell(told, status.message());
  }
}

std::string Describe(uint64_t seed, const std::string& failure, const FuzzOptions& options) {
  const std::string head = absl::StrCat(
      "seed ", seed, options.threads > 1 ? absl::StrCat(", ", options.threads, " threads") : "",
      ": ", failure, "\n");
  // Threads race each time in another way: nothing to cut down.
  if (options.threads > 1) return head;
  const Program program = ProgramOf(seed, options);
  const auto fails = [&](const Program& candidate) {
    const std::optional<std::string> found = FailureOf(candidate, options.replacements);
    return found.has_value() && WitnessOf(*found) == WitnessOf(failure);
  };
  if (!fails(program)) return absl::StrCat(head, "alone, it does not fail again\n");
  const Program smallest = Minimise(program, fails);
  const std::string last = FailureOf(smallest, options.replacements).value_or("");
  return absl::StrCat(head, "\n", ToCxxTest(smallest, absl::StrCat("Seed", seed), last));
}

}  // namespace

std::optional<std::string> FailureOf(const Program& program, const Replacements& replacements) {
  Child child(/*quiet=*/true, [&](Told& told) {
    const absl::Status status = RunProgram(program, replacements);
    if (!status.ok()) Tell(told, status.message());
  });
  const std::string failure = child.Failure();
  return failure.empty() ? std::nullopt : std::optional(failure);
}

FuzzReport Fuzz(const FuzzOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  FuzzOptions job = options;
  job.operations = options.operations / static_cast<uint64_t>(options.jobs) + 1;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < options.jobs; ++i, job.seed += kSeedsPerJob) {
    children.push_back(std::make_unique<Child>(
        /*quiet=*/false, [&](Told& told) { FuzzInChild(job, told); }));
  }
  FuzzReport report;
  for (const std::unique_ptr<Child>& child : children) {
    const std::string failure = child->Failure();
    const Told& told = child->told();
    report.operations += told.tally.operations();
    report.programs += told.programs;
    for (size_t kind = 0; kind < kOpKinds; ++kind) {
      report.played[kind] += told.tally.played[kind];
      report.without_effect[kind] += told.tally.without_effect[kind];
    }
    if (failure.empty()) continue;
    report.failures.push_back({told.seed, failure});
    if (report.failure.empty()) report.failure = Describe(told.seed, failure, options);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  report.seconds = seconds.count();
  return report;
}

}  // namespace offcut::fuzz
