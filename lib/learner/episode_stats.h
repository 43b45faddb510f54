#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/ids.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// Least, mean and largest of some values. Plain value.
struct Spread {
  int64_t count = 0;
  double min = 0;
  double max = 0;
  double sum = 0;

  void Add(double value);
  bool empty() const { return count == 0; }
  /// nullopt of no values.
  std::optional<double> mean() const;
};

/// What some episodes came to: of all agents, and by agent and policy. Plain value.
struct EpisodeStats {
  Spread return_sum;           ///< of all agents of an episode together
  Spread return_mean;          ///< over the agents that took part
  Spread length;               ///< env steps
  std::vector<Spread> agents;  ///< by agent slot: its returns
  /// The returns of the agents that a policy played.
  policy::BySlot<Spread> policies;
  std::vector<std::pair<std::string, double>> infos;  ///< info columns that have a value: their means

  int64_t episodes() const { return return_sum.count; }
  EpisodeStats() = default;
  EpisodeStats(size_t num_agents, size_t num_policies) : agents(num_agents), policies(num_policies) {}

  /// An episode: returns by agent slot, NaN for who was not in it, and who played them, kNoPolicy: nobody known. Agents
  /// and policies beyond those it was made for are left out.
  void Add(double length, absl::Span<const double> returns, absl::Span<const policy::PolicySlot> policies);
  /// The same with a sum that is known better: of agents that returned `returns` has means.
  void Add(double return_sum, double length, absl::Span<const double> returns,
           absl::Span<const policy::PolicySlot> policies);
};

/// An episode's return of all agents together: `returns` by agent slot, NaN for who was not in it, are means over the
/// so many trajectories of an agent (empty: one each).
double ReturnSum(absl::Span<const double> returns, absl::Span<const int32_t> trajectories);

/// Whether two agents of an episode got different returns, by more than the rounding of a common reward.
bool ReturnsDiffer(absl::Span<const float> returns);
/// Of any of the episodes.
bool ReturnsDiffer(absl::Span<const sample::FinishedEpisode> episodes);

}  // namespace troupe::learner
