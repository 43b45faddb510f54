#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/envs/mpe/mpe_env.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// `mpe/simple_spread`: N agents shall cover N landmarks and not collide; equal to simple_spread_v3 of mpe2 1.1.1 in
/// dynamics, observations, rewards and options (Lowe et al., "Multi-Agent Actor-Critic for Mixed
/// Cooperative-Competitive Environments", 2017).
///
/// Observation of an agent, float32: own velocity (2), own position (2), positions of landmarks and then of other
/// agents relative to it (2 each), what the others say (2 each; they are silent: 0). With neighbour limits only the
/// nearest, nearest first, padded with 0. Actions: Discrete(5) = none, left, right, down, up; or Box(0, 1, [5]) with
/// the force 5 (a2 - a1, a4 - a3), clipped to the box first. Reward of agent i: (1 - local_ratio) * -(sum over
/// landmarks of the distance to the nearest agent)
///                    + local_ratio * -(number of agents that it touches).
/// Global state: all observations, one after another (PettingZoo's state()).
///
/// Not thread-safe. No heap allocation in Step.
class SimpleSpread final : public MpeEnv {
 public:
  struct Options {
    int num_agents = 3;        ///< N, also of landmarks
    double local_ratio = 0.5;  ///< in [0, 1]
    int64_t max_cycles = 25;   ///< env steps until truncation
    bool continuous_actions = false;
    bool benchmark_data = false;        ///< info columns benchmark_reward, collisions, min_dists, occupied_landmarks
    bool curriculum = false;            ///< stage 0: touching costs nothing; stage 1: it does
    int curriculum_stage = 0;           ///< stage to start with
    bool terminate_on_success = false;  ///< ends when each landmark has an agent within 0.1
    int num_agent_neighbors = -1;       ///< other agents observed, nearest first; -1: all, in order
    int num_landmark_neighbors = -1;    ///< likewise
  };

  explicit SimpleSpread(const Options& options);
  /// Reads mpe2's arguments (see docs/environments.md). INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<SimpleSpread>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status ResetTo(const WorldState& state, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

  int curriculum_stage() const { return curriculum_stage_; }
  /// The next stage; nothing happens in the last one.
  void AdvanceCurriculum() { SetCurriculumStage(curriculum_stage_ + 1); }
  /// Brought into [0, 1].
  void SetCurriculumStage(int stage);

 private:
  /// An entity as one agent sees it, for neighbour limits.
  struct Neighbour {
    double distance = 0;
    int entity = 0;
  };

  absl::Status ApplyActions(env::ActionRows actions);
  void CountTouches();
  void MeasureLandmarks();
  void WriteRewards(env::StepWriter& out);
  void WriteObservations(env::StepWriter& out);
  /// Relative positions of the entities [first, first + count) but `self`, nearest `limit` (-1: all); where the row
  /// goes on.
  float* WriteRelative(int self, int first, int count, int limit, float* row);

  const Options options_;
  const env::EnvSpec spec_;
  const size_t observation_size_;
  World world_;
  int curriculum_stage_ = 0;
  int64_t cycle_ = 0;
  std::vector<int> touches_;           ///< of every agent
  std::vector<double> nearest_;        ///< of every landmark: distance to the nearest agent
  std::vector<Neighbour> neighbours_;  ///< scratch
};

}  // namespace troupe::envs
