#include "tests/fuzz/run.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "allocator/base/status_macros.h"

namespace offcut::fuzz {

absl::Status RunProgram(const Program& program, const Replacements& replacements, Tally* tally) {
  Machine machine(program.setup, replacements);
  OFFCUT_RETURN_IF_ERROR(machine.Open());
  Player player(machine, /*alone=*/true, tally);
  uint32_t unchecked = 0;
  for (const Op& op : program.ops) {
    OFFCUT_RETURN_IF_ERROR(player.Play(op));
    if (++unchecked >= program.setup.check_every) {
      unchecked = 0;
      OFFCUT_RETURN_IF_ERROR(machine.Check());
    }
  }
  OFFCUT_RETURN_IF_ERROR(player.FreeAll());
  OFFCUT_RETURN_IF_ERROR(machine.Check());
  return machine.Close();
}

absl::Status RunThreads(const std::vector<Program>& programs, size_t round,
                        const Replacements& replacements, Tally* tally) {
  Machine machine(programs.front().setup, replacements);
  OFFCUT_RETURN_IF_ERROR(machine.Open());
  std::deque<Player> players;
  size_t longest = 0;
  for (const Program& program : programs) {
    players.emplace_back(machine, /*alone=*/false, tally);
    longest = std::max(longest, program.ops.size());
  }
  for (size_t begin = 0; begin < longest; begin += round) {
    std::vector<absl::Status> statuses(programs.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < programs.size(); ++i) {
      threads.emplace_back([&, i] {
        const std::vector<Op>& ops = programs[i].ops;
        for (size_t at = begin; at < std::min(begin + round, ops.size()); ++at) {
          statuses[i] = players[i].Play(ops[at]);
          if (!statuses[i].ok()) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) OFFCUT_RETURN_IF_ERROR(status);
    OFFCUT_RETURN_IF_ERROR(machine.Check());
  }
  for (Player& player : players) OFFCUT_RETURN_IF_ERROR(player.FreeAll());
  OFFCUT_RETURN_IF_ERROR(machine.Check());
  return machine.Close();
}

}  // namespace offcut::fuzz
