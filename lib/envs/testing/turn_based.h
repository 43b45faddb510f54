#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// `testing/turn_based`: two players take turns, a third comes later and leaves early. Nothing is random, so that tests
/// can write down the rows that must come out. t is the number of Steps so far in the episode (0 at Reset); x = env_id
/// + episode.
///
/// Length: the episode ends at t = L, L = 4 + x mod 3 (or the argument `length`, any number from 1).
/// Agents, in slot order:
///   alice  observes at t = 0, 2, 4, …        (so she acts in the Steps to t = 1, 3, 5, …)
///   bob    observes at t = 1, 3, 5, …        (and acts in the Steps to t = 2, 4, 6, …)
///   carol  observes at every t = 2, 3, 4     (and acts in the Steps to t = 3 and 4); at t = 4 she leaves: truncated
///   when x is odd, else
///          terminated. (Not when the episode has ended before or ends at t = 4: then `__all__` ends her.)
/// Observation rows, float32:  alice, bob: [slot, t, own last action (-1: none yet), L];  carol: [t, own last action].
/// Actions: alice, bob: Discrete(3) with a mask that forbids action t mod 3; carol: Discrete(2) without mask.
/// Agent mask: bob's and carol's rows observed at t = 3 are inactive, all others active.
/// Rewards of the Step to t, in which the player p of the turn chose action a:
///   p gets -0.5 at once (it is not observed now: it waits in p's pending transition);
///   the other player gets a, if it has acted before (it may be not ready: pending too);
///   carol, if she acted, gets 1 + her action.
/// End: L even: TerminateAll and nobody is observed. L odd: TruncateAll, and every agent that is not done and has been
/// observed before is
///   observed once more, ready or not.
/// Global state (argument `state`): "none", "per_env" (default): [t, L]; "per_agent": [t, slot].
/// Info column `turn`: t, for whoever observes.
class TurnBased final : public env::MultiAgentEnv {
 public:
  static constexpr int32_t kAlice = 0;
  static constexpr int32_t kBob = 1;
  static constexpr int32_t kCarol = 2;

  TurnBased(env::StateKind state_kind, int64_t fixed_length);
  /// Arguments `state` and `length` (null: by the rule above). INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<TurnBased>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  void WriteObservations(bool everybody, env::StepWriter& out) const;
  void WriteRow(int32_t slot, env::StepWriter& out) const;

  const env::EnvSpec spec_;
  const int64_t fixed_length_;  ///< -1: by the rule
  uint64_t x_ = 0;
  int64_t length_ = 0;
  int64_t t_ = 0;
  std::array<int32_t, 3> last_action_{};
  bool carol_left_ = false;
};

}  // namespace troupe::envs
