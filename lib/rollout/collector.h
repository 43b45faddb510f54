#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/rollout/fragment_builder.h"
#include "lib/rollout/incident_log.h"
#include "lib/rollout/policy_adopter.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/rollout_config.h"
#include "lib/sample/env_report.h"
#include "lib/sample/grant.h"

namespace troupe::rollout {

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
/// Policies: a PolicyAdopter makes them resident, with weights of the grant, and takes a grant's newer PolicyTable
/// before it begins.
///
/// An environment that fails ends its episode: what was complete is kept and cut as truncated, the failure is counted,
/// and the lane begins its next episode; that step is taken again. kMaxConsecutiveErrors of one environment in a row
/// end the grant with its error, and so does RESOURCE_EXHAUSTED at once: trying again would not help. A policy that
/// runs elsewhere and fails to act counts as a failure of the environments for which it was to act. The first failure
/// of each kind is reported at once, with its words. Where more than RolloutOptions::max_failed_share of the last
/// episodes failed, grants are given up: the learner, which was told, gives the work to others. An episode that a
/// callback beside the environment ended counts as an error and not for that share.
///
/// Environments that compute elsewhere step in two groups: while one steps, the other is inferred for. Which lanes are
/// in which does not depend on how long anything takes, so that fragments are the same every time.
///
/// Worlds outside (RolloutConfig::outside) answer when they like. So the lanes of a grant share its steps: each goes on
/// when its world has answered, and the weights of the grant act on what it brings while there are steps left to wait
/// for. A world that lets the last steps wait is not waited for where others could take them; its open decision is
/// carried into the next grant. A lane without an episode begins one when a client has.
///
/// Made and used by one thread (the stepping thread) but for RequestStop. Blocks in the sink's Submit, for weights of a
/// policy that is first needed in the middle of a grant, and as long as environments do. No heap allocation in the
/// steady state, where no policy comes or goes, but two or three per fragment; worlds outside aside, whose clients are
/// answered.
class Collector {
 public:
  static constexpr int64_t kMaxConsecutiveErrors = 100;
  static constexpr size_t kMaxTablesInProgress = PolicyAdopter::kMaxTablesInProgress;
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
  size_t num_resident() const { return adopter_.num_resident(); }
  const RolloutConfig& config() const { return config_; }

 private:
  explicit Collector(RolloutConfig config);

  absl::Status PrepareLanes(const sample::Grant& grant);
  absl::StatusOr<Lane*> FindLane(base::EnvId env_id);

  /// Takes the grant's policy table, if it is another one, and asks for what the lanes will need by it.
  absl::Status AdoptTable(const sample::Grant& grant, WeightSource& weights);

  /// Samples `lanes` (a group whose rounds fit a fragment) to the end of the grant.
  absl::Status RunLanes(const sample::Grant& grant, absl::Span<Lane* const> lanes, bool last_group,
                        WeightSource& weights, SampleSink& sink);
  /// Gives up what a RunLanes or RunOutside that failed leaves; returns `status`.
  absl::Status EndRun(const absl::Status& status);

  // Of worlds outside; in collector_outside.cc.
  /// The whole grant, in one group.
  absl::Status RunOutside(const sample::Grant& grant, WeightSource& weights, SampleSink& sink);
  absl::Status PrepareOutside();
  /// A fragment with the lanes that have no episode, whose step is in flight, or for which a step is left.
  void BeginOutside(const sample::Grant& grant);
  /// Lanes without an episode begin those that wait, one each, and become ready.
  absl::Status StartOutside(WeightSource& weights);
  /// Before those that are ready decide: which of them did by themselves, with older weights than act here.
  void NoteOldDecisions();
  void TakeLoggedActions();
  /// The steps of those that are ready are in flight.
  void SendActions();
  /// Finishes the steps that were answered: their lanes are ready, or are cut where no step is left for them. False:
  /// there was none.
  absl::StatusOr<bool> TakeAnswers(const sample::Grant& grant);
  absl::Status SubmitOutside(bool last_of_grant, SampleSink& sink);
  /// Steps of the grant that nobody is about to take.
  int64_t StepsLeft() const;
  bool OutsideIsDone(const sample::Grant& grant) const;
  bool OutsideFragmentFull() const;
  /// No lane may begin an episode, and none has one.
  bool OutsideIsStuck() const;
  /// Lanes that sit out could go on, or begin.
  bool OthersWait() const;
  /// The lane has no episode any more, nor a step in flight.
  void DropOutside(Lane& lane, const absl::Status& reason);
  /// The lane's episode ended by itself: its client, if it plays on, hears of it.
  void TellItIsOver(const Lane& lane);

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
  /// Tells the lane's environment who plays those that act, where it is to be told.
  void NoteDecisions(Lane& lane);
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
  FragmentBuilder builder_;  ///< has the policies as they are now
  LaneMap lanes_;
  std::vector<Lane*> granted_;  // of the current grant
  std::vector<Lane*> active_;   // of the current fragment, with steps left
  std::vector<Lane*> ready_;    // of them, those not in flight, in the order of their last calls
  const bool tells_envs_;       // of their episodes
  bool elsewhere_ = false;      // environments compute elsewhere: two groups take turns

  PolicyAdopter adopter_;
  std::optional<sample::GrantId> preparing_;  ///< the grant that adopter_ counts
  bool prepared_ = false;
  uint64_t rounds_ = 0;
  int64_t outside_left_ = 0;  ///< steps of the grant in progress that were not taken yet; of worlds outside

  size_t action_words_ = 0;  // most of any agent: the stride of LaneActions::bounded
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
