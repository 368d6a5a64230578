// The program as users run it: its output, its exit codes, and recordings in every state of decay.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/trace/recorder.h"
#include "tests/cli/event_script.h"

namespace offcut {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string error;
};

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string name = testing::TempDir() + "/offcut-program-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~ProgramTest() override { fs::remove_all(directory_); }

  static std::string ReadFile(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void WriteFile(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  // `command` is a shell's: environment, arguments, redirections.
  Outcome Run(const std::string& arguments, const std::string& environment = "") const {
    const fs::path error = directory_ / "stderr";
    const std::string command = absl::StrCat(
        "env -u OFFCUT_CONF -u PYTORCH_CUDA_ALLOC_CONF -u PYTORCH_ALLOC_CONF ", environment, " '",
        OFFCUT_PROGRAM, "' ", arguments, " 2>'", error.string(), "'");
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.out.append(buffer, n);
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status)) << command << " died of a signal";
    outcome.exit_code = WEXITSTATUS(status);
    outcome.error = ReadFile(error);
    return outcome;
  }

  // Records `script` for `devices` devices; returns the process's directory.
  fs::path Record(const EventScript& script, int devices = 1) const {
    auto recorder = *Recorder::Start((directory_ / "runs").string(), "[]", Clock::Real());
    for (int device = 0; device < devices; ++device) {
      EventSink* sink = *recorder->SinkFor(device, "NVIDIA Test", 80 * kGiB);
      for (Event event : script.events()) {
        event.device = static_cast<uint8_t>(device);
        sink->OnEvent(event);
      }
    }
    return recorder->directory();
  }

  static EventScript SmallRun() {
    EventScript script;
    script.Grow(0).Grow(1).Step(1).Allocate(0, 1000).Allocate(4096, 3 * kMiB).Free(0);
    script.Step(2).Allocate(0, 600).Pend(4096).FinishPending(4096).Shrink(1);
    return script;
  }

  static fs::path ChunkFile(const fs::path& recording) {
    for (const fs::directory_entry& entry : fs::directory_iterator(recording)) {
      if (entry.path().extension() == ".offcut") return entry.path();
    }
    ADD_FAILURE() << "no chunk file in " << recording;
    return {};
  }

  fs::path directory_;
};

TEST_F(ProgramTest, HelpListsCommandsAndExitCodes) {
  const Outcome outcome = Run("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("options"), HasSubstr("inspect"), HasSubstr("check"),
                    HasSubstr("report"), HasSubstr("replay"), HasSubstr("Exit codes:")));
  EXPECT_EQ(Run("inspect --help").exit_code, 0);
}

TEST_F(ProgramTest, VersionIsOneLine) {
  const Outcome outcome = Run("--version");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, testing::StartsWith("offcut "));
}

TEST_F(ProgramTest, BadUsageIsExitCode2) {
  for (const char* arguments : {"", "inspekt", "inspect", "inspect a b", "options --jsn",
                                "options --json --markdown", "check"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_NE(outcome.error, "") << arguments;
  }
}

TEST_F(ProgramTest, AnUnknownCommandIsNamed) {
  EXPECT_THAT(Run("inspekt").error, HasSubstr("unknown command 'inspekt'"));
}

TEST_F(ProgramTest, OptionsTellValueAndOriginUnderTheEnvironment) {
  const Outcome outcome =
      Run("options --json", "OFFCUT_CONF=memory_limit_mb:77 PYTORCH_ALLOC_CONF=unheard_of:1");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, HasSubstr("warning: ignored: PYTORCH_ALLOC_CONF"));
  bool found = false;
  for (const json& option : json::parse(outcome.out)) {
    if (option["key"] != "memory_limit_mb") continue;
    found = true;
    EXPECT_EQ(option["value"], "77");
    EXPECT_EQ(option["origin"], "OFFCUT_CONF");
  }
  EXPECT_TRUE(found);
  EXPECT_THAT(Run("options").out, HasSubstr("memory_limit_mb"));
  EXPECT_THAT(Run("options --markdown").out, HasSubstr("| `memory_limit_mb` | `unlimited` |"));
}

TEST_F(ProgramTest, OptionsPointAtTheFaultInOffcutConf) {
  const Outcome outcome = Run("options", "OFFCUT_CONF=memory_limit:77");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.error, HasSubstr("did you mean 'memory_limit_mb'?\n  memory_limit:77\n  ^"));
}

TEST_F(ProgramTest, InspectsARecordedRun) {
  const fs::path recording = Record(SmallRun(), 2);
  for (const fs::path& path : {recording, recording.parent_path()}) {
    const Outcome outcome = Run(absl::StrCat("inspect '", path.string(), "' --json"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const json found = json::parse(outcome.out);
    EXPECT_EQ(found["process"], recording.filename().string());
    EXPECT_EQ(found["device"], 0);
    EXPECT_EQ(found["events"], SmallRun().events().size());
    EXPECT_EQ(found["allocations"], 3);
    EXPECT_EQ(found["frees"], 2);
    EXPECT_EQ(found["dropped_events"], 0);
    EXPECT_EQ(found["peak_live_bytes"], 3 * kMiB + 1000);
    EXPECT_EQ(found["peak_reserved_bytes"], 2 * kGranule);
    EXPECT_EQ(found["accounting"]["live_bytes"], 3 * kMiB + 1000);
    ASSERT_EQ(found["devices"].size(), 2);
    EXPECT_EQ(found["devices"][1]["device"], 1);
    EXPECT_EQ(found["devices"][1]["device_name"], "NVIDIA Test");
    EXPECT_EQ(found["devices"][1]["steps"], 2);
    EXPECT_EQ(found["devices"][1]["closed"], true);
    EXPECT_GT(found["devices"][1]["chunk_bytes"], 0);
  }
  const Outcome text = Run(absl::StrCat("inspect '", recording.string(), "'"));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("peak reserved"));
  EXPECT_THAT(text.out, Not(HasSubstr("!")));
}

TEST_F(ProgramTest, ChecksARecordedRun) {
  const Outcome outcome = Run(absl::StrCat("check '", Record(SmallRun(), 2).string(), "'"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("no fault"), Not(HasSubstr("warning"))));
}

TEST_F(ProgramTest, CheckListsTheFirstContradictions) {
  EventScript script = SmallRun();
  script.Allocate(0, 100).Allocate(512, 100);
  const Outcome outcome = Run(absl::StrCat("check '", Record(script).string(), "'"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("overlaps"), HasSubstr("event "),
                                 HasSubstr("BlockAllocated time_ns")));
}

TEST_F(ProgramTest, ARecordingWithoutEventsIsReadable) {
  const fs::path recording = Record(EventScript());
  EXPECT_EQ(Run(absl::StrCat("check '", recording.string(), "'")).exit_code, 0);
  const Outcome outcome = Run(absl::StrCat("inspect '", recording.string(), "' --json"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(json::parse(outcome.out)["peak_reserved_bytes"], 0);
}

TEST_F(ProgramTest, NothingToReadIsExitCode3WithTheReason) {
  fs::create_directory(directory_ / "empty");
  WriteFile(directory_ / "garbage.offcut", std::string(100000, 'x'));
  WriteFile(directory_ / "nothing.offcut", "");
  for (const char* path : {"missing", "empty", "garbage.offcut", "nothing.offcut"}) {
    for (const char* command : {"inspect", "check"}) {
      const Outcome outcome = Run(absl::StrCat(command, " '", (directory_ / path).string(), "'"));
      EXPECT_EQ(outcome.exit_code, 3) << command << " " << path;
      EXPECT_THAT(outcome.error, AllOf(HasSubstr("offcut: "), HasSubstr(path))) << command;
      EXPECT_EQ(outcome.out, "");
    }
  }
}

TEST_F(ProgramTest, OneUnreadableFileDoesNotHideTheOthers) {
  const fs::path recording = Record(SmallRun());
  WriteFile(recording / "zzz.offcut", "garbage");
  const Outcome outcome = Run(absl::StrCat("inspect '", recording.string(), "' --json"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(json::parse(outcome.out)["unreadable"].size(), 1);
  EXPECT_EQ(json::parse(outcome.out)["allocations"], 3);
  EXPECT_EQ(Run(absl::StrCat("check '", recording.string(), "'")).exit_code, 3);
}

TEST_F(ProgramTest, NoDamageToAFileCrashesIt) {
  const fs::path file = ChunkFile(Record(SmallRun()));
  const std::string whole = ReadFile(file);
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    std::string damaged = whole;
    if (round % 2 == 0) {
      damaged.resize(random() % damaged.size());
    } else {
      for (int i = 0; i < 4; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    const fs::path copy = directory_ / "damaged.offcut";
    WriteFile(copy, damaged);
    for (const char* command : {"inspect --json", "check"}) {
      const Outcome outcome = Run(absl::StrCat(command, " '", copy.string(), "'"));
      EXPECT_THAT(outcome.exit_code, testing::AnyOf(0, 1, 3)) << command;
    }
  }
}

class ReplayProgramTest : public ProgramTest {
 protected:
  std::string Trace() const {
    const fs::path path = directory_ / "trace.csv";
    WriteFile(path,
              "time_us,action,address,size,stream\n"
              "0,segment_alloc,0x7f0000000000,20971520,0\n"
              "5,alloc,0x7f0000000000,10485760,0\n"
              "9,alloc,0x7f0000a00000,5242880,0\n"
              "100,free_requested,0x7f0000000000,10485760,0\n"
              "100,free_completed,0x7f0000000000,10485760,0\n"
              "200,alloc,0x7f0000000000,8388608,0\n");
    return path.string();
  }
  Outcome Replay(const std::string& arguments) const {
    return Run(absl::StrCat("replay '", Trace(), "' ", arguments));
  }
};

TEST_F(ReplayProgramTest, TellsFiguresAsJson) {
  const Outcome outcome = Replay("--json");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  const json figures = json::parse(outcome.out);
  EXPECT_EQ(figures["peak_live_bytes"], 15 * kMiB);
  EXPECT_EQ(figures["events"], 4);
  EXPECT_EQ(figures["completed"], true);
  EXPECT_GE(figures["peak_reserved_bytes"], 15 * kMiB);
}

TEST_F(ReplayProgramTest, TellsFiguresToPeople) {
  const Outcome outcome = Replay("--lag 5");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("15.0 MiB"), HasSubstr("5.00 ms behind the host"),
                                 HasSubstr("NVIDIA H200")));
}

TEST_F(ReplayProgramTest, ACapThatIsTooSmallIsExitCode5WithTheFigures) {
  EXPECT_EQ(Replay("--cap 20MiB").exit_code, 0);
  const Outcome outcome = Replay("--cap 8MiB --json");
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_EQ(json::parse(outcome.out)["failed_at_event"], 0);
  EXPECT_THAT(Replay("--conf memory_limit_mb:8").out, HasSubstr("the limit on reserved memory"));
}

TEST_F(ReplayProgramTest, ReplaysARecording) {
  const fs::path recording = Record(SmallRun());
  const Outcome outcome = Run(absl::StrCat("replay --json '", recording.string(), "'"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(json::parse(outcome.out)["events"], 5);
  EXPECT_EQ(json::parse(outcome.out)["peak_live_bytes"], 3 * kMiB + 1000);
}

TEST_F(ReplayProgramTest, WhatIsWrongWithTheCommandLineIsToldAndExitCode2) {
  EXPECT_THAT(Replay("--cap much").error, HasSubstr("--cap must be a size such as 20GiB"));
  EXPECT_THAT(Replay("--conf memory_limit:8").error, HasSubstr("did you mean 'memory_limit_mb'?"));
  EXPECT_THAT(Replay("--lag nan").error, HasSubstr("--lag must be"));
  for (const char* arguments : {"--cap much", "--conf memory_limit:8", "--conf backend:x",
                                "--lag -1", "--lag nan", "--card GTX", "--jso", "another"}) {
    EXPECT_EQ(Replay(arguments).exit_code, 2) << arguments;
  }
}

TEST_F(ReplayProgramTest, WhatIsWrongWithTheFileIsToldAndExitCode3) {
  const std::string path = (directory_ / "wrong.csv").string();
  for (const char* text : {"", "garbage", "time_us,action,address,size,stream\n1,alloc\n",
                           "\x28\xB5\x2F\xFDgarbage"}) {
    WriteFile(path, text);
    const Outcome outcome = Run(absl::StrCat("replay '", path, "'"));
    EXPECT_EQ(outcome.exit_code, 3) << text;
    EXPECT_THAT(outcome.error, HasSubstr("wrong.csv")) << text;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(Run("replay missing.csv").exit_code, 3);
}

TEST_F(ProgramTest, AFullDiskBelowTheOutputIsExitCode4) {
  const Outcome outcome = Run("options > /dev/full");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_THAT(outcome.error, HasSubstr("could not be written"));
}

}  // namespace
}  // namespace offcut
