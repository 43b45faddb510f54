#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rollout/actor_map.h"
#include "lib/rollout/fragment_builder.h"
#include "lib/rollout/lane.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/rollout_config.h"
#include "lib/sample/grant.h"

namespace troupe::rollout {

/// By global env id.
using LaneMap = std::map<base::EnvId, std::unique_ptr<Lane>>;

/// Which policies a Collector's lanes play, and with which weights.
///
/// An actor is made when an episode needs it, at most policy_map_capacity are kept beyond those that episodes in
/// progress play (ActorMap), and their weights are what is subscribed to, with those of each environment's next
/// episode, whose mapping is drawn ahead. New weights are adopted with a grant: all rows of a policy in it have one
/// version, or, where the policy was evicted and fetched again within the grant, are stamped with the first.
///
/// Live changes: a grant's newer PolicyTable is adopted before it begins. Episodes in progress keep the policies they
/// were mapped to; one that plays a slot which has another policy now is given up and counted, and the lane begins its
/// next episode.
///
/// Made, owned and used by the Collector, in its thread; uses its builder and lanes, which outlive it. Blocks for
/// weights, as long as it is told. No heap allocation where no policy comes or goes.
class PolicyAdopter {
 public:
  /// Policy tables that episodes in progress are mapped by. With one more the oldest ones' episodes are given up.
  static constexpr size_t kMaxTablesInProgress = 32;

  /// Since it was made. A policy is looked up once in each grant that needs it.
  struct Counters {
    int64_t hits = 0;          ///< it was resident
    int64_t misses = 0;        ///< it was not
    int64_t evictions = 0;     ///< residents that left for another
    int64_t weight_waits = 0;  ///< its weights had not arrived when they were needed
    int64_t given_up = 0;      ///< episodes that ended as a policy that played in them was gone
  };

  PolicyAdopter(const RolloutConfig& config, FragmentBuilder& builder, LaneMap& lanes);
  PolicyAdopter(const PolicyAdopter&) = delete;
  PolicyAdopter& operator=(const PolicyAdopter&) = delete;

  /// Before the first grant. INVALID_ARGUMENT: a policy of the run cannot play.
  absl::Status Start();
  /// Another grant than before, which asks for weights of `min_version`.
  void BeginGrant(policy::WeightVersion min_version);
  /// Takes the grant's policy table; false: it is the one that there is. Who takes another looks ahead for the lanes in
  /// an episode. INVALID_ARGUMENT: it maps other agents than the environment has, is older than the one before, or has
  /// a policy that cannot play.
  absl::StatusOr<bool> AdoptTable(const sample::Grant& grant, WeightSource& weights);
  /// Adopts what the first steps of `granted` need; waits up to `timeout` for each: DEADLINE_EXCEEDED.
  absl::Status AdoptFirst(absl::Span<Lane* const> granted, WeightSource& weights, absl::Duration timeout);
  /// Adopts what the rows that wait for a decision need; waits as long as it takes. CANCELLED once `stop`.
  absl::Status AdoptOpen(WeightSource& weights, const std::atomic<bool>& stop);
  /// Asks for the policies of the lane's next episode.
  void LookAhead(Lane& lane, WeightSource& weights);
  /// Lets go what no episode in progress plays, beyond the capacity, and subscriptions that nobody needs.
  void Trim(WeightSource& weights);

  /// Of a policy that was adopted in this grant.
  ResidentActor& ActorOf(policy::PolicySlot slot) { return *actors_.Find(slot); }
  /// The weights that act in this grant.
  const policy::BySlot<policy::WeightVersion>& versions() const { return versions_; }
  size_t num_resident() const { return actors_.resident().size(); }
  const Counters& counters() const { return counters_; }

 private:
  /// What a slot is used for.
  struct SlotUse {
    int64_t adopted_in = 0;   ///< the last grant that adopted its policy
    int64_t sought_in = 0;    ///< the last grant that looked for it
    uint64_t needed_by = 0;   ///< the last Trim that found it wanted
    bool subscribed = false;  ///< stands in subscriptions_
  };

  absl::StatusOr<std::unique_ptr<ResidentActor>> MakeActor(const policy::PolicySpec& spec) const;
  /// The slot has a policy of this spec now.
  void NumberShape(policy::PolicySlot slot, const policy::PolicySpec& spec);
  /// INVALID_ARGUMENT: the table maps other agents than the environment has.
  absl::Status CheckTable(const sample::Grant& grant) const;
  /// Whether the episode in progress may go on with the policies as they are now; `since`: as since_.
  bool MayGoOn(const Lane& lane, const policy::BySlot<int64_t>& since) const;
  /// Before another table is adopted: the episodes that cannot go on by it, of the same learner or not.
  void GiveUpEpisodes(const policy::BySlot<int64_t>& since, bool same_learner);
  void GiveUpOldTables();
  void GiveUp(Lane& lane);
  /// Another policy is in the slot, or none.
  void Forget(policy::PolicySlot slot, WeightSource& weights);
  /// Makes the policy resident with weights for the grant in progress.
  absl::Status Adopt(policy::PolicySlot slot, WeightSource& weights, absl::Duration timeout);
  void Subscribe(policy::PolicySlot slot, WeightSource& weights);

  const RolloutConfig& config_;
  FragmentBuilder& builder_;  ///< has the policies as they are now
  LaneMap& lanes_;

  ActorMap actors_;
  policy::BySlot<int64_t> since_;          ///< revision that brought the policy; -1: free
  uint64_t learner_epoch_ = 0;             ///< whose table it is
  policy::BySlot<int32_t> shape_;          ///< number of the policy's shape; -1: actors of its class are made anew
  std::map<std::string, int32_t> shapes_;  ///< policy::ShapeOf -> number
  policy::BySlot<policy::WeightVersion> versions_;
  policy::BySlot<SlotUse> uses_;
  std::vector<policy::PolicySlot> subscriptions_;
  uint64_t trims_ = 0;
  std::vector<policy::PolicySlot> dropped_, first_;  ///< scratch
  int64_t grants_ = 0;                               ///< counts them, to tell one from the next
  policy::WeightVersion min_version_, newest_;       ///< of the grant in progress: what it asks for, the newest it has
  Counters counters_;
};

}  // namespace troupe::rollout
