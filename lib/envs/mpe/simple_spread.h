#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/envs/mpe/nearest.h"
#include "lib/envs/mpe/particle_env.h"

namespace troupe::envs {

/// `mpe/simple_spread`: N agents shall cover N landmarks and not collide; equal to simple_spread_v3 of mpe2 1.1.1 in
/// dynamics, observations, rewards and options (Lowe et al., "Multi-Agent Actor-Critic for Mixed
/// Cooperative-Competitive Environments", 2017).
///
/// Observation of an agent, float32: own velocity (2), own position (2), positions of landmarks and then of other
/// agents relative to it (2 each), what the others say (2 each; they are silent: 0). With neighbour limits only the
/// nearest, nearest first, padded with 0. Reward of agent i: (1 - local_ratio) * -(sum over landmarks of the distance
/// to the nearest agent) + local_ratio * -(number of agents that it touches). A stage that is set counts from the next
/// step on.
///
/// Not thread-safe. No heap allocation in Step.
class SimpleSpread final : public ParticleEnv {
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

 private:
  void Begin(const env::EpisodeSeed& seed, base::PhiloxSequence& random) override;
  void Score(absl::Span<double> rewards) override;
  bool Succeeded() const override;
  void Observe(size_t agent, ObservationRow& row) override;
  void Benchmark(size_t agent, absl::Span<double> values) const override;

  void CountTouches();
  void MeasureLandmarks();

  const Options options_;
  double covered_ = 0;           ///< minus the sum of nearest_
  std::vector<double> touches_;  ///< of every agent
  std::vector<double> nearest_;  ///< of every landmark: distance to the nearest agent
  Neighbours landmarks_;
  Neighbours others_;
};

}  // namespace troupe::envs
