#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/mutex.h"
#include "lib/inference/actor.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/action_query.h"
#include "lib/serving/actor_tier.h"
#include "lib/serving/served_policy.h"
#include "lib/serving/turn_queue.h"
#include "lib/serving/weight_source.h"

namespace troupe::serving {

/// Answers queries with the newest weights it was given or, where it was given none, those of its WeightSource
/// (policies of a class without weights need none, and answer with version (0, 0)). Actors stand in a PolicyMap: they
/// are made when their policy is asked, and the least recently asked one makes room for the next.
///
/// Policies in this process are asked on the caller's thread. One in another process may take any time: a query that
/// asks it waits in a TurnQueue of its own memory, for threads that the owner brings (AwaitHosted, StepHosted), and its
/// actor stands in a map of its own, of kHostedActors. So a policy that hangs costs its own queries, and those that ask
/// it beside others.
///
/// Made and owned by a service. Thread-safe. A query waits for others of the same policy while they compute, for its
/// actor to be made (by one of the queries that want it), and, when more threads ask different policies than the map
/// holds, for one of those. SetWeights and SetPolicies wait for no query.
///
/// What a policy remembers is whoever asks's to keep: QueryRows::state_in and PolicyActions::state_out,
/// also over new weights.
///
/// Invariants: 1. all rows of a QueryRows are computed with one version, the newest when its turn came; 2. versions
/// only grow; 3. a query that fails changes nothing; 4. no two sampled queries share random numbers; 5. a query sees
/// the policies as one SetPolicies left them, those it asks until it is answered.
///
/// Randomness: samples are drawn from Philox, whose key is of `seed` and the streams kQuery and kAction, never that of
/// the run's rollouts; the counter is (request's ordinal, high and low word; agent slot; row of the request). Each
/// sampled request takes the next ordinal, from `first_request` on: the same seed and order of requests give the same
/// actions.
///
/// Capacity: kMaxQueryRows and kMaxAnswerBytes a query; policy_map_capacity actors; hosted_limits. Memory: the newest
/// snapshot of every policy that was handed in, and for each actor its packed weights and room for its largest query.
class QueryEngine final : public ActionQueries {
 public:
  /// Actors of policies in another process, and threads that StepHosted at a time: so no actor is waited for.
  static constexpr int kHostedActors = 8;
  struct Options {
    uint64_t seed = 1;
    uint64_t first_request = 0;  ///< ordinal of the first sampled request: a process that takes over skips those before
    inference::Backend backend = inference::Backend::kAuto;
    int64_t policy_map_capacity = 100;  ///< actors in memory, at least 1
    WeightSource* source = nullptr;     ///< of weights that were not handed in; outlives the engine
    std::shared_ptr<inference::ActorHost> actor_host = nullptr;  ///< for policies in another process; nobody else's
    TurnQueue::Limits hosted_limits;                             ///< of queries that ask those
  };

  /// INVALID_ARGUMENT: a spec is invalid, two have one id, an option is out of range.
  static absl::StatusOr<std::unique_ptr<QueryEngine>> Create(absl::Span<const policy::PolicySpec> specs,
                                                             Options options);
  ~QueryEngine() override;

  /// From now on the table's active policies are the ones that may be asked. Those that stay keep their weights; a new
  /// one, also one in place of another of its id, has none. RESOURCE_EXHAUSTED, and nothing changed, when queries hold
  /// too many removed policies.
  absl::Status SetPolicies(const policy::PolicyTable& table);

  /// Weights for the policy of their id, from its next turn on; ignored when not newer than what there is. NOT_FOUND
  /// for an unknown policy, INVALID_ARGUMENT when they do not fit; the old ones stay then.
  absl::Status SetWeights(policy::WeightSnapshotPtr weights);

  /// As ComputeActions, by return and on the caller's thread, whatever it asks: blocks on policies in other processes.
  absl::StatusOr<ActionAnswer> Compute(const ActionQuery& query);
  /// Answers before it returns, unless a policy in another process is asked. RESOURCE_EXHAUSTED also: hosted_limits;
  /// CANCELLED: closed.
  GiveUp ComputeActions(const ActionQuery& query, Done done) override;
  absl::StatusOr<PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) override;

  /// For at most kHostedActors threads: `while (engine.AwaitHosted()) engine.StepHosted();`. AwaitHosted blocks until
  /// there is something to do, and is false once closed; StepHosted asks one policy in another process, which may take
  /// any time.
  bool AwaitHosted() { return turns_.Await(); }
  void StepHosted();
  /// Queries that wait for such policies are answered CANCELLED, and so are those that are being asked, as soon as the
  /// actor host has stopped.
  void CloseHosted();

  /// Queries that ask policies in other processes, and are not through.
  int64_t num_hosted_queries() const { return turns_.count(); }

  /// Of the actors in this process.
  policy::PolicyMapStats MapStats() const { return actors_.map->core().Stats(); }

 private:
  using ActorMap = policy::PolicyMap<ServingActor>;
  struct Route {
    std::shared_ptr<ServedPolicy> policy;
    int64_t since = 0;                      ///< revision that brought it; kSinceCreate: was there before any table
    std::vector<int32_t> agent_slots = {};  ///< of the agents that may play it; none before any table
  };
  /// Who may be asked, as one SetPolicies left it.
  struct Routes {
    std::map<std::string, Route> by_id;
    std::vector<std::string> agent_ids;  ///< of the run, by slot; none before any table
  };
  using Policies = std::vector<std::shared_ptr<ServedPolicy>>;
  /// A map, and its readers that no query uses.
  struct Actors {
    std::unique_ptr<ActorMap> map;  ///< set by Create, then constant
    base::Mutex mutex;
    std::vector<std::unique_ptr<ActorMap::Reader>> idle_readers ABSL_GUARDED_BY(mutex);
  };
  /// A policy that nobody asks any more, and its actor.
  struct Gone {
    std::shared_ptr<ServedPolicy> policy;
    policy::PolicyTier::Value actor;
  };
  class ReaderLease;
  class HostedQuery;
  class HostedFarewell;

  explicit QueryEngine(const Options& options);
  absl::Status AdmitAll(absl::Span<const policy::PolicySpec> specs);
  /// Whether the table's policy is the one that is served under its id already.
  static bool IsStill(const Route& route, const policy::PolicyEntry& entry, const policy::PolicyTable& table);

  /// The route to a policy; lives as long as `routes`.
  static absl::StatusOr<const Route*> Find(const Routes& routes, const policy::PolicyId& id);
  /// What is asked of each QueryRows, or why the query is refused.
  static absl::StatusOr<Policies> Check(const Routes& routes, const ActionQuery& query);
  absl::StatusOr<ActionAnswer> Answer(const ActionQuery& query, const Policies& policies);
  GiveUp Enqueue(const ActionQuery& query, Policies policies, Done done);
  /// The ordinal of a query.
  uint64_t NextRequest(bool deterministic) {
    return deterministic ? 0 : next_request_.fetch_add(1, std::memory_order_relaxed);
  }
  Actors& ActorsOf(const ServedPolicy& policy) { return policy.runs_elsewhere() ? hosted_actors_ : actors_; }
  /// `first_row`: of these rows in the request.
  absl::StatusOr<PolicyActions> Act(const ServedPolicy& policy, const QueryRows& rows, uint64_t request,
                                    int64_t first_row, bool deterministic);

  std::shared_ptr<const Routes> CurrentRoutes() const;
  absl::StatusOr<std::shared_ptr<ServedPolicy>> AdmitLocked(const policy::PolicySpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  /// Frees the slots of removed policies that no query holds any more. What it gives ends in BidFarewell, after the
  /// lock.
  std::vector<Gone> FreeRetiredLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void FreeRetired();
  /// Actors in other processes take their time to end: that is StepHosted's.
  void BidFarewell(std::vector<Gone> gone);

  const Options options_;
  ActorTier tier_;
  Actors actors_;
  Actors hosted_actors_;
  std::atomic<uint64_t> next_request_;   ///< relaxed: a number, it orders nothing
  std::atomic<int64_t> num_retired_{0};  ///< relaxed: a hint to look at retired_

  mutable base::Mutex routes_mutex_;  ///< taken after change_mutex_
  std::shared_ptr<const Routes> routes_ ABSL_GUARDED_BY(routes_mutex_);

  base::Mutex change_mutex_;  ///< one change of the policies at a time
  std::vector<std::shared_ptr<ServedPolicy>> retired_ ABSL_GUARDED_BY(change_mutex_);
  std::vector<policy::PolicySlot> free_slots_ ABSL_GUARDED_BY(change_mutex_);
  int32_t next_slot_ ABSL_GUARDED_BY(change_mutex_) = 0;

  TurnQueue turns_;  ///< last, so that what waits is gone before what it uses; keys are slots, and kFarewell
};

}  // namespace troupe::serving
