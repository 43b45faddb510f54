#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/sample/episode_entries.h"

namespace troupe::sample {

/// A policy of a run, as rules see it.
struct PolicyOfRun {
  policy::PolicyId id;  ///< empty: the slot is free
  int64_t since = 0;    ///< revision that brought it (PolicyEntry::since)
  bool plays = true;    ///< false: removed, only episodes that are under way play it
};

/// All of them.
using PoliciesOfRun = policy::BySlot<PolicyOfRun>;

/// One agent's part in one episode, as far as it is in a batch. Borrowed for the call.
struct Trajectory {
  policy::PolicySlot policy;
  base::AgentSlot slot;
  base::EnvId env_id;
  uint32_t episode = 0;
  absl::Span<const AgentEntry> agents = {};  ///< of the episode so far, with this one, ascending slot
};

/// Says whether a policy is trained on a trajectory: what `policies_to_train: {function: NAME}` names. Pure: the same
/// answer for the same arguments, wherever and whenever it is asked.
struct TrajectoryPredicate {
  std::string_view name;
  bool (*trains)(const Trajectory& trajectory, const PoliciesOfRun& policies);
};

/// A registered predicate; NOT_FOUND gives the nearest name, or all:
///   against_others  some other agent of the episode is played by another policy
///   self_play       every other agent of the episode is played by the same policy
absl::StatusOr<const TrajectoryPredicate*> FindTrajectoryPredicate(std::string_view name);

/// Trajectories of `policies` that meet every condition are trained on. Plain value.
struct TrainRule {
  std::vector<std::string> policies = {};      ///< ids or globs (policy::GlobMatches); empty: all
  std::vector<std::string> only_against = {};  ///< ids or globs: one of these plays another agent; empty: any
  int64_t only_newest = 0;    ///< of `policies` the so many that came last, by `since` and then slot; 0: any
  std::string function = {};  ///< a TrajectoryPredicate; empty: none
};

/// policies_to_train, asked per trajectory: rules against the policies of a run. One rule that holds is enough; without
/// rules every trajectory is trained on. Whether a policy trains at all (its class, freeze and thaw) is not asked here.
/// Not thread-safe while it is bound; the questions are.
class TrainRules {
 public:
  TrainRules() = default;
  /// NOT_FOUND for a function that is not registered.
  static absl::StatusOr<TrainRules> Make(std::vector<TrainRule> rules);

  /// The policies of the run from now on.
  void Bind(PoliciesOfRun policies);

  bool empty() const { return rules_.empty(); }
  /// Policies of slots that are not bound train on nothing.
  bool Trains(const Trajectory& trajectory) const;

 private:
  struct Bound {
    policy::BySlot<uint8_t> policies;  ///< the rule is for it
    policy::BySlot<uint8_t> only_against;
    const TrajectoryPredicate* predicate = nullptr;
  };
  bool Holds(size_t rule, const Trajectory& trajectory) const;

  std::vector<TrainRule> rules_;
  std::vector<Bound> bound_;  ///< by rule
  PoliciesOfRun policies_;
};

}  // namespace troupe::sample
