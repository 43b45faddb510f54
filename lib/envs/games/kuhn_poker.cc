#include "lib/envs/games/kuhn_poker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::envs {
namespace {

env::EnvSpec MakeSpec() {
  env::EnvSpec spec;
  spec.name = "kuhn_poker";
  for (int i = 0; i < 2; ++i) {
    spec.possible_agents.push_back(
        env::AgentSpec{.id = env::AgentId(absl::StrCat("player_", i)),
                       .observation_space = *space::Space::Box(0, 1, {KuhnPoker::kObservationSize}),
                       .action_space = *space::Space::Discrete(2)});
  }
  spec.max_episode_steps = KuhnPoker::kMaxActions;
  return spec;
}

}  // namespace

KuhnPoker::KuhnPoker(std::optional<Deal> deal) : TurnGame(MakeSpec()), fixed_deal_(deal) {}

void KuhnPoker::Start(const env::EpisodeSeed& seed) {
  num_actions_ = 0;
  if (fixed_deal_) {
    deal_ = *fixed_deal_;
    return;
  }
  base::PhiloxSequence random = seed.Sequence(base::RandomStream::kReset);
  deal_[0] = static_cast<int32_t>(random.Below(kCards));
  deal_[1] = static_cast<int32_t>(random.Below(kCards - 1));
  if (deal_[1] >= deal_[0]) ++deal_[1];  // one of the cards that are left
}

bool KuhnPoker::Allows(int32_t /*action*/) const { return true; }

TurnGame::Outcome KuhnPoker::Play(int32_t player, int32_t action) {
  const bool facing_bet = num_actions_ > 0 && actions_[static_cast<size_t>(num_actions_ - 1)] == kBet;
  actions_[static_cast<size_t>(num_actions_++)] = action;
  const float first_wins = deal_[0] > deal_[1] ? 1.0f : -1.0f;
  if (facing_bet && action == kPass) return {.over = true, .first_return = player == 0 ? -1.0f : 1.0f};
  if (facing_bet) return {.over = true, .first_return = 2 * first_wins};
  if (action == kPass && num_actions_ == 2) return {.over = true, .first_return = first_wins};
  return {};
}

void KuhnPoker::WriteObservation(int32_t player, float* row) const {
  std::fill(row, row + kObservationSize, 0.0f);
  row[player] = 1.0f;
  row[2 + deal_[static_cast<size_t>(player)]] = 1.0f;
  for (int32_t i = 0; i < num_actions_; ++i) row[2 + kCards + 2 * i + actions_[static_cast<size_t>(i)]] = 1.0f;
}

}  // namespace troupe::envs
