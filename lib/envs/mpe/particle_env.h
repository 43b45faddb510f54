#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/envs/mpe/mpe_env.h"
#include "lib/envs/mpe/observation_row.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// Most agents or landmarks of one kind that an argument may ask for.
inline constexpr int kMaxParticles = 512;

/// The arguments that every environment of the family takes.
struct ParticleOptions {
  int64_t max_cycles = 25;          ///< env steps until truncation
  bool continuous_actions = false;  ///< Box(0, 1, [n]) in place of Discrete
  bool benchmark_data = false;      ///< info columns, where the original has benchmark data

  /// Reads these and mpe2's dynamic_rescaling and render_mode, which concern pictures and have no effect.
  /// INVALID_ARGUMENT for a wrong one and for a render_mode that is not null.
  static absl::StatusOr<ParticleOptions> Read(env::EnvArgs& args);
};

/// mpe2's partial observability: how many of the nearest other agents and landmarks an agent observes; -1: all.
struct NeighbourLimits {
  int agents = -1;
  int landmarks = -1;

  /// Reads num_agent_neighbors and num_landmark_neighbors. INVALID_ARGUMENT for less than 1.
  static absl::StatusOr<NeighbourLimits> Read(env::EnvArgs& args);
};

/// Reads `curriculum` and `curriculum_stage`. INVALID_ARGUMENT for a stage without a curriculum.
struct Curriculum {
  bool on = false;
  int stage = 0;

  static absl::StatusOr<Curriculum> Read(env::EnvArgs& args, int last_stage);
};

/// What a particle environment is made of.
struct ParticleLayout {
  struct Agent {
    std::string id;
    EntityTraits body;
    size_t observation_size = 0;
    std::vector<int> benchmark_columns;  ///< its part of `info_columns`, in the original's order; empty: all of them
  };
  std::string name;  ///< "mpe/simple_spread"
  std::vector<Agent> agents;
  std::vector<EntityTraits> landmarks;
  size_t channels = 0;                    ///< what an agent that is not silent says
  std::vector<std::string> info_columns;  ///< with benchmark_data
  int last_curriculum_stage = 0;
};

/// What all particle environments do: actions become forces and words, the world steps, rewards, observations, infos
/// and the global state are written, episodes are truncated. A scenario adds its reset, rewards and observations.
///
/// Discrete actions: move + 5 say, with move one of none, left, right, down, up for an agent that can move, and say the
/// channel on which an agent that is not silent says 1. Continuous ones, clipped to [0, 1]: five for an agent that can
/// move, with the force accel (a2 - a1, a4 - a3), then one a channel for one that is not silent. Global state: all
/// observations, one after another (PettingZoo's state()).
///
/// Not thread-safe. No heap allocation in Step.
class ParticleEnv : public MpeEnv {
 public:
  const env::EnvSpec& spec() const final { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) final;
  absl::Status ResetTo(const WorldState& state, env::StepWriter& out) final;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) final;
  /// Agents in colors, adversaries red, landmarks gray with their numbers; of few agents their names and what they say.
  absl::Status Draw(env::Canvas& canvas) const final;
  absl::Span<const int> benchmark_columns(env::AgentSlot slot) const final {
    return controls_[static_cast<size_t>(slot.value())].benchmark_columns;
  }
  int curriculum_stage() const final { return curriculum_stage_; }
  void SetCurriculumStage(int stage) final;

 protected:
  ParticleEnv(const ParticleLayout& layout, const ParticleOptions& options);

  /// A new episode: goals, then positions, in the original's order. The world is at rest.
  virtual void Begin(const env::EpisodeSeed& seed, base::PhiloxSequence& random) = 0;
  /// The same from a recorded world, which has been copied into world(). INVALID_ARGUMENT where it lacks something.
  virtual absl::Status BeginFrom(const WorldState& /*state*/) { return absl::OkStatus(); }
  /// After the world's step: what happens then, and every agent's reward.
  virtual void Score(absl::Span<double> rewards) = 0;
  /// After Score: whether the task is done, which terminates every agent.
  virtual bool Succeeded() const { return false; }
  /// After Begin and Score: what observations share.
  virtual void BeforeObservations() {}
  /// Writes the agent's observation whole.
  virtual void Observe(size_t agent, ObservationRow& row) = 0;
  /// After Score: the agent's benchmark data, one value a column of its own.
  virtual void Benchmark(size_t /*agent*/, absl::Span<double> /*values*/) const {}

  World& world() { return world_; }
  const World& world() const { return world_; }
  size_t num_agents() const { return world_.num_agents(); }

 private:
  /// How an agent's action reads.
  struct Control {
    bool moves = false;
    bool speaks = false;
    uint32_t choices = 1;  ///< of the discrete form
    size_t observation_size = 0;
    std::vector<int> benchmark_columns;
  };

  absl::Status ApplyActions(env::ActionRows actions);
  void WriteInfos(env::StepWriter& out);
  void WriteObservations(env::StepWriter& out);

  const ParticleOptions options_;
  const env::EnvSpec spec_;
  const int last_curriculum_stage_;
  World world_;
  std::vector<Control> controls_;
  int curriculum_stage_ = 0;
  int64_t cycle_ = 0;
  std::vector<double> rewards_;
  std::vector<double> infos_;  ///< scratch: of one agent
};

/// The index of the landmark with this name, counted from the first landmark. INVALID_ARGUMENT names the agent that
/// has no such goal.
absl::StatusOr<size_t> GoalLandmark(const WorldState& state, const WorldState::Entity& agent, const std::string& goal);

}  // namespace troupe::envs
