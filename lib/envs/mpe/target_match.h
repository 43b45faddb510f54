#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/envs/mpe/assignment.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// As many places as agents, and how far the agents are from them when each goes to another one and the sum of the
/// distances is least. No allocation after construction.
class TargetMatch {
 public:
  explicit TargetMatch(size_t count)
      : target_x(count), target_y(count), cost_(count * count), distances_(count), assignment_(count) {}

  /// Matches the agents' positions. The reward: minus the mean of min(distance, 2).
  double Score(const World& world);
  /// Whether every agent was within 0.05 of its place at the last Score.
  bool Reached() const;

  std::vector<double> target_x, target_y;

 private:
  std::vector<double> cost_;       ///< [agents, places]
  std::vector<double> distances_;  ///< of every agent to its place
  Assignment assignment_;
};

/// The arguments of an environment in which agents take places.
struct TargetOptions {
  size_t agents = 4;
  bool terminate_on_success = false;
  ParticleOptions common;

  /// INVALID_ARGUMENT names the bad one of environment `name`'s arguments.
  static absl::StatusOr<TargetOptions> Read(env::EnvArgs& args, const std::string& name);
};

/// N agents take places that landmarks say: `simple_formation` and `simple_line`. Everybody's reward is that of the
/// match; observed are the own velocity and position and all landmarks.
class TargetEnv : public ParticleEnv {
 protected:
  /// Agents "agent_0", … of `body` among `landmarks`.
  TargetEnv(const std::string& name, const EntityTraits& body, std::vector<EntityTraits> landmarks,
            const TargetOptions& options);

  /// Writes target_x and target_y, after every step of the world.
  virtual void PlaceTargets(TargetMatch& match) const = 0;

 private:
  void Score(absl::Span<double> rewards) final;
  bool Succeeded() const final { return terminate_on_success_ && match_.Reached(); }
  void Observe(size_t agent, ObservationRow& row) final;

  const bool terminate_on_success_;
  TargetMatch match_;
};

}  // namespace troupe::envs
