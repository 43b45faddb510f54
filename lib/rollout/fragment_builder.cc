#include "lib/rollout/fragment_builder.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/fragment_writer.h"
#include "lib/rollout/round_bytes.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {

using sample::SegmentEnd;

FragmentBuilder::FragmentBuilder(const RolloutSchema& schema, std::shared_ptr<const policy::PolicyMapping> mapping,
                                 const policy::EpisodeInfo& run)
    : schema_(schema), run_(run), state_size_(static_cast<size_t>(schema.state_size())) {
  for (const env::AgentSpec& agent : schema_.env.possible_agents) {
    const space::Space& obs = agent.observation_space;
    widest_obs_ = std::max(widest_obs_, static_cast<size_t>(obs.flat_size()) * tensor::ElementBytes(obs.flat_dtype()));
    widest_mask_ = std::max(widest_mask_, static_cast<size_t>(agent.action_space.mask_size()));
    most_words_ = std::max(most_words_, static_cast<size_t>(agent.action_space.action_words()));
  }
  SetPolicies(std::move(schema_.policies), std::move(mapping), 0);
  writer_ = std::make_unique<Writer>(*this);
}

void FragmentBuilder::SetPolicies(policy::BySlot<policy::PolicySpec> policies,
                                  std::shared_ptr<const policy::PolicyMapping> mapping, int64_t revision) {
  TROUPE_CHECK(!begun());
  schema_.policies = std::move(policies);
  mapping_ = std::move(mapping);
  revision_ = revision;
  struct PolicySpaces {
    std::string obs, action;
  };
  std::vector<PolicySpaces> spaces;
  for (const policy::PolicySpec& policy : schema_.policies) {
    // A free slot fits nobody.
    if (policy.id.value().empty()) {
      spaces.emplace_back();
    } else {
      spaces.push_back({policy.observation_space.ToString(), policy.action_space.ToString()});
    }
  }
  fits_.clear();
  for (const env::AgentSpec& agent : schema_.env.possible_agents) {
    const std::string obs_text = agent.observation_space.ToString();
    const std::string action_text = agent.action_space.ToString();
    for (const PolicySpaces& policy : spaces) {
      fits_.push_back(static_cast<uint8_t>(policy.obs == obs_text && policy.action == action_text));
    }
  }
  forms_.clear();
  memory_size_ = 0;
  for (const policy::PolicySpec& policy : schema_.policies) {
    const bool is_free = policy.id.value().empty();
    const sample::PolicyForms forms = is_free ? sample::PolicyForms() : sample::FormsOf(schema_.sizes(), policy);
    if (!is_free) memory_size_ = std::max(memory_size_, static_cast<size_t>(policy.actor_state_size()));
    forms_.push_back(forms);
  }
  episode_bytes_ = EpisodeBytes(schema_);
  finished_bytes_ = FinishedBytes(schema_);
  step_forms_ = sample::FormsOf(schema_.sizes());
  round_bytes_bound_ = rollout::RoundBytesBound(schema_);
}

policy::EpisodeInfo FragmentBuilder::EpisodeOf(base::EnvId env_id, uint32_t episode) const {
  policy::EpisodeInfo info = run_;
  info.env_id = env_id;
  info.episode = episode;
  return info;
}

void FragmentBuilder::MapEpisode(const policy::PolicyMapping& mapping, base::EnvId env_id, uint32_t episode,
                                 std::vector<policy::PolicySlot>& policies) const {
  const policy::EpisodeInfo info = EpisodeOf(env_id, episode);
  policies.clear();
  for (size_t slot = 0; slot < schema_.env.possible_agents.size(); ++slot) {
    const base::AgentSlot agent(static_cast<int32_t>(slot));
    absl::StatusOr<policy::PolicySlot> policy = policy::kNoPolicy;
    if (mapping.KnownAhead(agent)) policy = mapping.Map(schema_.env.possible_agents[slot].id, agent, info);
    policies.push_back(policy.ok() ? *policy : policy::kNoPolicy);
  }
}

FragmentBuilder::~FragmentBuilder() = default;

void FragmentBuilder::InitLane(Lane& lane) const {
  const size_t num_agents = schema_.env.possible_agents.size();
  lane.agents.resize(num_agents);
  lane.episode.info_sum.resize(schema_.env.info_columns.size());
  lane.episode.info_count.resize(schema_.env.info_columns.size());
  lane.call.observed.reserve(num_agents);
  lane.fragment.finals_at_env_row.reserve(num_agents);
  lane.actions.rows.resize(num_agents);
  lane.actions.bounded.resize(num_agents * most_words_);
  lane.carried.agents.resize(num_agents);
  lane.carried.obs.resize(num_agents * widest_obs_);
  lane.carried.mask.resize(num_agents * widest_mask_);
  lane.carried.state.resize((num_agents + 1) * state_size_);
  lane.carried.actions.resize(num_agents * most_words_);
  lane.memory.Fit(num_agents, memory_size_);
}

int32_t FragmentBuilder::AddEpisode(Lane& lane, int32_t first_step, bool continues) {
  std::vector<sample::EpisodeEntry>& episodes = batch_->episodes;
  int32_t index = std::exchange(lane.fragment.unused_episode, -1);
  if (index >= 0) {
    // Of an episode that could not begin: nothing points at it.
  } else if (storage_->spare_episodes.empty()) {
    episodes.emplace_back();
  } else {
    episodes.push_back(std::move(storage_->spare_episodes.back()));
    storage_->spare_episodes.pop_back();
  }
  if (index < 0) index = static_cast<int32_t>(episodes.size()) - 1;
  sample::EpisodeEntry& entry = episodes[static_cast<size_t>(index)];
  entry.env_id = lane.env_id;
  entry.episode = lane.episode.ordinal;
  entry.first_step = first_step;
  entry.continues = continues;
  entry.agents.clear();
  return index;
}

void FragmentBuilder::FillEpisodeEntry(const Lane& lane) {
  sample::EpisodeEntry& entry = batch_->episodes[static_cast<size_t>(lane.fragment.episode_index)];
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    if (lane.agents[slot].policy == policy::kNoPolicy) continue;
    entry.agents.push_back({base::AgentSlot(static_cast<int32_t>(slot)), lane.agents[slot].policy});
  }
}

void FragmentBuilder::AddFinished(const Lane& lane) {
  std::vector<sample::FinishedEpisode>& finished = batch_->finished;
  if (storage_->spare_finished.empty()) {
    finished.emplace_back();
  } else {
    finished.push_back(std::move(storage_->spare_finished.back()));
    storage_->spare_finished.pop_back();
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  sample::FinishedEpisode& entry = finished.back();
  entry.env_id = lane.env_id;
  entry.episode = lane.episode.ordinal;
  entry.length = lane.episode.step;
  entry.returns.clear();
  entry.policies.clear();
  entry.trajectories.clear();
  entry.infos.clear();
  bool any_returned = false;
  for (const AgentState& agent : lane.agents) {
    entry.returns.push_back(
        agent.policy == policy::kNoPolicy ? kNan : static_cast<float>(agent.episode_return / agent.trajectories));
    entry.policies.push_back(agent.policy);
    any_returned = any_returned || agent.trajectories > 1;
  }
  for (size_t slot = 0; any_returned && slot < lane.agents.size(); ++slot) {
    entry.trajectories.push_back(lane.agents[slot].trajectories);
  }
  for (size_t i = 0; i < lane.episode.info_sum.size(); ++i) {
    entry.infos.push_back(
        lane.episode.info_count[i] == 0
            ? kNan
            : static_cast<float>(lane.episode.info_sum[i] / static_cast<double>(lane.episode.info_count[i])));
  }
}

void FragmentBuilder::Begin(const sample::Grant& grant, const policy::BySlot<policy::WeightVersion>& versions,
                            absl::Span<Lane* const> lanes) {
  TROUPE_CHECK(!begun() && versions.size() >= schema_.policies.size());
  storage_ = pool_.TakeStorage(step_forms_);
  batch_ = pool_.TakeBatch();
  batch_->grant = grant.id;
  batch_->iteration = grant.iteration;
  batch_->policies_revision = revision_;
  versions_ = &versions;
  env_steps_ = 0;
  for (Lane* lane : lanes) {
    lane->memory.Fit(lane->agents.size(), memory_size_);
    lane->fragment.unused_episode = -1;
    if (!lane->episode.running) continue;
    lane->fragment.episode_index = AddEpisode(*lane, lane->episode.step, /*continues=*/true);
    AttachPending(*lane);
  }
  for (const auto& columns : storage_->policies) columns->first_open = columns->rows;
  for (Lane* lane : lanes) {
    if (lane->episode.running && !lane->call.in_flight) AttachReady(*lane);
  }
}

void FragmentBuilder::StartEpisode(Lane& lane) {
  lane.episode.Begin(lane.next_episode++, mapping_, revision_);
  lane.known = true;
  for (AgentState& agent : lane.agents) agent = AgentState();
  for (CarriedAgent& carried : lane.carried.agents) carried = CarriedAgent();
  lane.fragment.episode_index = AddEpisode(lane, 0, /*continues=*/false);
}

env::StepWriter& FragmentBuilder::BeginCall(Lane& lane, bool is_step) {
  lane.call.Begin(is_step);
  lane.fragment.finals_at_env_row.clear();
  lane.fragment.env_row = -1;
  writer_->BeginCall(&lane);
  return *writer_;
}

absl::Status FragmentBuilder::FinishCall(Lane& lane) {
  TROUPE_RETURN_IF_ERROR(writer_->call_status());
  const bool ended = lane.call.ended();
  for (const base::AgentSlot slot : lane.call.observed) Columns(lane.agent(slot)).Settle();
  const auto goes_on = [&lane](base::AgentSlot slot) { return lane.agent(slot).end == AgentEnd::kNone; };
  if (!ended && std::none_of(lane.call.observed.begin(), lane.call.observed.end(), goes_on)) {
    return absl::InternalError(absl::StrCat(
        "environment ", schema_.env.name, ", env ", lane.env_id.value(), ", episode ", lane.episode.ordinal, ", step ",
        lane.episode.step + (lane.call.stepping ? 1 : 0), ": no agent is ready, but the episode goes on"));
  }
  if (lane.call.stepping) {
    ++lane.episode.step;
    ++env_steps_;
  }
  if (!ended && lane.fragment.env_row < 0) {
    lane.fragment.env_row = storage_->steps.Add(lane.fragment.episode_index, lane.episode.step);
  }
  if (!ended && !lane.call.agent_ended) {
    for (const base::AgentSlot slot : lane.call.observed) CompleteObserved(lane, lane.agent(slot));
  } else {
    SettleEnds(lane, ended);
  }
  if (ended) CloseEpisode(lane, /*finished=*/true);
  return absl::OkStatus();
}

void FragmentBuilder::CompleteObserved(Lane& lane, AgentState& agent) {
  if (agent.phase == AgentPhase::kPending && agent.row >= 0) {
    agent.last_row = agent.row;
    if (agent.carried) {
      // A carried decision is a segment of its own: other weights made what follows.
      PolicyColumns& columns = Columns(agent);
      const int32_t final_row = columns.AddFinalRow(agent.next_row, lane.fragment.env_row);
      columns.Segment(agent.segment)[sample::kSegmentFinalRow] = final_row;
      lane.fragment.finals_at_env_row.emplace_back(agent.policy, final_row);
      agent.carried = false;
      agent.segment = -1;
      agent.last_row = -1;
    }
  }
  agent.row = agent.next_row;
  agent.next_row = -1;
  agent.observed = false;
  agent.phase = AgentPhase::kReady;
}

void FragmentBuilder::SettleEnds(Lane& lane, bool ended) {
  const AgentEnd all = lane.call.all_terminated ? AgentEnd::kTerminated : AgentEnd::kTruncated;
  for (AgentState& agent : lane.agents) {
    if (agent.phase == AgentPhase::kDone || (agent.phase == AgentPhase::kUnseen && !agent.observed)) continue;
    const AgentEnd end = agent.end != AgentEnd::kNone ? agent.end : ended ? all : AgentEnd::kNone;
    if (end != AgentEnd::kNone) {
      EndTrajectory(lane, agent, end, ended);
    } else if (agent.observed) {
      CompleteObserved(lane, agent);
    }
  }
  DropRowsOfDone(lane);
  if (ended && lane.fragment.env_row >= 0) DropEnvRow(lane);
}

void FragmentBuilder::EndTrajectory(Lane& lane, AgentState& agent, AgentEnd end, bool ended) {
  if (agent.phase == AgentPhase::kPending && agent.row >= 0) {
    PolicyColumns& columns = Columns(agent);
    int32_t* const words = columns.Segment(agent.segment);
    if (end == AgentEnd::kTerminated) {
      words[sample::kSegmentEnd] = static_cast<int32_t>(SegmentEnd::kTerminated);
    } else {
      words[sample::kSegmentEnd] = static_cast<int32_t>(SegmentEnd::kTruncated);
      // An agent cut off without a last look is bootstrapped from what it saw before.
      const int64_t seen = agent.observed ? agent.next_row : agent.row;
      words[sample::kSegmentFinalRow] = columns.AddFinalRow(seen, FinalEnvRow(lane, ended));
      if (!ended) lane.fragment.finals_at_env_row.emplace_back(agent.policy, words[sample::kSegmentFinalRow]);
    }
  }
  agent.phase = AgentPhase::kDone;
  agent.row = -1;
  agent.last_row = -1;
  agent.segment = -1;
}

int32_t FragmentBuilder::FinalEnvRow(Lane& lane, bool ended) {
  if (!ended) return lane.fragment.env_row;
  if (lane.call.final_env_row < 0) {
    lane.call.final_env_row = storage_->final_steps.Add(lane.fragment.episode_index, lane.episode.step);
    const Column& state = storage_->steps.state;
    if (state.present()) storage_->final_steps.state.CopyRow(lane.call.final_env_row, state.Row(lane.fragment.env_row));
  }
  return ~lane.call.final_env_row;
}

void FragmentBuilder::DropEnvRow(Lane& lane) {
  TROUPE_CHECK(lane.fragment.env_row + 1 == storage_->steps.rows);
  --storage_->steps.rows;
  lane.fragment.env_row = -1;
}

void FragmentBuilder::DropRowsOfDone(Lane& lane) {
  for (const base::AgentSlot slot : lane.call.observed) {
    AgentState& agent = lane.agent(slot);
    int64_t& shift = Columns(agent).shift;
    if (agent.observed) {  // done: CompleteObserved has not taken its row
      ++shift;
      agent.observed = false;
      agent.next_row = -1;
    } else if (shift > 0) {
      Columns(agent).MoveObservation(agent.row, agent.row - shift);
      agent.row -= shift;
    }
  }
  for (const base::AgentSlot slot : lane.call.observed) {
    AgentState& agent = lane.agent(slot);
    PolicyColumns& columns = Columns(agent);
    columns.rows -= std::exchange(columns.shift, 0);
  }
}

void FragmentBuilder::CloseEpisode(Lane& lane, bool finished) {
  FillEpisodeEntry(lane);
  if (finished) AddFinished(lane);
  lane.episode.running = false;
  lane.fragment.episode_index = -1;
  lane.fragment.env_row = -1;
}

void FragmentBuilder::AbortCall(Lane& lane) {
  for (const base::AgentSlot slot : lane.call.observed) {
    AgentState& agent = lane.agent(slot);
    Columns(agent).Settle();
    --Columns(agent).rows;
    agent.observed = false;
    agent.next_row = -1;
  }
  if (lane.fragment.env_row >= 0) DropEnvRow(lane);
  for (AgentState& agent : lane.agents) {
    if (agent.phase != AgentPhase::kPending || agent.row < 0) continue;
    TakeOutPending(lane, agent, SegmentEnd::kTruncated);
    ++dropped_rows_;
  }
  if (!lane.call.stepping) lane.fragment.unused_episode = lane.fragment.episode_index;
  CloseEpisode(lane, /*finished=*/false);
}

int32_t FragmentBuilder::VersionLag(const Lane& lane, size_t slot) const {
  if (!lane.agents[slot].carried) return 0;
  const policy::WeightVersion& now = (*versions_)[lane.agents[slot].policy];
  const policy::WeightVersion& then = lane.carried.agents[slot].version;
  // Of another learner epoch it is as old as can be.
  return static_cast<int32_t>(then.learner_epoch == now.learner_epoch ? now.n - then.n : now.n);
}

void FragmentBuilder::NoteVersion(Lane& lane, size_t slot, const policy::WeightVersion& version) {
  AgentState& agent = lane.agents[slot];
  const policy::WeightVersion& now = (*versions_)[agent.policy];
  if (version.learner_epoch == now.learner_epoch && version.n >= now.n) return;
  lane.carried.agents[slot].version = version;
  lane.carried.agents[slot].of_client = true;
  agent.carried = true;
  if (agent.segment < 0) return;
  PolicyColumns& columns = Columns(agent);
  columns.Segment(agent.segment)[sample::kSegmentFinalRow] = columns.AddFinalRow(agent.row, lane.fragment.env_row);
  agent.segment = -1;
  agent.last_row = -1;
}

void FragmentBuilder::Decide(absl::Span<Lane* const> lanes) {
  for (const auto& place : storage_->policies) {
    PolicyColumns& columns = *place;
    const auto open = static_cast<size_t>(columns.rows - columns.first_open);
    columns.keys.resize(open);
    if (columns.remembers()) columns.open_decisions.resize(open);
    if (open == 0) continue;
    std::memset(columns.rewards.Row(columns.first_open), 0, open * columns.rewards.row_bytes());
  }
  for (Lane* lane : lanes) {
    for (size_t place = 0; place < lane->agents.size(); ++place) {
      AgentState& agent = lane->agents[place];
      agent.acts = agent.phase == AgentPhase::kReady;
      if (!agent.acts) continue;
      PolicyColumns& columns = Columns(agent);
      const base::AgentSlot slot(static_cast<int32_t>(place));
      const bool begins_segment = agent.segment < 0;
      if (begins_segment)
        agent.segment = columns.AddSegment(lane->fragment.episode_index, slot, VersionLag(*lane, place));
      ++columns.segment_rows[static_cast<size_t>(agent.segment)];
      columns.env_row.As<sample::Index>()[agent.row] = static_cast<sample::Index>(lane->fragment.env_row);
      columns.segment.As<sample::Index>()[agent.row] = static_cast<sample::Index>(agent.segment);
      if (columns.agent_mask.present())
        columns.agent_mask.As<uint8_t>()[agent.row] = static_cast<uint8_t>(agent.active);
      columns.keys[static_cast<size_t>(agent.row - columns.first_open)] = {lane->env_id, lane->episode.ordinal, slot,
                                                                           static_cast<uint32_t>(lane->episode.step)};
      if (columns.remembers()) OpenDecisionOf(*lane, place, begins_segment, columns);
      ++agent.decisions;
      agent.decided_at = lane->episode.step;
      agent.phase = AgentPhase::kPending;
    }
  }
  for (const auto& place : storage_->policies) {
    if (place->remembers()) place->GatherMemory();
  }
}

void FragmentBuilder::OpenDecisionOf(Lane& lane, size_t slot, bool begins_segment, PolicyColumns& columns) {
  const AgentState& agent = lane.agents[slot];
  float* const before = lane.memory.Of(slot, agent.decisions);
  if (agent.decisions == 0) std::fill_n(before, columns.memory.row_bytes() / sizeof(float), 0.0f);
  columns.open_decisions[static_cast<size_t>(agent.row - columns.first_open)] = {
      .before = before,
      .after = lane.memory.Of(slot, agent.decisions + 1),
      .number = agent.decisions,
      .is_sent = begins_segment || agent.decisions % schema_.policies[agent.policy].sequence_length == 0};
}

inference::ActInput FragmentBuilder::OpenRows(size_t place) const {
  PolicyColumns& columns = *storage_->policies[place];
  inference::ActInput input;
  input.explores = true;
  input.rows = columns.rows - columns.first_open;
  if (input.rows == 0) return input;
  input.obs = columns.obs.Row(columns.first_open);
  if (columns.action_mask.present()) {
    input.action_mask = reinterpret_cast<const uint8_t*>(columns.action_mask.Row(columns.first_open));
  }
  input.keys = columns.keys.data();
  if (columns.memory.present()) {
    input.state_in = columns.open_memory.data();
    input.state_out = columns.open_memory.data();
  }
  return input;
}

space::ActionWord* FragmentBuilder::OpenActions(size_t place) { return storage_->policies[place]->OpenActions(); }

void FragmentBuilder::SetOpenAction(const AgentState& agent, const space::ActionWord* words, float logp) {
  PolicyColumns& columns = Columns(agent);
  const auto row = static_cast<size_t>(agent.row - columns.first_open);
  const auto count = static_cast<size_t>(schema_.policies[agent.policy].action_words());
  std::copy_n(words, count, columns.OpenActions() + row * count);
  columns.action_logp.As<float>()[agent.row] = logp;
}

float FragmentBuilder::LogpOf(const AgentState& agent) { return Columns(agent).action_logp.As<float>()[agent.row]; }

float* FragmentBuilder::OpenLogp(size_t place) {
  PolicyColumns& columns = *storage_->policies[place];
  return columns.action_logp.As<float>() + columns.first_open;
}

void FragmentBuilder::CloseRound() {
  for (const auto& columns : storage_->policies) {
    columns->CloseActions();
    if (columns->remembers()) columns->ScatterMemory();
    columns->first_open = columns->rows;
  }
}

const space::ActionWord* FragmentBuilder::ActionOf(const AgentState& agent, space::ActionWord* scratch) {
  const PolicyColumns& columns = Columns(agent);
  const std::byte* const row = columns.actions.Row(agent.row);
  if (!columns.has_byte_actions()) return reinterpret_cast<const space::ActionWord*>(row);
  for (size_t w = 0; w < columns.actions.row_bytes(); ++w) scratch[w].i32 = static_cast<int32_t>(row[w]);
  return scratch;
}

}  // namespace troupe::rollout
