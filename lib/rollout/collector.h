#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_mapping.h"
#include "lib/rollout/actor_map.h"
#include "lib/rollout/fragment_builder.h"
#include "lib/rollout/incident_log.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/rollout_options.h"
#include "lib/sample/env_report.h"
#include "lib/sample/grant.h"

namespace troupe::rollout {

/// Makes an environment of the run. Called once for every lane, on the collector's thread.
using EnvFactory = std::function<absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>()>;

/// What sampling needs to know of a run. Plain value.
struct RolloutConfig {
  env::EnvSpec env_spec;                     ///< every environment's; a factory that gives another is an error
  std::vector<policy::PolicySpec> policies;  ///< by policy slot
  std::shared_ptr<const policy::PolicyMapping> mapping;  ///< asked once per agent and episode
  EnvFactory env_factory;
  /// What else went wrong in the environments that it made, but for `errors`. Asked on the collector's thread; may be
  /// empty.
  std::function<sample::EnvCounters()> env_counters;
  RolloutOptions options;
  inference::Backend backend = inference::Backend::kAuto;
  std::shared_ptr<policy::MappingHost> mapping_host = nullptr;  ///< for mapping functions in another process
  std::shared_ptr<inference::ActorHost> actor_host = nullptr;   ///< for policies in another process
};

/// Totals since the collector was made.
struct RolloutStats {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;  ///< rows handed on with agent_mask 1
  int64_t episodes = 0;     ///< that ended by themselves
  int64_t fragments = 0;
  int64_t env_errors = 0;    ///< Resets and Steps that failed; each ended its episode
  int64_t carried_rows = 0;  ///< decisions whose outcome went into a later fragment
  int64_t dropped_rows = 0;  ///< decisions given up after an environment error or a restart of the learner
  int64_t missing_all = 0;   ///< episodes that ended because all agents were done, without `__all__`
  int64_t given_up = 0;      ///< episodes begun again because a policy that played in them was gone
  // Of the policy map. A policy is looked up once in each grant that needs it.
  int64_t policy_hits = 0;       ///< it was resident
  int64_t policy_misses = 0;     ///< it was not
  int64_t policy_evictions = 0;  ///< residents that left for another
  int64_t weight_waits = 0;      ///< its weights had not arrived when they were needed
};

/// Executes grants: steps the environments of a worker, acts for all agents and hands fragments to a sink. One lane per
/// granted environment, made at its first grant; an episode goes on from grant to grant until a grant says `fresh`.
///
/// Policies: an actor is made when an episode needs it, at most policy_map_capacity are kept beyond those that episodes
/// in progress play (ActorMap), and their weights are what is subscribed to, with those of each environment's next
/// episode, whose mapping is drawn ahead. New weights are adopted with a grant: all rows of a policy in it have one
/// version, or, where the policy was evicted and fetched again within the grant, are stamped with the first.
///
/// Live changes: a grant's newer PolicyTable is adopted before it begins. Episodes in progress keep the policies they
/// were mapped to; one that plays a slot which has another policy now is given up and counted, and the lane begins its
/// next episode.
///
/// An environment that fails ends its episode: what was complete is kept and cut as truncated, the failure is counted,
/// and the lane begins its next episode; that step is taken again. kMaxConsecutiveErrors of one environment in a row
/// end the grant with its error, and so does RESOURCE_EXHAUSTED at once: trying again would not help. A policy that
/// runs elsewhere and fails to act counts as a failure of the environments for which it was to act. The first failure
/// of each kind is reported at once, with its words. Where more than RolloutOptions::max_failed_share of the last
/// episodes failed, grants are given up: the learner, which was told, gives the work to others.
///
/// Environments that compute elsewhere step in two groups: while one steps, the other is inferred for. Which lanes are
/// in which does not depend on how long anything takes, so that fragments are the same every time.
///
/// Made and used by one thread (the stepping thread) but for RequestStop. Blocks in the sink's Submit, for weights of a
/// policy that is first needed in the middle of a grant, and as long as environments do. No heap allocation in the
/// steady state, where no policy comes or goes, but two or three per fragment.
class Collector {
 public:
  static constexpr int64_t kMaxConsecutiveErrors = 100;
  /// Policy tables that episodes in progress are mapped by. With one more the oldest ones' episodes are given up.
  static constexpr size_t kMaxTablesInProgress = 32;
  /// Fewer failures do not show that all environments fail from the start, however few there are.
  static constexpr int64_t kFewestFailures = 3;

  /// INVALID_ARGUMENT for policies or a spec that do not fit, or when one env step of one environment may not fit a
  /// fragment.
  static absl::StatusOr<std::unique_ptr<Collector>> Create(RolloutConfig config);

  /// Makes ready what the grant's first steps need, waiting up to `timeout` for weights: DEADLINE_EXCEEDED, and it may
  /// be called again. Other errors as RunGrant's.
  absl::Status PrepareGrant(const sample::Grant& grant, WeightSource& weights, absl::Duration timeout);
  /// Samples what `grant` says and submits the fragments; the last one says so, and there is at least one. Prepares the
  /// grant unless that was done last. INVALID_ARGUMENT: a grant without lanes in ascending order, a policy table that
  /// does not fit or is older than the one before, weights that do not fit. FAILED_PRECONDITION: weights of a policy
  /// that trains, older than the grant allows. CANCELLED after RequestStop or from `weights` (what was sampled has been
  /// submitted) or from the sink. ABORTED: the grant is given up, or over. Other codes are those of the ports or of
  /// environments; lanes stay usable.
  absl::Status RunGrant(const sample::Grant& grant, WeightSource& weights, SampleSink& sink);

  /// Makes RunGrant return after the round in progress. Thread-safe; stays requested.
  void RequestStop() { stop_.store(true, std::memory_order_relaxed); }

  RolloutStats stats() const;
  sample::EnvCounters env_counters() const;
  /// How the environments do. Each incident is in one report.
  sample::EnvReport TakeReport();
  /// More episodes failed than the run allows a worker.
  bool gives_up() const { return outcomes_.recent().Beyond(config_.options.max_failed_share); }
  /// Policies that are resident.
  size_t num_resident() const { return actors_.resident().size(); }
  const RolloutConfig& config() const { return config_; }

 private:
  explicit Collector(RolloutConfig config);

  absl::Status PrepareLanes(const sample::Grant& grant);
  absl::StatusOr<Lane*> FindLane(uint32_t env_id);
  absl::Status CheckRoundFits() const;

  /// Takes the grant's policy table, if it is another one.
  absl::Status AdoptPolicies(const sample::Grant& grant, WeightSource& weights);
  /// Whether the episode in progress may go on with the policies as they are now; `since` by slot, -1: free.
  bool MayGoOn(const Lane& lane, absl::Span<const int64_t> since) const;
  /// INVALID_ARGUMENT: the table maps other agents than the environment has.
  absl::Status CheckTable(const sample::Grant& grant) const;
  /// Before another table is adopted.
  void GiveUpOldTables();
  absl::StatusOr<std::unique_ptr<ResidentActor>> MakeActor(const policy::PolicySpec& spec) const;
  /// The slot has a policy of this spec now.
  void NumberShape(int32_t slot, const policy::PolicySpec& spec);
  /// Makes the policy resident with weights for the grant in progress.
  absl::Status Adopt(int32_t slot, WeightSource& weights, absl::Duration timeout);
  /// Adopts what the first steps of the grant need.
  absl::Status AdoptFirst(WeightSource& weights, absl::Duration timeout);
  /// Adopts what the rows that wait for a decision need; waits as long as it takes.
  absl::Status AdoptOpen(WeightSource& weights);
  /// Asks for the policies of the lane's next episode.
  void LookAhead(Lane& lane, WeightSource& weights);
  /// Lets go what no episode in progress plays, beyond the capacity, and subscriptions that nobody needs.
  void TrimPolicies(WeightSource& weights);
  void Subscribe(int32_t slot, WeightSource& weights);

  /// Samples `lanes` (a group whose rounds fit a fragment) to the end of the grant.
  absl::Status RunLanes(const sample::Grant& grant, absl::Span<Lane* const> lanes, bool last_group,
                        WeightSource& weights, SampleSink& sink);
  /// The lanes that are ready: those without an episode begin one.
  absl::Status StartEpisodes(WeightSource& weights);
  absl::Status StartEpisode(Lane& lane);
  absl::Status ActForAll();
  /// A policy could not act: its rows, which are dropped with their episodes, get actions that nobody takes.
  void FailToAct(size_t place, const absl::Status& status);
  /// Starts the steps of the lanes that are ready; nothing where environments compute in this thread.
  void StartSteps();
  /// Finishes the steps of the lanes of one group, takes those that have done enough out of active_, and adds the rest
  /// to ready_.
  absl::Status StepGroup(const sample::Grant& grant, int group);
  /// StepGroup for all groups in flight.
  absl::Status Drain(const sample::Grant& grant);
  /// After an error: no lane is in flight any more, whatever comes of it.
  void AbandonCalls();
  /// The actions of the agents that act, as the environment gets them.
  void GatherActions(Lane& lane);
  /// False when the environment failed and the step must be taken again.
  absl::StatusOr<bool> StepLane(Lane& lane);
  absl::Status CountError(Lane& lane, const absl::Status& status);
  /// The call worked: what there is to note of it.
  void NoteCall(Lane& lane);
  bool FailsFromTheStart() const;
  bool FragmentFull(int64_t rounds) const;
  /// Cuts the lanes that still run (none is in flight), finishes the fragment and submits it.
  absl::Status Submit(bool last_of_grant, SampleSink& sink);

  int64_t OldestRevision() const;

  const RolloutConfig config_;
  FragmentBuilder builder_;                          ///< has the policies as they are now
  std::map<uint32_t, std::unique_ptr<Lane>> lanes_;  // by global env id
  std::vector<Lane*> granted_;                       // of the current grant
  std::vector<Lane*> active_;                        // of the current fragment, with steps left
  std::vector<Lane*> ready_;                         // of them, those not in flight, in the order of their last calls
  bool elsewhere_ = false;                           // environments compute elsewhere: two groups take turns

  // Policies. By slot where not said otherwise.
  ActorMap actors_;
  std::vector<int64_t> since_;  ///< revision that brought the policy; -1: free
  uint64_t learner_epoch_ = 0;  ///< whose table it is
  std::vector<int32_t> shape_;  ///< number of the policy's shape; -1: actors of its class are always made anew
  std::map<std::string, int32_t> shapes_;  ///< policy::ShapeOf -> number
  std::vector<policy::WeightVersion> versions_;
  std::vector<int64_t> adopted_in_;  ///< the last grant that adopted it
  std::vector<int64_t> sought_in_;   ///< the last grant that looked for it
  std::vector<uint8_t> subscribed_;
  std::vector<int32_t> subscriptions_;  ///< slots
  std::vector<uint64_t> needed_by_;     ///< the last TrimPolicies that found it wanted
  uint64_t trims_ = 0;
  std::vector<int32_t> dropped_, first_;      ///< scratch
  int64_t grants_ = 0;                        ///< counts them, to tell one from the next
  std::optional<sample::GrantId> preparing_;  ///< the grant that grants_ counts
  bool prepared_ = false;
  policy::WeightVersion min_version_, newest_;  ///< of the grant in progress: what it asks for, the newest it has
  uint64_t rounds_ = 0;

  size_t action_words_ = 0;  // most of any agent: the stride of Lane::bounded_actions
  RolloutStats stats_;
  sample::EpisodeOutcomes outcomes_;
  IncidentLog incidents_;
  size_t lanes_failed_ = 0;      ///< that have had an episode that failed
  bool ended_well_ = false;      ///< some episode has
  bool told_of_start_ = false;   ///< that all failed from the start
  SampleSink* sink_ = nullptr;   ///< of the grant in progress
  std::vector<Lane*> starting_;  ///< scratch
  std::atomic<bool> stop_{false};
};

}  // namespace troupe::rollout
