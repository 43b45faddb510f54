#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/env/multi_agent_env.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_mapping.h"
#include "lib/rollout/fragment_storage.h"
#include "lib/rollout/lane.h"
#include "lib/sample/grant.h"

namespace troupe::rollout {

/// Turns what environments write into fragments: observation rows are allocated where they stay (time-major in the
/// columns of the agent's policy), inference reads and writes them in place, and segments, episode table and final rows
/// are kept beside them. Makes no decision about what is stepped when: that is the Collector.
///
/// One round: StartEpisode calls for lanes without an episode; Decide; then OpenRows -> actions for every policy; then
/// for each lane its environment's Step between BeginCall and FinishCall or AbortCall. Between rounds lanes may be cut
/// and the fragment finished. Lanes are cut in reverse order of their calls in the round, or right after their own
/// call.
///
/// Not thread-safe. No heap allocation once its buffers have grown to the size of the fragments.
class FragmentBuilder {
 public:
  /// `run`: what a mapping is told of every episode; what it borrows must outlive this.
  FragmentBuilder(const RolloutSchema& schema, std::shared_ptr<const policy::PolicyMapping> mapping,
                  const policy::EpisodeInfo& run);
  FragmentBuilder(const FragmentBuilder&) = delete;
  FragmentBuilder& operator=(const FragmentBuilder&) = delete;
  ~FragmentBuilder();

  /// The policies (a free slot's has an empty id) and who plays them in episodes that start from now on, as of
  /// `revision`. No fragment is begun.
  void SetPolicies(policy::BySlot<policy::PolicySpec> policies, std::shared_ptr<const policy::PolicyMapping> mapping,
                   int64_t revision);
  const RolloutSchema& schema() const { return schema_; }
  const policy::BySlot<policy::PolicySpec>& policies() const { return schema_.policies; }
  int64_t revision() const { return revision_; }
  /// What a mapping is told of an episode, but for the agents mapped so far.
  policy::EpisodeInfo EpisodeOf(base::EnvId env_id, uint32_t episode) const;
  /// The policies that play the agents of an episode, by agent slot; kNoPolicy where the mapping does not know.
  void MapEpisode(const policy::PolicyMapping& mapping, base::EnvId env_id, uint32_t episode,
                  std::vector<policy::PolicySlot>& policies) const;
  const std::shared_ptr<const policy::PolicyMapping>& mapping() const { return mapping_; }

  /// Makes `lane`, which is new, fit the schema.
  void InitLane(Lane& lane) const;

  /// Starts an empty fragment. `versions`: the weights that act, there until Finish or Abandon; those of
  /// the policies that `lanes` play are set. `lanes` continue their episodes: first the decisions that wait for their
  /// outcome, then the observations that wait for a decision. What their policies remember stays, also where others
  /// have come or gone since.
  void Begin(const sample::Grant& grant, const policy::BySlot<policy::WeightVersion>& versions,
             absl::Span<Lane* const> lanes);
  bool begun() const { return storage_ != nullptr; }

  /// Before `lane.env->Reset`: a new episode with the lane's next ordinal.
  void StartEpisode(Lane& lane);
  /// The writer for one Reset or Step of `lane`, until FinishCall or AbortCall.
  env::StepWriter& BeginCall(Lane& lane, bool is_step);
  /// The call worked: completes the transitions of the agents that were observed or are done; `lane.episode.running` is
  /// false after an episode's end. A Step counts as an env step. INTERNAL: the episode goes on but no agent is ready.
  /// INVALID_ARGUMENT, or what a mapping function says: an agent that came has no policy, or one that does not fit it.
  /// After an error AbortCall must follow.
  absl::Status FinishCall(Lane& lane);
  /// The call failed: what it wrote is dropped, and with it the decisions that it should have completed; the agents'
  /// segments end as truncated at their last observation.
  void AbortCall(Lane& lane);

  /// Before Decide: what the agent in `slot`, which is ready, decides now, weights of `version` have decided. Where
  /// they are older than those that act it is a segment of its own, as a carried decision is.
  void NoteVersion(Lane& lane, size_t slot, const policy::WeightVersion& version);
  /// Every ready agent of `lanes` becomes pending: its row gets a segment, an env row and a key.
  void Decide(absl::Span<Lane* const> lanes);
  /// How many policies have had rows in this fragment. They are numbered from 0 in the order in which they came.
  size_t num_places() const { return storage_->policies.size(); }
  /// The slot of one of them, and how many rows of it wait for a decision.
  policy::PolicySlot PolicyAt(size_t place) const { return storage_->policies[place]->policy; }
  int64_t OpenCount(size_t place) const {
    return storage_->policies[place]->rows - storage_->policies[place]->first_open;
  }
  /// The rows that Decide opened, for Actor::Act; `rows` may be 0. What an actor remembers is there to be
  /// changed in its place.
  inference::ActInput OpenRows(size_t place) const;
  space::ActionWord* OpenActions(size_t place);
  float* OpenLogp(size_t place);
  /// After the policies have acted: the agent, which decided in this round, does something else.
  void SetOpenAction(const AgentState& agent, const space::ActionWord* words, float logp);
  /// Of the action of a pending agent that acted in this round.
  float LogpOf(const AgentState& agent);
  /// After every policy has acted: what they remember now is the lanes'.
  void CloseRound();
  /// The action row of a pending agent that acted in this round: where it stays, or in `scratch`, which has room for
  /// it.
  const space::ActionWord* ActionOf(const AgentState& agent, space::ActionWord* scratch);

  /// Cuts the trajectories of a lane in an episode: their segments get final rows, and the lane carries on with the
  /// next fragment. A lane whose step is in flight may be cut in any order; all of its open decisions are carried over.
  void CutLane(Lane& lane);
  /// Bytes of the fragment as it goes on the wire, were it cut now: columns, and an estimate of the header.
  int64_t BytesIfCut() const;
  /// At most so much more in a round of one lane.
  int64_t RoundBytesBound() const { return round_bytes_bound_; }
  /// Entries of the table that is nearest to sample::kMaxIndexed, were the fragment cut after a round more of so many
  /// lanes.
  int64_t IndexedAfterRound(int64_t lanes) const;
  int64_t env_steps() const { return env_steps_; }

  /// The finished fragment; every lane in an episode has been cut. `oldest_revision`: see MultiAgentBatch.
  sample::MultiAgentBatchPtr Finish(bool last_of_grant, int64_t oldest_revision);
  /// Throws the fragment away. Lanes keep no rows; their episodes must be given up.
  void Abandon();

  /// Since the builder was made.
  int64_t carried_rows() const { return carried_rows_; }  ///< pending decisions that went into a later fragment
  int64_t dropped_rows() const {
    return dropped_rows_;
  }  ///< decisions that were given up: environment errors, old epochs

 private:
  class Writer;

  PolicyColumns& Columns(policy::PolicySlot policy) { return storage_->Columns(policy, forms_[policy]); }
  PolicyColumns& Columns(const AgentState& agent) { return Columns(agent.policy); }
  int32_t AddEpisode(Lane& lane, int32_t first_step, bool continues);
  /// By which the agent's decision is older than the weights that act.
  int32_t VersionLag(const Lane& lane, size_t slot) const;
  void FillEpisodeEntry(const Lane& lane);
  void AddFinished(const Lane& lane);
  void AttachPending(Lane& lane);
  void AttachReady(Lane& lane);
  /// The agent was observed and goes on: its pending transition is complete, its new row waits for a decision.
  void CompleteObserved(Lane& lane, AgentState& agent);
  /// Completes the agents of a call in which some ended.
  void SettleEnds(Lane& lane, bool ended);
  void EndTrajectory(Lane& lane, AgentState& agent, AgentEnd end, bool ended);
  /// Takes the rows of done agents out of the lane's newest ones.
  void DropRowsOfDone(Lane& lane);
  void CloseEpisode(Lane& lane, bool finished);
  /// The index a final row of the step that was just observed gets: env_row, or a row of the final tables.
  int32_t FinalEnvRow(Lane& lane, bool ended);
  /// Takes the lane's env row, at which nobody acted, out of the tables; it is their last one.
  void DropEnvRow(Lane& lane);
  /// A pending decision leaves the fragment; its segment ends with its observation as the final row.
  void TakeOutPending(const Lane& lane, AgentState& agent, sample::SegmentEnd end);
  void SaveObservation(Lane& lane, size_t slot, PolicyColumns& columns, int64_t row);
  void LoadObservation(const Lane& lane, size_t slot, PolicyColumns& columns, int64_t row);
  /// The agent makes its next decision, by a policy that remembers.
  void OpenDecisionOf(Lane& lane, size_t slot, bool begins_segment, PolicyColumns& columns);
  /// Where the state of the step that the lane's ready agents see is kept while no fragment has it.
  float* EnvStateOf(Lane& lane) const { return &lane.carried.state[lane.agents.size() * state_size_]; }

  RolloutSchema schema_;
  std::shared_ptr<const policy::PolicyMapping> mapping_;
  int64_t revision_ = 0;
  const policy::EpisodeInfo run_;
  FragmentPool pool_;
  std::unique_ptr<Writer> writer_;
  std::vector<uint8_t> fits_;  // [agents, policies]
  policy::BySlot<sample::PolicyForms> forms_;
  sample::StepForms step_forms_;
  size_t widest_obs_ = 0;
  size_t widest_mask_ = 0;
  size_t most_words_ = 0;
  size_t state_size_ = 0;
  size_t memory_size_ = 0;  // of the widest policy
  int64_t round_bytes_bound_ = 0;
  int64_t episode_bytes_ = 0;
  int64_t finished_bytes_ = 0;

  std::unique_ptr<FragmentStorage> storage_;
  std::unique_ptr<sample::MultiAgentBatch> batch_;
  const policy::BySlot<policy::WeightVersion>* versions_ = nullptr;  // of the collector
  std::vector<PolicyColumns*> by_slot_;                              // while it is finished
  int64_t env_steps_ = 0;
  int64_t carried_rows_ = 0;
  int64_t dropped_rows_ = 0;
};

}  // namespace troupe::rollout
