#pragma once

#include <cstddef>
#include <vector>

#include "lib/envs/mpe/assignment.h"
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

}  // namespace troupe::envs
