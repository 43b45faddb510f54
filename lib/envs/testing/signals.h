#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/philox.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// `testing/signals`: two agents see an image each and name what is on it. For tests of bytes, masks and mixed actions.
///
/// For eight steps each agent gets a signal s in {0, 1, 2}, drawn anew each step.
/// Observation: the image, Box(0, 255, [4, 6, 1], uint8), whose columns 2s and 2s + 1 are 255, all others 0. With
/// argument `dict`: Dict{action_mask, image, state}, state = [both signals].
/// Action: Discrete(3), `pick`; with argument `hybrid`: Dict{aim: Box(-1, 1, [1]), pick: Discrete(3), switches:
/// MultiBinary(2)}. Masks forbid pick (s + 1) mod 3 and the second switch; an action that is forbidden is an error.
/// Reward: 1 if pick = s; with `hybrid` also 0.5 - 0.5 |aim - (s - 1)|.
/// End: TruncateAll after eight steps.
class Signals final : public env::MultiAgentEnv {
 public:
  Signals(bool dict, bool hybrid);
  /// Arguments `dict` and `hybrid` (false). INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<Signals>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  void Write(env::StepWriter& out);

  const env::EnvSpec spec_;
  const bool dict_;
  const bool hybrid_;
  base::PhiloxSequence random_;
  std::array<int32_t, 2> signal_{};
  int64_t t_ = 0;
};

}  // namespace troupe::envs
