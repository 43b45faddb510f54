#include "lib/envs/games/repeated_game.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr int64_t kDefaultRounds = 10;
constexpr int64_t kMaxRounds = 1'000'000;
constexpr size_t kMaxPlayers = 15;
constexpr int64_t kMaxActions = 1024;  // of one player
constexpr double kMaxPayoff = 1e6;

int64_t ObservationSize(const PayoffTable& payoffs) {
  return std::accumulate(payoffs.num_actions.begin(), payoffs.num_actions.end(), int64_t{1});
}

env::EnvSpec MakeSpec(std::string name, const PayoffTable& payoffs, int64_t rounds) {
  env::EnvSpec spec;
  spec.name = std::move(name);
  for (size_t i = 0; i < payoffs.num_actions.size(); ++i) {
    spec.possible_agents.push_back(
        env::AgentSpec{.id = env::AgentId(absl::StrCat("player_", i)),
                       .observation_space = *space::Space::Box(0, 1, {ObservationSize(payoffs)}),
                       .action_space = *space::Space::Discrete(payoffs.num_actions[i])});
  }
  spec.max_episode_steps = rounds;
  return spec;
}

/// Of two players, of whom one wins what the other loses; `first` is player 0's.
PayoffTable ZeroSum(int32_t first_actions, int32_t second_actions, const std::vector<double>& first) {
  PayoffTable payoffs{.num_actions = {first_actions, second_actions}, .rewards = {}};
  for (const double payoff : first) {
    payoffs.rewards.push_back(static_cast<float>(payoff));
    payoffs.rewards.push_back(static_cast<float>(0.0 - payoff));  // no negative zero
  }
  return payoffs;
}

absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeGame(const char* name, env::EnvArgs args, PayoffTable payoffs) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t rounds, args.GetInt("rounds", kDefaultRounds, 1, kMaxRounds));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown(name));
  return std::make_unique<RepeatedGame>(name, std::move(payoffs), rounds);
}

/// How matrix_game's `payoffs` are to be read.
enum class PayoffKind {
  kCommon,     ///< one table, for all players
  kZeroSum,    ///< one table, player 0's; player 1 gets the opposite
  kPerPlayer,  ///< a table for each player
};

absl::StatusOr<PayoffKind> ReadKind(env::EnvArgs& args) {
  TROUPE_ASSIGN_OR_RETURN(const std::string kind, args.GetString("kind", "common"));
  if (kind == "common") return PayoffKind::kCommon;
  if (kind == "zero_sum") return PayoffKind::kZeroSum;
  if (kind == "per_player") return PayoffKind::kPerPlayer;
  return absl::InvalidArgumentError(
      absl::StrCat("argument kind is '", kind, "', expected common, zero_sum or per_player"));
}

/// The climbing game (Claus and Boutilier 1998): the best joint action lies beside the worst.
const env::NumberTable& ClimbingGame() {
  static const auto* const kTable = new env::NumberTable{.shape = {3, 3}, .values = {11, -30, 0, -30, 7, 6, 0, 0, 5}};
  return *kTable;
}

absl::StatusOr<PayoffTable> ReadPayoffs(env::EnvArgs& args) {
  TROUPE_ASSIGN_OR_RETURN(const PayoffKind kind, ReadKind(args));
  TROUPE_ASSIGN_OR_RETURN(env::NumberTable table, args.GetNumbers("payoffs", {}, {}, -kMaxPayoff, kMaxPayoff));
  if (table.shape.empty()) {
    if (kind != PayoffKind::kCommon) {
      return absl::InvalidArgumentError("argument kind says how to read payoffs, expected them, too");
    }
    table = ClimbingGame();
  }
  const size_t tables = kind == PayoffKind::kPerPlayer ? 1 : 0;  // lists around the players' own
  const size_t players = table.shape.size() - tables;
  const size_t most_players = kind == PayoffKind::kZeroSum ? 2 : kMaxPlayers;
  if (players < 2 || players > most_players) {
    const std::string depth =
        kind == PayoffKind::kZeroSum ? "2" : absl::StrCat(2 + tables, " to ", kMaxPlayers + tables);
    return absl::InvalidArgumentError(
        absl::StrCat("argument payoffs is nested ", table.shape.size(), " deep, expected ", depth,
                     tables > 0 ? ": a table for each player, in it" : ":",
                     " a list for each action of the first player, in it one for each action of the second …"));
  }
  if (tables > 0 && table.shape[0] != static_cast<int64_t>(players)) {
    return absl::InvalidArgumentError(absl::StrCat("argument payoffs has ", table.shape[0], " tables of ", players,
                                                   " dimensions, expected a table and a dimension for each player"));
  }
  PayoffTable payoffs;
  for (size_t i = tables; i < table.shape.size(); ++i) {
    if (table.shape[i] > kMaxActions) {
      return absl::InvalidArgumentError(absl::StrCat("argument payoffs has ", table.shape[i], " actions for player ",
                                                     i - tables, ", expected at most ", kMaxActions));
    }
    payoffs.num_actions.push_back(static_cast<int32_t>(table.shape[i]));
  }
  if (kind == PayoffKind::kZeroSum) return ZeroSum(payoffs.num_actions[0], payoffs.num_actions[1], table.values);
  const size_t joint_actions = table.values.size() / (tables > 0 ? players : 1);
  for (size_t joint = 0; joint < joint_actions; ++joint) {
    for (size_t player = 0; player < players; ++player) {
      payoffs.rewards.push_back(static_cast<float>(table.values[tables * player * joint_actions + joint]));
    }
  }
  return payoffs;
}

}  // namespace

RepeatedGame::RepeatedGame(std::string name, PayoffTable payoffs, int64_t rounds)
    : payoffs_(std::move(payoffs)),
      rounds_(rounds),
      num_players_(payoffs_.num_actions.size()),
      observation_size_(ObservationSize(payoffs_)),
      spec_(MakeSpec(std::move(name), payoffs_, rounds)),
      played_(num_players_) {}

absl::Status RepeatedGame::Reset(const env::EpisodeSeed& /*seed*/, env::StepWriter& out) {
  round_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status RepeatedGame::Step(env::ActionRows actions, env::StepWriter& out) {
  size_t joint = 0;
  for (size_t i = 0; i < num_players_; ++i) {
    if (actions[i] == nullptr) return absl::FailedPreconditionError(absl::StrCat("player_", i, " did not act"));
    const int32_t action = actions[i]->i32;
    const int32_t num_actions = payoffs_.num_actions[i];
    if (action < 0 || action >= num_actions) {
      return absl::InvalidArgumentError(
          absl::StrCat("player_", i, ": action is ", action, ", expected 0 to ", num_actions - 1));
    }
    joint = joint * static_cast<size_t>(num_actions) + static_cast<size_t>(action);
    played_[i] = action;
  }
  ++round_;
  const float* const rewards = payoffs_.rewards.data() + joint * num_players_;
  for (size_t i = 0; i < num_players_; ++i) out.AddReward(AgentSlot(static_cast<int32_t>(i)), rewards[i]);
  WriteObservations(out);
  if (round_ >= rounds_) out.TerminateAll();
  return absl::OkStatus();
}

void RepeatedGame::WriteObservations(env::StepWriter& out) const {
  for (size_t i = 0; i < num_players_; ++i) {
    float* row = out.ObserveFloat(AgentSlot(static_cast<int32_t>(i)));
    std::fill(row, row + observation_size_, 0.0f);
    if (round_ == 0) continue;
    for (size_t k = 0; k < num_players_; ++k) {
      const size_t other = (i + k) % num_players_;
      row[played_[other]] = 1.0f;
      row += payoffs_.num_actions[other];
    }
    *row = 1.0f;
  }
}

absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeRockPaperScissors(env::EnvArgs args) {
  return MakeGame("rock_paper_scissors", std::move(args), ZeroSum(3, 3, {0, -1, 1, 1, 0, -1, -1, 1, 0}));
}

absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeMatchingPennies(env::EnvArgs args) {
  return MakeGame("matching_pennies", std::move(args), ZeroSum(2, 2, {1, -1, -1, 1}));
}

absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeMatrixGame(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(PayoffTable payoffs, ReadPayoffs(args));
  return MakeGame("matrix_game", std::move(args), std::move(payoffs));
}

}  // namespace troupe::envs
