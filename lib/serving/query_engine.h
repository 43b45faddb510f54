#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/mutex.h"
#include "lib/inference/actor_host.h"
#include "lib/inference/backend.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/action_query.h"
#include "lib/serving/actor_tier.h"
#include "lib/serving/batch_lane.h"
#include "lib/serving/query_outputs.h"
#include "lib/serving/serving_actor.h"
#include "lib/serving/turn_queue.h"
#include "lib/serving/weight_source.h"

namespace troupe::serving {

class ServedPolicy;

/// Answers queries with the newest weights it was given or, where it was given none, those of its WeightSource
/// (policies of a class without weights need none, and answer with version (0, 0)). Actors stand in a PolicyMap: they
/// are made when their policy is asked, and the least recently asked one makes room for the next.
///
/// Policies in this process are asked on a caller's thread: an idle one at once, a busy one by who asks it just then,
/// together with what else has queued (BatchLane). So with more than one query at a time a policy answers another one's
/// caller. One in another process may take any time: a query that
/// asks it waits in a TurnQueue of its own memory, for threads that the owner brings (AwaitHosted, StepHosted), and its
/// actor stands in a map of its own, of kHostedActors. So a policy that hangs costs its own queries, and those that ask
/// it beside others.
///
/// Weights beside the newest stand under labels (SetLabel): a label's policy has an actor of its own in the same map.
///
/// Made and owned by a service. Thread-safe. A query waits for the batch in hand of its policy, for its actor to be
/// made (by one of the queries that want it), and, when more threads ask different policies than the map holds, for one
/// of those. SetWeights, SetLabel and SetPolicies wait for no query.
///
/// What a policy remembers is whoever asks's to keep: QueryRows::state_in and PolicyActions::state_out,
/// also over new weights.
///
/// Invariants: 1. all rows of a QueryRows are computed with one version, the newest when its turn came; 2. versions
/// only grow; 3. a query that fails changes nothing, and fails no other; 4. no two sampled queries without a seed share
/// random numbers; 5. a query sees the policies as one SetPolicies left them, those it asks until it is answered.
///
/// Randomness: samples are drawn from Philox, whose key is of `seed` and the streams kQuery and kAction, never that of
/// the run's rollouts; the counter is (request's ordinal, high and low word; agent slot; row of the request). Each
/// sampled request takes the next ordinal, from `first_request` on: the same seed and order of requests give the same
/// actions. A query with a seed of its own takes none: its key is of that seed, its ordinal 0.
///
/// Capacity: kMaxQueryRows and kMaxAnswerBytes a query; policy_map_capacity actors; queue_limits of what waits for
/// policies of this process, hosted_limits; kMaxLabels. Memory: the newest
/// snapshot of every policy that was handed in, and for each actor its packed weights and room for its largest query.
class QueryEngine final : public ActionQueries {
 public:
  /// Actors of policies in another process, and threads that StepHosted at a time: so no actor is waited for.
  static constexpr int kHostedActors = 8;
  static constexpr size_t kMaxLabels = 8;
  struct Options {
    uint64_t seed = 1;
    uint64_t first_request = 0;  ///< ordinal of the first sampled request: a process that takes over skips those before
    inference::Backend backend = inference::Backend::kAuto;
    int64_t policy_map_capacity = 100;  ///< actors in memory, at least 1
    WeightSource* source = nullptr;     ///< of weights that were not handed in; outlives the engine
    bool has_values = false;            ///< sources (SetSource, SetLabel) have the policies' value networks
    std::shared_ptr<inference::ActorHost> actor_host = nullptr;  ///< for policies in another process; nobody else's
    TurnQueue::Limits hosted_limits;                             ///< of queries that ask those
    BatchBudget::Limits queue_limits;                            ///< of queries that wait for the others
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

  /// As SetWeights, with weights that `source` has: they are read when the policy is asked, at most once a version.
  /// Its error then is the query's answer. `weights`: they were read already.
  absl::Status SetSource(const policy::PolicyId& id, policy::WeightVersion version,
                         std::shared_ptr<WeightSource> source, policy::WeightSnapshotPtr weights = nullptr);
  /// `weights` stand under `label`, by policy id, in the place of what stood there; none: the label is gone. Queries
  /// that are on their way keep what they asked. A policy that is removed or replaced loses its labels.
  /// INVALID_ARGUMENT: no label (CheckLabel), or weights that do not fit; NOT_FOUND unknown policy; RESOURCE_EXHAUSTED
  /// more than kMaxLabels, or queries hold too many removed ones; nothing changed then.
  absl::Status SetLabel(const std::string& label, const std::map<std::string, OfferedWeights>& weights);
  /// INVALID_ARGUMENT unless `label` is [a-z][a-z0-9_.-]{0,63} and not "latest".
  static absl::Status CheckLabel(const std::string& label);

  /// As ComputeActions, by return and on the caller's thread, whatever it asks, part by part and beside the lanes:
  /// blocks on policies in other processes, and on who computes with the same actors.
  absl::StatusOr<ActionAnswer> Compute(const ActionQuery& query);
  /// Answers before it returns where its policies are idle and in this process. RESOURCE_EXHAUSTED also: queue_limits,
  /// hosted_limits; CANCELLED: closed.
  GiveUp ComputeActions(const ActionQuery& query, Done done) override;
  absl::StatusOr<PolicyDescriptions> DescribePolicies(const std::vector<policy::PolicyId>& ids) override;
  PolicyDescriptions ListPolicies() override;

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

  /// Queries that wait for policies of this process.
  int64_t num_waiting() const { return budget_.count(); }
  /// What was computed together. Plain value.
  struct BatchStats {
    int64_t batches = 0;  ///< forwards
    int64_t queries = 0;  ///< that they answered: parts of queries, by policy
  };
  BatchStats batch_stats() const {
    return {batches_.load(std::memory_order_relaxed), batched_.load(std::memory_order_relaxed)};
  }
  /// Of the actors in this process.
  policy::PolicyMapStats MapStats() const { return actors_.map->core().Stats(); }

 private:
  using ActorMap = policy::PolicyMap<ServingActor>;
  struct Route {
    std::shared_ptr<ServedPolicy> policy;
    int64_t since = 0;                      ///< revision that brought it; kSinceCreate: was there before any table
    std::vector<int32_t> agent_slots = {};  ///< of the agents that may play it; none before any table
    std::map<std::string, std::shared_ptr<ServedPolicy>> labels = {};
  };
  /// Who may be asked, as one SetPolicies left it.
  struct Routes {
    std::map<std::string, Route> by_id;
    std::vector<std::string> agent_ids;             ///< of the run, by slot; none before any table
    std::map<std::string, int32_t> slot_of;         ///< of agent_ids
    std::vector<std::vector<std::string>> players;  ///< ids of the policies that may play an agent, by slot
  };
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
  /// Rows for one policy on their way: what is asked, by whose numbers, and what came of it.
  struct Part {
    std::shared_ptr<ServedPolicy> policy;
    QueryRows rows;                    ///< agent_slots are those of the agents that it names
    std::vector<int32_t> agent_slots;  ///< where it names agents: what rows.agent_slots borrows
    QueryOutputs outputs;
    int64_t exact_version = -1;  ///< the number of updates that the weights must have; -1: any
    bool deterministic = false;
    std::optional<uint64_t> seed;  ///< of the actor's samples, where the query has one
    uint64_t request = 0;          ///< ordinal of the query
    int64_t first_row = 0;         ///< of the query, that is the part's first
    PolicyActions actions;

    /// Parts of equal mode may share a forward.
    bool SameMode(const Part& other) const { return deterministic == other.deterministic && seed == other.seed; }
  };
  class ReaderLease;
  class Query;
  class HostedQuery;
  class HostedFarewell;
  class Forward;

  explicit QueryEngine(const Options& options);
  absl::Status AdmitAll(absl::Span<const policy::PolicySpec> specs);
  /// Whether the table's policy is the one that is served under its id already.
  static bool IsStill(const Route& route, const policy::PolicyEntry& entry, const policy::PolicyTable& table);

  /// The route to a policy; lives as long as `routes`.
  static absl::StatusOr<const Route*> Find(const Routes& routes, const policy::PolicyId& id);
  /// The route to the policy that plays the agents of `rows`, whose slots go to `part`.
  static absl::StatusOr<const Route*> FindByAgents(const Routes& routes, const QueryRows& rows, Part* part);
  /// The weights that `rows` asks for.
  static absl::Status PickVersion(const Route& route, const QueryRows& rows, Part* part);
  static absl::StatusOr<Part> CheckPart(const Routes& routes, const ActionQuery& query, const QueryRows& rows);
  /// What is asked of each QueryRows, or why the query is refused.
  absl::StatusOr<std::vector<Part>> Check(const Routes& routes, const ActionQuery& query);
  absl::StatusOr<ActionAnswer> Answer(std::vector<Part> parts);
  GiveUp Enqueue(std::vector<Part> parts, Done done);
  /// Answers a query of one part, whose lane the caller leads, then computes what has queued there meanwhile.
  void AnswerAlone(Part part, const Done& done);
  /// Computes what was taken from the policy's lane, parts of equal mode together, and answers.
  void RunBatch(const ServedPolicy& policy, const std::vector<BatchWork*>& batch);
  /// The ordinal of a query.
  uint64_t NextRequest(const ActionQuery& query) {
    return query.deterministic || query.seed.has_value() ? 0 : next_request_.fetch_add(1, std::memory_order_relaxed);
  }
  Actors& ActorsOf(const ServedPolicy& policy);
  /// The policy's value network with the weights of the version that its actor has.
  absl::Status PrepareValues(const ServedPolicy& policy, const OfferedWeights& newest, ServingActor* resident) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(resident->mutex);
  /// Computes parts of one policy and one mode in one forward, or two where means of samples are asked for, and writes
  /// their actions.
  absl::Status Act(const ServedPolicy& policy, absl::Span<Part* const> parts);

  std::shared_ptr<const Routes> CurrentRoutes() const;
  /// Those of `leaving` that `staying` lacks are nobody's to ask any more.
  void RetireLocked(const Routes& leaving, const Routes& staying) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
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
  std::atomic<uint64_t> next_request_;            ///< relaxed: a number, it orders nothing
  std::atomic<int64_t> num_retired_{0};           ///< relaxed: a hint to look at retired_
  std::atomic<int64_t> batches_{0}, batched_{0};  ///< relaxed: numbers
  BatchBudget budget_;                            ///< before the policies, whose lanes use it

  mutable base::Mutex routes_mutex_;  ///< taken after change_mutex_
  std::shared_ptr<const Routes> routes_ ABSL_GUARDED_BY(routes_mutex_);

  base::Mutex change_mutex_;  ///< one change of the policies at a time
  std::vector<std::shared_ptr<ServedPolicy>> retired_ ABSL_GUARDED_BY(change_mutex_);
  std::vector<policy::PolicySlot> free_slots_ ABSL_GUARDED_BY(change_mutex_);
  int32_t next_slot_ ABSL_GUARDED_BY(change_mutex_) = 0;

  TurnQueue turns_;  ///< last, so that what waits is gone before what it uses; keys are slots, and kFarewell
};

}  // namespace troupe::serving
