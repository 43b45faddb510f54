#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/registry.h"

namespace troupe::envs {

/// `catch` (after bsuite's, Osband et al. 2020), seen as an image: K agents each have a board of `cells` x `cells` of
/// their own. A ball falls straight down, a row a step, from a column of the top row that is drawn; a paddle of one
/// cell begins in the middle of the bottom row. Reward 1 where the paddle is under the ball when that reaches the
/// bottom row, else -1, at the last step alone. Whoever moves towards the ball catches it: the optimum is 1 an agent.
///
/// Observation, uint8 [size, size, 1]: black, the ball's cell 255, the paddle's 128; a cell is size / cells pixels high
/// and wide. Actions: Discrete(3): left, stay, right; at the edge the paddle stays. An episode has cells - 1 env steps
/// and is terminated for all. No global state.
///
/// Not thread-safe. No heap allocation in Step.
class Catch final : public env::MultiAgentEnv {
 public:
  struct Options {
    int num_agents = 2;
    int64_t size = 42;   ///< pixels; a multiple of cells
    int64_t cells = 14;  ///< at least 2
  };

  explicit Catch(const Options& options);
  /// Arguments num_agents, size, cells. INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<Catch>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;
  absl::Status Draw(env::Canvas& canvas) const override;

  /// By agent slot, columns.
  absl::Span<const int64_t> balls() const { return balls_; }
  absl::Span<const int64_t> paddles() const { return paddles_; }

 private:
  void WriteObservations(env::StepWriter& out) const;
  void Fill(int64_t row, int64_t column, uint8_t value, uint8_t* image) const;

  const Options options_;
  const env::EnvSpec spec_;
  std::vector<int64_t> balls_, paddles_;
  int64_t row_ = 0;  ///< of all balls
};

/// Adds `catch`.
void RegisterCatch(env::EnvRegistry& registry);

}  // namespace troupe::envs
