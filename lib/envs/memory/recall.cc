#include "lib/envs/memory/recall.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr int64_t kMaxDelay = 1'000'000;

env::EnvSpec MakeSpec(const Recall::Options& options) {
  env::EnvSpec spec;
  spec.name = "recall";
  for (int i = 0; i < options.num_agents; ++i) {
    spec.possible_agents.push_back(env::AgentSpec{.id = env::AgentId(absl::StrCat("agent_", i)),
                                                  .observation_space = *space::Space::Box(0, 1, {options.num_cues + 2}),
                                                  .action_space = *space::Space::Discrete(options.num_cues)});
  }
  spec.max_episode_steps = options.delay + 2;
  return spec;
}

}  // namespace

Recall::Recall(const Options& options)
    : options_(options), spec_(MakeSpec(options)), cues_(static_cast<size_t>(options.num_agents)) {}

absl::StatusOr<std::unique_ptr<Recall>> Recall::Make(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_agents, args.GetInt("num_agents", 2, 1, 1024));
  options.num_agents = static_cast<int>(num_agents);
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_cues, args.GetInt("num_cues", 4, 2, 1024));
  options.num_cues = static_cast<int>(num_cues);
  TROUPE_ASSIGN_OR_RETURN(options.delay, args.GetInt("delay", 20, 0, kMaxDelay));
  TROUPE_ASSIGN_OR_RETURN(options.distractors, args.GetBool("distractors", false));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("recall"));
  return std::make_unique<Recall>(options);
}

absl::Status Recall::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  seed_ = seed;
  step_ = 0;
  const base::PhiloxKey key = base::PhiloxKey::Make(seed.seed, base::RandomStream::kReset);
  for (size_t i = 0; i < cues_.size(); ++i) {
    // A sequence an agent: its cue is the same however many others there are.
    base::PhiloxSequence random(key, {seed.env_id.value(), seed.episode, static_cast<uint32_t>(i), 0});
    cues_[i] = static_cast<int32_t>(random.Below(static_cast<uint32_t>(options_.num_cues)));
  }
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status Recall::Step(env::ActionRows actions, env::StepWriter& out) {
  for (int32_t i = 0; i < options_.num_agents; ++i) {
    const size_t a = static_cast<size_t>(i);
    if (actions[a] == nullptr) return absl::FailedPreconditionError(absl::StrCat("agent_", i, " did not act"));
    const int32_t answer = actions[a]->i32;
    if (answer < 0 || answer >= options_.num_cues) {
      return absl::InvalidArgumentError(
          absl::StrCat("agent_", i, ": action is ", answer, ", expected 0 to ", options_.num_cues - 1));
    }
    if (IsAsked()) out.AddReward(AgentSlot(i), answer == cues_[a] ? 1.0f : 0.0f);
  }
  ++step_;
  WriteObservations(out);
  if (step_ == options_.delay + 2) out.TerminateAll();
  return absl::OkStatus();
}

int32_t Recall::Shown(int32_t agent) const {
  if (step_ == 0) return cues_[static_cast<size_t>(agent)];
  if (!options_.distractors || step_ > options_.delay) return -1;
  base::PhiloxSequence random(
      base::PhiloxKey::Make(seed_.seed, base::RandomStream::kDynamics),
      {seed_.env_id.value(), seed_.episode, static_cast<uint32_t>(agent), static_cast<uint32_t>(step_)});
  return static_cast<int32_t>(random.Below(static_cast<uint32_t>(options_.num_cues)));
}

void Recall::WriteObservations(env::StepWriter& out) const {
  for (int32_t i = 0; i < options_.num_agents; ++i) {
    float* const row = out.ObserveFloat(AgentSlot(i));
    std::fill_n(row, options_.num_cues, 0.0f);
    if (const int32_t shown = Shown(i); shown >= 0) row[shown] = 1.0f;
    row[options_.num_cues] = step_ == 0 ? 1.0f : 0.0f;
    row[options_.num_cues + 1] = IsAsked() ? 1.0f : 0.0f;
  }
}

void RegisterMemory(env::EnvRegistry& registry) {
  registry.Register({.name = "recall",
                     .description = "K agents, each shown a cue once and asked for it after a delay: only memory helps",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return Recall::Make(std::move(args));
                     }});
}

}  // namespace troupe::envs
