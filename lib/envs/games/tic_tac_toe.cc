#include "lib/envs/games/tic_tac_toe.h"

#include "absl/strings/str_cat.h"

namespace troupe::envs {
namespace {

/// Columns, rows and diagonals, a bit a cell.
constexpr uint32_t kLines[] = {0007, 0070, 0700, 0111, 0222, 0444, 0421, 0124};
constexpr uint32_t kFullBoard = 0777;

env::EnvSpec MakeSpec() {
  env::EnvSpec spec;
  spec.name = "tic_tac_toe";
  for (int i = 1; i <= 2; ++i) {
    spec.possible_agents.push_back(env::AgentSpec{.id = env::AgentId(absl::StrCat("player_", i)),
                                                  .observation_space = *space::Space::Box(0, 1, {3, 3, 2}),
                                                  .action_space = *space::Space::Discrete(TicTacToe::kCells),
                                                  .has_action_mask = true});
  }
  spec.max_episode_steps = TicTacToe::kCells;
  return spec;
}

}  // namespace

TicTacToe::TicTacToe() : TurnGame(MakeSpec()) {}

void TicTacToe::Start(const env::EpisodeSeed& /*seed*/) { marks_ = {}; }

bool TicTacToe::Allows(int32_t action) const { return (((marks_[0] | marks_[1]) >> action) & 1) == 0; }

TurnGame::Outcome TicTacToe::Play(int32_t player, int32_t action) {
  uint32_t& own = marks_[static_cast<size_t>(player)];
  own |= 1u << action;
  for (const uint32_t line : kLines) {
    if ((own & line) == line) return {.over = true, .first_return = player == 0 ? 1.0f : -1.0f};
  }
  return {.over = (marks_[0] | marks_[1]) == kFullBoard};
}

absl::Status TicTacToe::Draw(env::Canvas& canvas) const {
  canvas.View(-0.2, -0.2, 3.2, 3.2);
  for (int32_t line = 1; line <= 2; ++line) {
    canvas.Line({static_cast<double>(line), 0}, {static_cast<double>(line), 3}, 0.04, env::colors::kInk);
    canvas.Line({0, static_cast<double>(line)}, {3, static_cast<double>(line)}, 0.04, env::colors::kInk);
  }
  for (int32_t cell = 0; cell < kCells; ++cell) {
    const env::Point center{cell / 3 + 0.5, 2.5 - cell % 3};
    if (((marks_[0] >> cell) & 1) != 0) {
      canvas.Line({center.x - 0.3, center.y - 0.3}, {center.x + 0.3, center.y + 0.3}, 0.1, env::colors::Agent(0));
      canvas.Line({center.x - 0.3, center.y + 0.3}, {center.x + 0.3, center.y - 0.3}, 0.1, env::colors::Agent(0));
    } else if (((marks_[1] >> cell) & 1) != 0) {
      canvas.Circle(center, 0.35, env::colors::Agent(1));
      canvas.Circle(center, 0.24, env::colors::kBackground);
    }
  }
  return absl::OkStatus();
}

void TicTacToe::WriteObservation(int32_t player, float* row) const {
  const uint32_t own = marks_[static_cast<size_t>(player)];
  const uint32_t other = marks_[static_cast<size_t>(1 - player)];
  for (int32_t cell = 0; cell < kCells; ++cell) {
    row[2 * cell] = static_cast<float>((own >> cell) & 1);
    row[2 * cell + 1] = static_cast<float>((other >> cell) & 1);
  }
}

}  // namespace troupe::envs
