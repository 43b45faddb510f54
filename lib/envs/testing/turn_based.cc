#include "lib/envs/testing/turn_based.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;
using env::StateKind;

constexpr int64_t kMaxLength = 1'000'000;
constexpr int64_t kCarolComes = 2;
constexpr int64_t kCarolGoes = 4;

env::EnvSpec MakeSpec(StateKind state_kind, int64_t fixed_length) {
  const space::Space player = *space::Space::Box(-1, static_cast<double>(kMaxLength), {4});
  const space::Space guest = *space::Space::Box(-1, static_cast<double>(kMaxLength), {2});
  env::EnvSpec spec;
  spec.name = "testing/turn_based";
  spec.possible_agents = {
      {.id = env::AgentId("alice"),
       .observation_space = player,
       .action_space = *space::Space::Discrete(3),
       .has_action_mask = true},
      {.id = env::AgentId("bob"),
       .observation_space = player,
       .action_space = *space::Space::Discrete(3),
       .has_action_mask = true},
      {.id = env::AgentId("carol"), .observation_space = guest, .action_space = *space::Space::Discrete(2)}};
  spec.state_kind = state_kind;
  if (state_kind != StateKind::kNone) spec.state_space = *space::Space::Box(0, static_cast<double>(kMaxLength), {2});
  spec.has_agent_mask = true;
  spec.info_columns = {"turn"};
  spec.max_episode_steps = fixed_length < 0 ? 6 : fixed_length;
  return spec;
}

}  // namespace

TurnBased::TurnBased(StateKind state_kind, int64_t fixed_length)
    : spec_(MakeSpec(state_kind, fixed_length)), fixed_length_(fixed_length) {}

absl::StatusOr<std::unique_ptr<TurnBased>> TurnBased::Make(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const std::string state, args.GetString("state", "per_env"));
  TROUPE_ASSIGN_OR_RETURN(const int64_t length, args.GetOptionalInt("length", 1, kMaxLength));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("testing/turn_based"));
  StateKind kind = StateKind::kNone;
  if (state == "per_env") {
    kind = StateKind::kPerEnv;
  } else if (state == "per_agent") {
    kind = StateKind::kPerAgent;
  } else if (state != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("argument state is '", state, "', expected none, per_env or per_agent"));
  }
  return std::make_unique<TurnBased>(kind, length);
}

absl::Status TurnBased::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  x_ = static_cast<uint64_t>(seed.env_id.value()) + seed.episode;
  length_ = fixed_length_ > 0 ? fixed_length_ : 4 + static_cast<int64_t>(x_ % 3);
  t_ = 0;
  last_action_ = {-1, -1, -1};
  carol_left_ = false;
  WriteObservations(/*everybody=*/false, out);
  return absl::OkStatus();
}

absl::Status TurnBased::Step(env::ActionRows actions, env::StepWriter& out) {
  const int32_t player = t_ % 2 == 0 ? kAlice : kBob;
  const int32_t other = 1 - player;
  const bool carol_acts = t_ >= kCarolComes && !carol_left_;
  ++t_;
  const space::ActionWord* choice = actions[static_cast<size_t>(player)];
  const space::ActionWord* carols_choice = actions[static_cast<size_t>(kCarol)];
  if (choice == nullptr || (carol_acts && carols_choice == nullptr)) {
    return absl::FailedPreconditionError(absl::StrCat("a ready agent did not act in step ", t_));
  }
  if (choice->i32 == static_cast<int32_t>((t_ - 1) % 3)) {
    return absl::InvalidArgumentError(absl::StrCat("action ", choice->i32, " was forbidden by the mask in step ", t_));
  }
  last_action_[static_cast<size_t>(player)] = choice->i32;
  out.AddReward(AgentSlot(player), -0.5f);
  if (last_action_[static_cast<size_t>(other)] >= 0) out.AddReward(AgentSlot(other), static_cast<float>(choice->i32));
  if (carol_acts) {
    last_action_[static_cast<size_t>(kCarol)] = carols_choice->i32;
    out.AddReward(AgentSlot(kCarol), 1.0f + static_cast<float>(carols_choice->i32));
  }
  if (t_ < length_) {
    WriteObservations(/*everybody=*/false, out);
    if (t_ == kCarolGoes) {
      carol_left_ = true;
      if (x_ % 2 == 1) {
        out.TruncateAgent(AgentSlot(kCarol));
      } else {
        out.TerminateAgent(AgentSlot(kCarol));
      }
    }
    return absl::OkStatus();
  }
  if (length_ % 2 == 1) {
    WriteObservations(/*everybody=*/true, out);
    out.TruncateAll();
  } else {
    if (spec_.state_kind == StateKind::kPerEnv) {
      float* state = out.State(AgentSlot(0));
      state[0] = static_cast<float>(t_);
      state[1] = static_cast<float>(length_);
    }
    out.TerminateAll();
  }
  return absl::OkStatus();
}

void TurnBased::WriteObservations(bool everybody, env::StepWriter& out) const {
  if (spec_.state_kind == StateKind::kPerEnv) {
    float* state = out.State(AgentSlot(0));
    state[0] = static_cast<float>(t_);
    state[1] = static_cast<float>(length_);
  }
  // At the end only those are observed once more who were there before.
  if (everybody || t_ % 2 == 0) WriteRow(kAlice, out);
  if (everybody ? t_ >= 2 : t_ % 2 == 1) WriteRow(kBob, out);
  if (!carol_left_ && (everybody ? t_ > kCarolComes : t_ >= kCarolComes)) WriteRow(kCarol, out);
}

void TurnBased::WriteRow(int32_t slot, env::StepWriter& out) const {
  const AgentSlot id(slot);
  float* row = out.ObserveFloat(id);
  const float t = static_cast<float>(t_);
  const float last = static_cast<float>(last_action_[static_cast<size_t>(slot)]);
  if (slot == kCarol) {
    row[0] = t;
    row[1] = last;
  } else {
    row[0] = static_cast<float>(slot);
    row[1] = t;
    row[2] = last;
    row[3] = static_cast<float>(length_);
    uint8_t* mask = out.ActionMask(id);
    for (int64_t action = 0; action < 3; ++action) mask[action] = action != t_ % 3 ? 1 : 0;
  }
  if (t_ == 3 && slot != kAlice) out.SetAgentMask(id, false);
  if (spec_.state_kind == StateKind::kPerAgent) {
    float* state = out.State(id);
    state[0] = t;
    state[1] = static_cast<float>(slot);
  }
  out.SetInfo(id, 0, static_cast<double>(t_));
}

}  // namespace troupe::envs
