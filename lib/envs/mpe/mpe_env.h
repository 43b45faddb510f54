#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// An environment of the particle-world family: a MultiAgentEnv that can also start from a given world.
class MpeEnv : public env::MultiAgentEnv {
 public:
  /// Like Reset, from these positions, velocities, goals and so on. INVALID_ARGUMENT when the numbers of agents or
  /// landmarks differ or a goal is missing.
  virtual absl::Status ResetTo(const WorldState& state, env::StepWriter& out) = 0;
  /// Whether random numbers have decided something since the last ResetTo: a recorded episode went another way there.
  virtual bool has_drawn() const { return false; }
  /// The info columns that hold what mpe2's benchmark_data gives for this agent, in its order; empty without
  /// benchmark_data.
  virtual absl::Span<const int> benchmark_columns(env::AgentSlot slot) const = 0;

  /// The stage of a curriculum, 0 where there is none.
  virtual int curriculum_stage() const = 0;
  /// Brought into the range of stages. When it takes effect is said where the environment is described.
  virtual void SetCurriculumStage(int stage) = 0;
  /// The next stage; nothing happens in the last one.
  void AdvanceCurriculum() { SetCurriculumStage(curriculum_stage() + 1); }
};

/// The environment with mpe2's name ("simple_spread_v3") or ours ("mpe/simple_spread"). NOT_FOUND for one that is not
/// built in, INVALID_ARGUMENT for bad arguments.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeMpeEnv(std::string_view name, env::EnvArgs args);

}  // namespace troupe::envs
