#include "lib/envs/games/two_step_game.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr float kPayoff2A = 7;
constexpr float kPayoff2B[2][2] = {{0, 1}, {1, 8}};

env::EnvSpec MakeSpec() {
  env::EnvSpec spec;
  spec.name = "two_step_game";
  for (int i = 1; i <= 2; ++i) {
    spec.possible_agents.push_back(
        env::AgentSpec{.id = env::AgentId(absl::StrCat("agent_", i)),
                       .observation_space = *space::Space::Box({0, 0, 0, 0}, {1, 1, 1, 2}, {4}),
                       .action_space = *space::Space::Discrete(2)});
  }
  spec.state_kind = env::StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(0, 1, {TwoStepGame::kStates});
  spec.max_episode_steps = 2;
  return spec;
}

}  // namespace

TwoStepGame::TwoStepGame() : spec_(MakeSpec()) {}

absl::Status TwoStepGame::Reset(const env::EpisodeSeed& /*seed*/, env::StepWriter& out) {
  state_ = kFirst;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status TwoStepGame::Step(env::ActionRows actions, env::StepWriter& out) {
  std::array<int32_t, 2> chosen{};
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (actions[i] == nullptr) return absl::FailedPreconditionError(absl::StrCat("agent_", i + 1, " did not act"));
    chosen[i] = actions[i]->i32;
    if (chosen[i] != 0 && chosen[i] != 1) {
      return absl::InvalidArgumentError(absl::StrCat("agent_", i + 1, ": action is ", chosen[i], ", expected 0 or 1"));
    }
  }
  if (state_ == kFirst) {
    state_ = chosen[0] == 0 ? k2A : k2B;
    WriteObservations(out);
    return absl::OkStatus();
  }
  const float payoff = state_ == k2A ? kPayoff2A : kPayoff2B[chosen[0]][chosen[1]];
  for (int32_t slot = 0; slot < 2; ++slot) out.AddReward(AgentSlot(slot), payoff / 2);
  WriteObservations(out);
  out.TerminateAll();
  return absl::OkStatus();
}

void TwoStepGame::WriteObservations(env::StepWriter& out) const {
  float* const state = out.State(AgentSlot(0));
  for (int32_t i = 0; i < kStates; ++i) state[i] = i == state_ ? 1.0f : 0.0f;
  for (int32_t slot = 0; slot < 2; ++slot) {
    float* const row = out.ObserveFloat(AgentSlot(slot));
    for (int32_t i = 0; i < kStates; ++i) row[i] = i == state_ ? 1.0f : 0.0f;
    row[kStates] = static_cast<float>(slot + 1);
  }
}

}  // namespace troupe::envs
