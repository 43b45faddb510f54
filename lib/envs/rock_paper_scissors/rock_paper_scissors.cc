#include "lib/envs/rock_paper_scissors/rock_paper_scissors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr int64_t kMaxRounds = 1'000'000;

env::EnvSpec MakeSpec(int64_t rounds) {
  env::EnvSpec spec;
  spec.name = "rock_paper_scissors";
  for (int i = 0; i < 2; ++i) {
    spec.possible_agents.push_back(
        env::AgentSpec{.id = env::AgentId(absl::StrCat("player_", i)),
                       .observation_space = *space::Space::Box(0, 1, {RockPaperScissors::kObservationSize}),
                       .action_space = *space::Space::Discrete(RockPaperScissors::kHands)});
  }
  spec.max_episode_steps = rounds;
  return spec;
}

/// What `own` gets against `other`: each hand beats the one before it in the circle.
float Reward(int32_t own, int32_t other) {
  constexpr float kReward[RockPaperScissors::kHands] = {0.0f, 1.0f, -1.0f};
  return kReward[(own - other + RockPaperScissors::kHands) % RockPaperScissors::kHands];
}

}  // namespace

RockPaperScissors::RockPaperScissors(int64_t rounds) : rounds_(rounds), spec_(MakeSpec(rounds)) {}

absl::StatusOr<std::unique_ptr<RockPaperScissors>> RockPaperScissors::Make(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t rounds, args.GetInt("rounds", 10, 1, kMaxRounds));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("rock_paper_scissors"));
  return std::make_unique<RockPaperScissors>(rounds);
}

absl::Status RockPaperScissors::Reset(const env::EpisodeSeed& /*seed*/, env::StepWriter& out) {
  round_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status RockPaperScissors::Step(env::ActionRows actions, env::StepWriter& out) {
  for (size_t i = 0; i < hands_.size(); ++i) {
    if (actions[i] == nullptr) return absl::FailedPreconditionError(absl::StrCat("player_", i, " did not act"));
    const int32_t hand = actions[i]->i32;
    if (hand < 0 || hand >= kHands) {
      return absl::InvalidArgumentError(absl::StrCat("player_", i, ": action is ", hand, ", expected 0, 1 or 2"));
    }
    hands_[i] = hand;
  }
  ++round_;
  out.AddReward(AgentSlot(0), Reward(hands_[0], hands_[1]));
  out.AddReward(AgentSlot(1), Reward(hands_[1], hands_[0]));
  WriteObservations(out);
  if (round_ >= rounds_) out.TerminateAll();
  return absl::OkStatus();
}

void RockPaperScissors::WriteObservations(env::StepWriter& out) const {
  for (size_t i = 0; i < hands_.size(); ++i) {
    float* row = out.ObserveFloat(AgentSlot(static_cast<int32_t>(i)));
    std::fill(row, row + kObservationSize, 0.0f);
    if (round_ == 0) continue;
    row[hands_[i]] = 1.0f;
    row[kHands + hands_[1 - i]] = 1.0f;
    row[2 * kHands] = 1.0f;
  }
}

void RegisterRockPaperScissors(env::EnvRegistry& registry) {
  registry.Register({.name = "rock_paper_scissors",
                     .description = "Two agents play rock, paper, scissors again and again and see the last round",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return RockPaperScissors::Make(std::move(args));
                     }});
}

}  // namespace troupe::envs
