#include "lib/envs/games/turn_game.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/env/env_spec.h"

namespace troupe::envs {

using env::AgentSlot;

TurnGame::TurnGame(env::EnvSpec spec)
    : spec_(std::move(spec)), num_actions_(static_cast<int32_t>(spec_.possible_agents[0].action_space.n())) {}

absl::Status TurnGame::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  Start(seed);
  to_move_ = 0;
  Observe(to_move_, /*over=*/false, out);
  return absl::OkStatus();
}

absl::Status TurnGame::Step(env::ActionRows actions, env::StepWriter& out) {
  const int32_t player = to_move_;
  const space::ActionWord* const row = actions[static_cast<size_t>(player)];
  const std::string& id = spec_.possible_agents[static_cast<size_t>(player)].id.value();
  if (row == nullptr) return absl::FailedPreconditionError(absl::StrCat(id, " did not act, and it is its turn"));
  const int32_t action = row->i32;
  if (action < 0 || action >= num_actions_) {
    return absl::InvalidArgumentError(absl::StrCat(id, ": action is ", action, ", expected 0 to ", num_actions_ - 1));
  }
  if (!Allows(action)) return End(player == 0 ? -1.0f : 0.0f, player == 0 ? 0.0f : -1.0f, out);
  const Outcome outcome = Play(player, action);
  if (outcome.over) return End(outcome.first_return, -outcome.first_return, out);
  to_move_ = 1 - player;
  Observe(to_move_, /*over=*/false, out);
  return absl::OkStatus();
}

absl::Status TurnGame::End(float first_return, float second_return, env::StepWriter& out) const {
  if (first_return != 0) out.AddReward(AgentSlot(0), first_return);
  if (second_return != 0) out.AddReward(AgentSlot(1), second_return);
  for (int32_t player = 0; player < 2; ++player) Observe(player, /*over=*/true, out);
  out.TerminateAll();
  return absl::OkStatus();
}

void TurnGame::Observe(int32_t player, bool over, env::StepWriter& out) const {
  const AgentSlot slot(player);
  WriteObservation(player, out.ObserveFloat(slot));
  if (!spec_.possible_agents[0].has_action_mask) return;
  uint8_t* const mask = out.ActionMask(slot);
  for (int32_t action = 0; action < num_actions_; ++action) mask[action] = !over && Allows(action) ? 1 : 0;
}

}  // namespace troupe::envs
