#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/philox.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/registry.h"

namespace troupe::envs {

/// `recall`: K agents are each shown a cue of their own, one of `num_cues` that are equally likely, at the first
/// decision alone; at the last one, `delay` decisions later, they are asked for it. In between nothing is shown, or
/// with `distractors` other cues, drawn anew for each agent and step. Reward 1 for the right answer, else 0, at the
/// last step alone: an agent that does not remember gets 1 / num_cues on average, whatever it does.
///
/// Observation, float32 [num_cues + 2]: the cue that is shown, one-hot [0, num_cues), zeros for none; 1 where it is the
/// agent's own, which is the first decision; 1 where the agent is asked. Actions: Discrete(num_cues), the answer; what
/// is played before the last step has no effect. An episode has delay + 2 env steps, and is terminated for all, with a
/// last observation of zeros. No global state.
///
/// Not thread-safe. No heap allocation in Step.
class Recall final : public env::MultiAgentEnv {
 public:
  struct Options {
    int num_agents = 2;
    int num_cues = 4;
    int64_t delay = 20;
    bool distractors = false;
  };

  explicit Recall(const Options& options);
  /// Arguments num_agents, num_cues, delay, distractors. INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<Recall>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

  /// By agent slot, what is to be answered in this episode.
  absl::Span<const int32_t> cues() const { return cues_; }

 private:
  void WriteObservations(env::StepWriter& out) const;
  /// The cue that the agent is shown at this decision; -1: none.
  int32_t Shown(int32_t agent) const;
  bool IsAsked() const { return step_ == options_.delay + 1; }

  const Options options_;
  const env::EnvSpec spec_;
  std::vector<int32_t> cues_;
  env::EpisodeSeed seed_;
  int64_t step_ = 0;  ///< env steps of the episode so far
};

/// Adds `recall`.
void RegisterMemory(env::EnvRegistry& registry);

}  // namespace troupe::envs
