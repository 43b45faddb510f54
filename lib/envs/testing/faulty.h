#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// `testing/faulty`: two agents for ten steps, observation Box(-1, 1, [2]) = [slot, t / 10], Discrete(2), reward 1 a
/// step; it breaks the contract as told, in the Step to t = at_step (0: in Reset; missing_all: at the episode's end).
/// For tests of what the rest of the house does then.
class Faulty final : public env::MultiAgentEnv {
 public:
  enum class Fault {
    kNone,        ///< behaves
    kThrow,       ///< throws std::runtime_error
    kNanObs,      ///< agent_1 observes a NaN
    kWrongAgent,  ///< observes slot 2, which does not exist
    kOutOfSpace,  ///< agent_1 observes 5 where at most 1 is allowed
    kMissingAll,  ///< ends both agents but not the episode
    kBadStatus,   ///< returns UNAVAILABLE
  };

  Faulty(Fault fault, int64_t at_step, bool every_episode);
  /// Arguments `fault`, `at_step` (5), `every_episode` (true; false: only in the first one). INVALID_ARGUMENT names the
  /// bad one.
  static absl::StatusOr<std::unique_ptr<Faulty>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  absl::Status Write(env::StepWriter& out);

  const env::EnvSpec spec_;
  const Fault fault_;
  const int64_t at_step_;
  const bool every_episode_;
  int64_t episodes_ = 0;
  int64_t t_ = 0;
};

}  // namespace troupe::envs
