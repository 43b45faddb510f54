#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/ids.h"
#include "lib/base/mutex.h"
#include "lib/env/env_spec.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::outside {

/// The policies that play a world outside, with the weights that a worker acts with, for clients that act by
/// themselves: who plays, and a number for what they act with.
///
/// Made and owned by an EpisodeBook. Thread-safe; never blocks. Numbers grow by one with each change of what acts, from
/// one that is drawn, so that another process's are not taken for one's own. Capacity: the weights that act, of
/// policies that clients may act as, and of the last kWeightsKept numbers which versions they were.
class ActingPolicies {
 public:
  /// All that a client needs to act.
  struct Players {
    uint64_t number = 0;
    std::vector<policy::PolicySpec> specs;           ///< of the policies that play some agent, each once
    std::vector<policy::WeightSnapshotPtr> weights;  ///< as specs
    std::vector<policy::MappingRule> rules;          ///< that decide, each for one policy
    std::vector<std::string> agent_ids;              ///< by agent slot
  };

  /// `spec`: the world's; it outlives this.
  explicit ActingPolicies(const env::EnvSpec& spec);

  /// The policies that the run begins with. Not OK: clients cannot act by themselves, whatever plays, and hear why.
  /// Before all else.
  void Begin(absl::StatusOr<policy::PolicyTablePtr> policies);

  // Of the stepping thread: as rollout::OutsideWorlds has them.
  void SetPolicies(policy::PolicyTablePtr policies);
  void SetWeights(policy::PolicySlot slot, policy::WeightSnapshotPtr weights, policy::WeightVersion version);
  std::optional<policy::WeightVersion> VersionOf(uint64_t number, base::AgentSlot agent, policy::PolicySlot slot) const;

  /// What acts now; 0: nothing yet.
  uint64_t number() const;
  /// OK for 0, the newest number and those before it; FAILED_PRECONDITION for others. Of those older than kWeightsKept
  /// nobody knows the version.
  absl::Status CheckNumber(uint64_t number) const;
  /// nullopt: some policy that plays has no weights yet. FAILED_PRECONDITION: a client cannot decide what a worker
  /// would, since a policy has no network of ours, continuous actions or other spaces than its agents, or since who
  /// plays an agent is drawn or asked.
  absl::StatusOr<std::optional<Players>> Now() const;

 private:
  /// Weights of a policy.
  struct Version {
    policy::WeightVersion made;     ///< which they are
    policy::WeightVersion current;  ///< as of which they acted
    int64_t since = 0;              ///< revision that brought the policy: whose they are
  };
  struct Numbered {
    uint64_t number = 0;
    std::vector<policy::PolicySlot> players;  ///< by agent slot
    std::map<policy::PolicySlot, Version> versions;
  };

  /// The policies that play, by agent slot. Errors are those of Now.
  absl::StatusOr<std::vector<policy::PolicySlot>> PlayersOf(const policy::PolicyTable& table) const;
  void TakeLocked(policy::PolicyTablePtr table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The newest number, which is another one than was ever told.
  Numbered& NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const env::EnvSpec& spec_;

  mutable base::Mutex mutex_;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  policy::PolicyTablePtr first_ ABSL_GUARDED_BY(mutex_);
  policy::PolicyTablePtr table_ ABSL_GUARDED_BY(mutex_);
  std::vector<policy::PolicySlot> players_ ABSL_GUARDED_BY(mutex_);  ///< by agent slot; empty: clients cannot act
  std::map<policy::PolicySlot, policy::WeightSnapshotPtr> weights_ ABSL_GUARDED_BY(mutex_);  ///< of players
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_);
  std::deque<Numbered> numbers_ ABSL_GUARDED_BY(mutex_);  ///< the newest last
  mutable bool told_ ABSL_GUARDED_BY(mutex_) = false;     ///< somebody knows of the newest number
};

}  // namespace troupe::outside
