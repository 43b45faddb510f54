#include "lib/rollout/fragment_builder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"

namespace troupe::rollout {
namespace {

using sample::SegmentEnd;

int32_t* SegmentWord(PolicyColumns& columns, int32_t segment, sample::SegmentField field) {
  return columns.Segment(segment) + field;
}

}  // namespace

/// Writes an environment's call straight into the fragment. The environment stands behind CheckedEnv, so calls keep the
/// contract.
class FragmentBuilder::Writer final : public env::StepWriter {
 public:
  explicit Writer(FragmentBuilder& builder)
      : builder_(builder),
        scratch_obs_(builder.widest_obs_ * builder.schema_.env.possible_agents.size()),
        scratch_mask_(builder.widest_mask_ * builder.schema_.env.possible_agents.size()) {}

  void set_lane(Lane* lane) { lane_ = lane; }
  const absl::Status& mapping_status() const { return mapping_status_; }

  void* Observe(env::AgentSlot slot) override {
    const auto index = static_cast<size_t>(slot.value());
    AgentState& agent = lane_->agents[index];
    if (agent.policy < 0 && !Map(index, agent)) return &scratch_obs_[index * builder_.widest_obs_];
    PolicyColumns& columns = builder_.Columns(agent);
    agent.next_row = columns.AddRow();
    agent.observed = true;
    agent.active = true;
    lane_->observed.push_back(slot.value());
    if (columns.action_mask.present() && !builder_.schema_.env.possible_agents[index].has_action_mask) {
      std::memset(columns.action_mask.Row(agent.next_row), 1, columns.action_mask.row_bytes());
    }
    return columns.obs.Row(agent.next_row);
  }

  uint8_t* ActionMask(env::AgentSlot slot) override {
    const auto index = static_cast<size_t>(slot.value());
    const AgentState& agent = lane_->agents[index];
    if (agent.policy >= 0 && builder_.Columns(agent).action_mask.present()) {
      return reinterpret_cast<uint8_t*>(builder_.Columns(agent).action_mask.Row(agent.next_row));
    }
    return &scratch_mask_[index * builder_.widest_mask_];  // the policy takes no mask
  }

  float* State(env::AgentSlot slot) override {
    FragmentStorage& storage = *builder_.storage_;
    if (storage.state.present()) {
      if (lane_->env_row < 0) {
        lane_->env_row = storage.AddEnvRow(lane_->episode_index, lane_->step + (lane_->stepping ? 1 : 0));
      }
      return reinterpret_cast<float*>(storage.state.Row(lane_->env_row));
    }
    const AgentState& agent = lane_->agents[static_cast<size_t>(slot.value())];
    if (!agent.observed) {
      // A state without an observation: nothing will ever look at it.
      scratch_state_.resize(builder_.state_size_);
      return scratch_state_.data();
    }
    return reinterpret_cast<float*>(builder_.Columns(agent).state.Row(agent.next_row));
  }

  void AddReward(env::AgentSlot slot, float reward) override {
    AgentState& agent = lane_->agents[static_cast<size_t>(slot.value())];
    agent.episode_return += reward;
    if (agent.row >= 0) builder_.Columns(agent).rewards.As<float>()[agent.row] += reward;
  }

  void TerminateAgent(env::AgentSlot slot) override { End(slot, AgentEnd::kTerminated); }
  void TruncateAgent(env::AgentSlot slot) override { End(slot, AgentEnd::kTruncated); }
  void TerminateAll() override { lane_->all_terminated = true; }
  void TruncateAll() override { lane_->all_truncated = true; }
  void SetAgentMask(env::AgentSlot slot, bool active) override {
    lane_->agents[static_cast<size_t>(slot.value())].active = active;
  }
  void SetInfo(env::AgentSlot, int column, double value) override {
    lane_->info_sum[static_cast<size_t>(column)] += value;
    ++lane_->info_count[static_cast<size_t>(column)];
  }

 private:
  void End(env::AgentSlot slot, AgentEnd end) {
    lane_->agents[static_cast<size_t>(slot.value())].end = end;
    lane_->agent_ended = true;
  }

  /// Asks for the agent's policy in this episode; false when that does not fit.
  bool Map(size_t slot, AgentState& agent) {
    const env::AgentSpec& spec = builder_.schema_.env.possible_agents[slot];
    const policy::EpisodeInfo episode = {builder_.seed_, lane_->env_id, lane_->episode};
    const int32_t policy = builder_.mapping_.Map(spec.id.value(), static_cast<int32_t>(slot), episode).value();
    const size_t num_policies = builder_.schema_.policies.size();
    if (policy >= 0 && static_cast<size_t>(policy) < num_policies &&
        builder_.fits_[slot * num_policies + static_cast<size_t>(policy)] != 0) {
      agent.policy = policy;
      return true;
    }
    if (mapping_status_.ok()) {
      mapping_status_ = absl::InvalidArgumentError(
          absl::StrCat("agent '", spec.id.value(), "' of environment ", builder_.schema_.env.name,
                       " is mapped to policy slot ", policy,
                       policy < 0 || static_cast<size_t>(policy) >= num_policies
                           ? absl::StrCat(", expected 0 to ", num_policies - 1)
                           : absl::StrCat(" ('", builder_.schema_.policies[static_cast<size_t>(policy)].id.value(),
                                          "'), which has another observation or action space")));
    }
    return false;
  }

  FragmentBuilder& builder_;
  Lane* lane_ = nullptr;
  absl::Status mapping_status_;
  std::vector<std::byte> scratch_obs_;  // of agents without a fitting policy
  std::vector<uint8_t> scratch_mask_;
  std::vector<float> scratch_state_;
};

FragmentBuilder::FragmentBuilder(const RolloutSchema& schema, const policy::PolicyMapping& mapping, uint64_t seed)
    : schema_(schema),
      mapping_(mapping),
      seed_(seed),
      pool_(schema),
      state_size_(static_cast<size_t>(schema.state_size())),
      keys_(schema.policies.size()),
      shift_(schema.policies.size()) {
  const auto num_agents = static_cast<int64_t>(schema_.env.possible_agents.size());
  for (const env::AgentSpec& agent : schema_.env.possible_agents) {
    const space::Space& obs = agent.observation_space;
    widest_obs_ = std::max(widest_obs_, static_cast<size_t>(obs.flat_size()) * tensor::ElementBytes(obs.flat_dtype()));
    widest_mask_ = std::max(widest_mask_, static_cast<size_t>(agent.action_space.mask_size()));
    most_words_ = std::max(most_words_, static_cast<size_t>(agent.action_space.action_words()));
    for (const policy::PolicySpec& policy : schema_.policies) {
      fits_.push_back(
          static_cast<uint8_t>(policy.observation_space == obs && policy.action_space == agent.action_space));
    }
  }
  int64_t row_bytes = 0;
  int64_t final_bytes = 0;
  for (const policy::PolicySpec& policy : schema_.policies) {
    const PolicyColumns columns(schema_, policy);
    row_bytes = std::max(row_bytes, columns.row_bytes());
    final_bytes = std::max(final_bytes, columns.final_bytes());
  }
  // Generous for the varints of the header; negative ones take ten bytes.
  episode_bytes_ = 48 + 16 * num_agents;
  finished_bytes_ = 48 + 18 * num_agents + 4 * static_cast<int64_t>(schema_.env.info_columns.size());
  const auto env_row_bytes = static_cast<int64_t>(8 + 4 * (schema_.has_env_state() ? state_size_ : 0));
  round_bytes_bound_ = num_agents * (2 * row_bytes + 2 * final_bytes + 2 * sample::kSegmentFields * 4) +
                       4 * env_row_bytes + episode_bytes_ + finished_bytes_;
  writer_ = std::make_unique<Writer>(*this);
}

FragmentBuilder::~FragmentBuilder() = default;

const absl::Status& FragmentBuilder::mapping_status() const { return writer_->mapping_status(); }

void FragmentBuilder::InitLane(Lane& lane) const {
  const size_t num_agents = schema_.env.possible_agents.size();
  lane.agents.resize(num_agents);
  lane.info_sum.resize(schema_.env.info_columns.size());
  lane.info_count.resize(schema_.env.info_columns.size());
  lane.observed.reserve(num_agents);
  lane.finals_at_env_row.reserve(num_agents);
  lane.actions.resize(num_agents);
  lane.bounded_actions.resize(num_agents * most_words_);
  lane.carried.resize(num_agents);
  lane.carried_obs.resize(num_agents * widest_obs_);
  lane.carried_mask.resize(num_agents * widest_mask_);
  lane.carried_state.resize((num_agents + 1) * state_size_);
  lane.carried_actions.resize(num_agents * most_words_);
}

int32_t FragmentBuilder::AddEpisode(const Lane& lane, int32_t first_step, bool continues) {
  std::vector<sample::EpisodeEntry>& episodes = batch_->episodes;
  if (storage_->spare_episodes.empty()) {
    episodes.emplace_back();
  } else {
    episodes.push_back(std::move(storage_->spare_episodes.back()));
    storage_->spare_episodes.pop_back();
  }
  sample::EpisodeEntry& entry = episodes.back();
  entry.env_id = lane.env_id;
  entry.episode = lane.episode;
  entry.first_step = first_step;
  entry.continues = continues;
  entry.agents.clear();
  return static_cast<int32_t>(episodes.size()) - 1;
}

void FragmentBuilder::FillEpisodeEntry(const Lane& lane) {
  sample::EpisodeEntry& entry = batch_->episodes[static_cast<size_t>(lane.episode_index)];
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    if (lane.agents[slot].policy < 0) continue;
    entry.agents.push_back({static_cast<int32_t>(slot), policy::PolicySlot(lane.agents[slot].policy)});
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
  entry.episode = lane.episode;
  entry.length = lane.step;
  entry.returns.clear();
  entry.policies.clear();
  entry.infos.clear();
  for (const AgentState& agent : lane.agents) {
    entry.returns.push_back(agent.policy < 0 ? kNan : static_cast<float>(agent.episode_return));
    entry.policies.push_back(agent.policy);
  }
  for (size_t i = 0; i < lane.info_sum.size(); ++i) {
    entry.infos.push_back(lane.info_count[i] == 0
                              ? kNan
                              : static_cast<float>(lane.info_sum[i] / static_cast<double>(lane.info_count[i])));
  }
}

void FragmentBuilder::Begin(const sample::Grant& grant, absl::Span<const policy::WeightVersion> versions,
                            absl::Span<Lane* const> lanes) {
  TROUPE_CHECK(!begun() && versions.size() == schema_.policies.size());
  storage_ = pool_.TakeStorage();
  batch_ = pool_.TakeBatch();
  batch_->grant = grant.id;
  batch_->iteration = grant.iteration;
  versions_.assign(versions.begin(), versions.end());
  env_steps_ = 0;
  for (Lane* lane : lanes) {
    if (!lane->in_episode) continue;
    lane->episode_index = AddEpisode(*lane, lane->step, /*continues=*/true);
    AttachPending(*lane);
  }
  for (PolicyColumns& columns : storage_->policies) columns.first_open = columns.rows;
  for (Lane* lane : lanes) {
    if (lane->in_episode) AttachReady(*lane);
  }
}

void FragmentBuilder::SaveObservation(Lane& lane, size_t slot, PolicyColumns& columns, int64_t row) {
  std::memcpy(&lane.carried_obs[slot * widest_obs_], columns.obs.Row(row), columns.obs.row_bytes());
  if (columns.action_mask.present()) {
    std::memcpy(&lane.carried_mask[slot * widest_mask_], columns.action_mask.Row(row), columns.action_mask.row_bytes());
  }
  if (columns.state.present()) {
    std::memcpy(&lane.carried_state[slot * state_size_], columns.state.Row(row), columns.state.row_bytes());
  }
}

void FragmentBuilder::LoadObservation(const Lane& lane, size_t slot, PolicyColumns& columns, int64_t row) {
  columns.obs.CopyRow(row, &lane.carried_obs[slot * widest_obs_]);
  if (columns.action_mask.present()) columns.action_mask.CopyRow(row, &lane.carried_mask[slot * widest_mask_]);
  if (columns.state.present()) columns.state.CopyRow(row, &lane.carried_state[slot * state_size_]);
}

void FragmentBuilder::AttachPending(Lane& lane) {
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    CarriedAgent& carried = lane.carried[slot];
    if (agent.phase != AgentPhase::kPending || !carried.has_row) continue;
    const policy::WeightVersion& now = versions_[static_cast<size_t>(agent.policy)];
    carried.has_row = false;
    if (carried.version.learner_epoch != now.learner_epoch || carried.version.n > now.n) {
      ++dropped_rows_;  // rows of another learner epoch are stale wherever they arrive
      continue;
    }
    PolicyColumns& columns = Columns(agent);
    const int64_t row = columns.AddRow();
    columns.Settle();
    LoadObservation(lane, slot, columns, row);
    columns.actions.CopyRow(row, &lane.carried_actions[slot * most_words_]);
    columns.action_logp.As<float>()[row] = carried.action_logp;
    columns.rewards.As<float>()[row] = carried.reward;
    columns.terminated.As<uint8_t>()[row] = 0;
    columns.truncated.As<uint8_t>()[row] = 0;
    if (columns.agent_mask.present()) columns.agent_mask.As<uint8_t>()[row] = static_cast<uint8_t>(carried.active);
    // Agents that decided at one step share its env row.
    int32_t env_row = -1;
    for (size_t other = 0; other < slot && env_row < 0; ++other) {
      const AgentState& earlier = lane.agents[other];
      if (earlier.phase == AgentPhase::kPending && earlier.row >= 0 &&
          lane.carried[other].env_step == carried.env_step) {
        env_row = Columns(earlier).env_row.As<int32_t>()[earlier.row];
      }
    }
    if (env_row < 0) {
      env_row = storage_->AddEnvRow(lane.episode_index, carried.env_step);
      if (storage_->state.present()) storage_->state.CopyRow(env_row, &lane.carried_state[slot * state_size_]);
    }
    columns.env_row.As<int32_t>()[row] = env_row;
    const int32_t segment = columns.AddSegment(lane.episode_index, static_cast<int32_t>(slot),
                                               static_cast<int32_t>(now.n - carried.version.n));
    columns.segment.As<int32_t>()[row] = segment;
    columns.segment_rows[static_cast<size_t>(segment)] = 1;
    agent.row = row;
    agent.segment = segment;
    agent.last_row = -1;
    agent.carried = true;
    sample::EpisodeEntry& entry = batch_->episodes[static_cast<size_t>(lane.episode_index)];
    entry.first_step = std::min(entry.first_step, carried.env_step);
    ++carried_rows_;
  }
}

void FragmentBuilder::AttachReady(Lane& lane) {
  lane.env_row = storage_->AddEnvRow(lane.episode_index, lane.step);
  if (storage_->state.present()) {
    storage_->state.CopyRow(lane.env_row, &lane.carried_state[lane.agents.size() * state_size_]);
  }
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    if (agent.phase != AgentPhase::kReady) continue;
    PolicyColumns& columns = Columns(agent);
    agent.row = columns.AddRow();
    columns.Settle();
    LoadObservation(lane, slot, columns, agent.row);
  }
}

void FragmentBuilder::StartEpisode(Lane& lane) {
  lane.episode = lane.next_episode++;
  lane.known = true;
  lane.in_episode = true;
  lane.step = 0;
  for (AgentState& agent : lane.agents) agent = AgentState();
  for (CarriedAgent& carried : lane.carried) carried = CarriedAgent();
  std::fill(lane.info_sum.begin(), lane.info_sum.end(), 0.0);
  std::fill(lane.info_count.begin(), lane.info_count.end(), 0);
  lane.episode_index = AddEpisode(lane, 0, /*continues=*/false);
}

env::StepWriter& FragmentBuilder::BeginCall(Lane& lane, bool is_step) {
  lane.stepping = is_step;
  lane.all_terminated = false;
  lane.all_truncated = false;
  lane.agent_ended = false;
  lane.observed.clear();
  lane.finals_at_env_row.clear();
  lane.env_row = -1;
  lane.final_env_row = -1;
  writer_->set_lane(&lane);
  return *writer_;
}

absl::Status FragmentBuilder::FinishCall(Lane& lane) {
  const bool ended = lane.all_terminated || lane.all_truncated;
  for (const int32_t slot : lane.observed) Columns(lane.agents[static_cast<size_t>(slot)]).Settle();
  const auto goes_on = [&lane](int32_t slot) { return lane.agents[static_cast<size_t>(slot)].end == AgentEnd::kNone; };
  if (!ended && std::none_of(lane.observed.begin(), lane.observed.end(), goes_on)) {
    return absl::InternalError(absl::StrCat("environment ", schema_.env.name, ", env ", lane.env_id, ", episode ",
                                            lane.episode, ", step ", lane.step + (lane.stepping ? 1 : 0),
                                            ": no agent is ready, but the episode goes on"));
  }
  if (lane.stepping) {
    ++lane.step;
    ++env_steps_;
  }
  if (!ended && lane.env_row < 0) lane.env_row = storage_->AddEnvRow(lane.episode_index, lane.step);
  if (!ended && !lane.agent_ended) {
    for (const int32_t slot : lane.observed) CompleteObserved(lane, lane.agents[static_cast<size_t>(slot)]);
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
      const int32_t final_row = columns.AddFinalRow(agent.next_row, lane.env_row);
      *SegmentWord(columns, agent.segment, sample::kSegmentFinalRow) = final_row;
      lane.finals_at_env_row.emplace_back(agent.policy, final_row);
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
  const AgentEnd all = lane.all_terminated ? AgentEnd::kTerminated : AgentEnd::kTruncated;
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
  if (ended && lane.env_row >= 0) DropEnvRow(lane);
}

void FragmentBuilder::EndTrajectory(Lane& lane, AgentState& agent, AgentEnd end, bool ended) {
  if (agent.phase == AgentPhase::kPending && agent.row >= 0) {
    PolicyColumns& columns = Columns(agent);
    int32_t* const words = columns.Segment(agent.segment);
    if (end == AgentEnd::kTerminated) {
      columns.terminated.As<uint8_t>()[agent.row] = 1;
      words[sample::kSegmentEnd] = static_cast<int32_t>(SegmentEnd::kTerminated);
    } else {
      columns.truncated.As<uint8_t>()[agent.row] = 1;
      words[sample::kSegmentEnd] = static_cast<int32_t>(SegmentEnd::kTruncated);
      // An agent cut off without a last look is bootstrapped from what it saw before.
      const int64_t seen = agent.observed ? agent.next_row : agent.row;
      words[sample::kSegmentFinalRow] = columns.AddFinalRow(seen, FinalEnvRow(lane, ended));
      if (!ended) lane.finals_at_env_row.emplace_back(agent.policy, words[sample::kSegmentFinalRow]);
    }
  }
  agent.phase = AgentPhase::kDone;
  agent.row = -1;
  agent.last_row = -1;
  agent.segment = -1;
}

int32_t FragmentBuilder::FinalEnvRow(Lane& lane, bool ended) {
  if (!ended) return lane.env_row;
  if (lane.final_env_row < 0) {
    lane.final_env_row = storage_->AddFinalEnvRow(lane.episode_index, lane.step);
    if (storage_->state.present()) storage_->final_state.CopyRow(lane.final_env_row, storage_->state.Row(lane.env_row));
  }
  return ~lane.final_env_row;
}

void FragmentBuilder::DropEnvRow(Lane& lane) {
  TROUPE_CHECK(static_cast<size_t>(lane.env_row) + 1 == storage_->step_episode.size());
  storage_->step_episode.pop_back();
  storage_->step_index.pop_back();
  lane.env_row = -1;
}

void FragmentBuilder::DropRowsOfDone(Lane& lane) {
  for (const int32_t slot : lane.observed) {
    AgentState& agent = lane.agents[static_cast<size_t>(slot)];
    int64_t& shift = shift_[static_cast<size_t>(agent.policy)];
    if (agent.observed) {  // done: CompleteObserved has not taken its row
      ++shift;
      agent.observed = false;
      agent.next_row = -1;
    } else if (shift > 0) {
      Columns(agent).MoveObservation(agent.row, agent.row - shift);
      agent.row -= shift;
    }
  }
  for (const int32_t slot : lane.observed) {
    AgentState& agent = lane.agents[static_cast<size_t>(slot)];
    Columns(agent).rows -= std::exchange(shift_[static_cast<size_t>(agent.policy)], 0);
  }
}

void FragmentBuilder::CloseEpisode(Lane& lane, bool finished) {
  FillEpisodeEntry(lane);
  if (finished) AddFinished(lane);
  lane.in_episode = false;
  lane.episode_index = -1;
  lane.env_row = -1;
}

void FragmentBuilder::TakeOutPending(const Lane& lane, AgentState& agent, SegmentEnd end) {
  PolicyColumns& columns = Columns(agent);
  columns.holes.push_back(agent.row);
  --columns.segment_rows[static_cast<size_t>(agent.segment)];
  if (agent.last_row >= 0) {
    int32_t* const words = columns.Segment(agent.segment);
    TROUPE_CHECK(words[sample::kSegmentEpisode] == lane.episode_index);
    words[sample::kSegmentEnd] = static_cast<int32_t>(end);
    words[sample::kSegmentFinalRow] = columns.AddFinalRow(agent.row, columns.env_row.As<int32_t>()[agent.row]);
    if (end == SegmentEnd::kTruncated) columns.truncated.As<uint8_t>()[agent.last_row] = 1;
  }
  agent.row = -1;
  agent.last_row = -1;
  agent.segment = -1;
  agent.carried = false;
}

void FragmentBuilder::AbortCall(Lane& lane) {
  for (const int32_t slot : lane.observed) {
    AgentState& agent = lane.agents[static_cast<size_t>(slot)];
    Columns(agent).Settle();
    --Columns(agent).rows;
    agent.observed = false;
    agent.next_row = -1;
  }
  if (lane.env_row >= 0) DropEnvRow(lane);
  for (AgentState& agent : lane.agents) {
    if (agent.phase != AgentPhase::kPending || agent.row < 0) continue;
    TakeOutPending(lane, agent, SegmentEnd::kTruncated);
    ++dropped_rows_;
  }
  CloseEpisode(lane, /*finished=*/false);
}

void FragmentBuilder::Decide(absl::Span<Lane* const> lanes) {
  for (size_t p = 0; p < storage_->policies.size(); ++p) {
    PolicyColumns& columns = storage_->policies[p];
    const auto open = static_cast<size_t>(columns.rows - columns.first_open);
    keys_[p].resize(open);
    if (open == 0) continue;
    std::memset(columns.rewards.Row(columns.first_open), 0, open * columns.rewards.row_bytes());
    std::memset(columns.terminated.Row(columns.first_open), 0, open);
    std::memset(columns.truncated.Row(columns.first_open), 0, open);
  }
  for (Lane* lane : lanes) {
    for (size_t slot = 0; slot < lane->agents.size(); ++slot) {
      AgentState& agent = lane->agents[slot];
      agent.acts = agent.phase == AgentPhase::kReady;
      if (!agent.acts) continue;
      PolicyColumns& columns = Columns(agent);
      if (agent.segment < 0) agent.segment = columns.AddSegment(lane->episode_index, static_cast<int32_t>(slot), 0);
      ++columns.segment_rows[static_cast<size_t>(agent.segment)];
      columns.env_row.As<int32_t>()[agent.row] = lane->env_row;
      columns.segment.As<int32_t>()[agent.row] = agent.segment;
      if (columns.agent_mask.present())
        columns.agent_mask.As<uint8_t>()[agent.row] = static_cast<uint8_t>(agent.active);
      keys_[static_cast<size_t>(agent.policy)][static_cast<size_t>(agent.row - columns.first_open)] = {
          lane->env_id, lane->episode, static_cast<int32_t>(slot), static_cast<uint32_t>(lane->step)};
      agent.phase = AgentPhase::kPending;
    }
  }
}

inference::ActInput FragmentBuilder::OpenRows(size_t slot) const {
  const PolicyColumns& columns = storage_->policies[slot];
  inference::ActInput input;
  input.rows = columns.rows - columns.first_open;
  if (input.rows == 0) return input;
  input.obs = columns.obs.Row(columns.first_open);
  if (columns.action_mask.present()) {
    input.action_mask = reinterpret_cast<const uint8_t*>(columns.action_mask.Row(columns.first_open));
  }
  input.keys = keys_[slot].data();
  return input;
}

space::ActionWord* FragmentBuilder::OpenActions(size_t slot) {
  PolicyColumns& columns = storage_->policies[slot];
  return reinterpret_cast<space::ActionWord*>(columns.actions.Row(columns.first_open));
}

float* FragmentBuilder::OpenLogp(size_t slot) {
  PolicyColumns& columns = storage_->policies[slot];
  return columns.action_logp.As<float>() + columns.first_open;
}

void FragmentBuilder::CloseRound() {
  for (PolicyColumns& columns : storage_->policies) columns.first_open = columns.rows;
}

const space::ActionWord* FragmentBuilder::ActionOf(const AgentState& agent) const {
  const PolicyColumns& columns = storage_->policies[static_cast<size_t>(agent.policy)];
  return reinterpret_cast<const space::ActionWord*>(columns.actions.Row(agent.row));
}

void FragmentBuilder::CutLane(Lane& lane) {
  // The step that waits for decisions is only looked at in this fragment, and acted on in the next one.
  int32_t final_env_row = -1;
  const auto moved_env_row = [&] {
    if (final_env_row < 0) {
      final_env_row = storage_->AddFinalEnvRow(lane.episode_index, lane.step);
      if (storage_->state.present()) storage_->final_state.CopyRow(final_env_row, storage_->state.Row(lane.env_row));
    }
    return ~final_env_row;
  };
  for (const auto& [policy, final_row] : lane.finals_at_env_row) {
    storage_->policies[static_cast<size_t>(policy)].final_env_row[static_cast<size_t>(final_row)] = moved_env_row();
  }
  lane.finals_at_env_row.clear();
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    CarriedAgent& carried = lane.carried[slot];
    if (agent.row < 0) continue;
    PolicyColumns& columns = Columns(agent);
    SaveObservation(lane, slot, columns, agent.row);
    if (agent.phase == AgentPhase::kReady) {
      if (agent.segment >= 0) {
        *SegmentWord(columns, agent.segment, sample::kSegmentFinalRow) =
            columns.AddFinalRow(agent.row, moved_env_row());
      }
      --columns.rows;
      agent.row = -1;
      agent.last_row = -1;
      agent.segment = -1;
      continue;
    }
    const int32_t env_row = columns.env_row.As<int32_t>()[agent.row];
    if (!agent.carried) {
      carried.version = versions_[static_cast<size_t>(agent.policy)];
    }
    carried.has_row = true;
    carried.env_step = storage_->step_index[static_cast<size_t>(env_row)];
    carried.action_logp = columns.action_logp.As<float>()[agent.row];
    carried.reward = columns.rewards.As<float>()[agent.row];
    carried.active = !columns.agent_mask.present() || columns.agent_mask.As<uint8_t>()[agent.row] != 0;
    std::memcpy(&lane.carried_actions[slot * most_words_], columns.actions.Row(agent.row), columns.actions.row_bytes());
    if (storage_->state.present()) {
      std::memcpy(&lane.carried_state[slot * state_size_], storage_->state.Row(env_row), storage_->state.row_bytes());
    }
    TakeOutPending(lane, agent, SegmentEnd::kCut);
  }
  if (storage_->state.present()) {
    std::memcpy(&lane.carried_state[lane.agents.size() * state_size_], storage_->state.Row(lane.env_row),
                storage_->state.row_bytes());
  }
  DropEnvRow(lane);
  FillEpisodeEntry(lane);
  lane.episode_index = -1;
}

int64_t FragmentBuilder::BytesIfCut() const {
  int64_t bytes = 0;
  for (const PolicyColumns& columns : storage_->policies) bytes += columns.Bytes(columns.rows - columns.first_open);
  const auto env_rows = static_cast<int64_t>(storage_->step_episode.size() + storage_->final_step_episode.size());
  bytes += env_rows * static_cast<int64_t>(8 + storage_->state.row_bytes());
  bytes += static_cast<int64_t>(batch_->episodes.size()) * episode_bytes_;
  return bytes + static_cast<int64_t>(batch_->finished.size()) * finished_bytes_;
}

void FragmentBuilder::FillPolicyRows(size_t slot, sample::PolicyRows& out) {
  using tensor::DType;
  PolicyColumns& columns = storage_->policies[slot];
  const policy::PolicySpec& spec = schema_.policies[slot];
  const DType obs_dtype = spec.observation_space.flat_dtype();
  const auto env_rows = static_cast<int32_t>(batch_->env_rows);
  for (int32_t& row : columns.final_env_row) {
    if (row < 0) row = env_rows + ~row;
  }
  out.policy = policy::PolicySlot(static_cast<int32_t>(slot));
  out.version = versions_[slot];
  out.rows = columns.rows;
  out.num_segments = static_cast<int64_t>(columns.segment_rows.size());
  out.final_rows = columns.final_rows;
  out.obs = columns.obs.View(obs_dtype, columns.rows, spec.observation_size());
  out.actions = columns.actions.View(DType::kInt32, columns.rows, spec.action_words());
  out.action_logp = columns.action_logp.View(DType::kFloat32, columns.rows, 1);
  out.rewards = columns.rewards.View(DType::kFloat32, columns.rows, 1);
  out.terminated = columns.terminated.View(DType::kUint8, columns.rows, 1);
  out.truncated = columns.truncated.View(DType::kUint8, columns.rows, 1);
  out.action_mask = columns.action_mask.View(DType::kUint8, columns.rows, spec.mask_size());
  out.agent_mask = columns.agent_mask.View(DType::kUint8, columns.rows, 1);
  out.env_row = columns.env_row.View(DType::kInt32, columns.rows, 1);
  out.segment = columns.segment.View(DType::kInt32, columns.rows, 1);
  out.state = columns.state.View(DType::kFloat32, columns.rows, schema_.state_size());
  out.segments = {reinterpret_cast<const std::byte*>(columns.segments.data()), DType::kInt32, out.num_segments,
                  sample::kSegmentFields};
  out.final_obs = columns.final_obs.View(obs_dtype, columns.final_rows, spec.observation_size());
  out.final_action_mask = columns.final_action_mask.View(DType::kUint8, columns.final_rows, spec.mask_size());
  out.final_env_row = {
      columns.final_rows == 0 ? nullptr : reinterpret_cast<const std::byte*>(columns.final_env_row.data()),
      DType::kInt32, columns.final_rows, 1};
  out.final_state = columns.final_state.View(DType::kFloat32, columns.final_rows, schema_.state_size());
}

sample::MultiAgentBatchPtr FragmentBuilder::Finish(bool last_of_grant) {
  using tensor::DType;
  sample::MultiAgentBatch& batch = *batch_;
  FragmentStorage& storage = *storage_;
  batch.last_of_grant = last_of_grant;
  batch.num_env_steps = env_steps_;
  batch.num_agent_steps = 0;
  batch.env_rows = static_cast<int64_t>(storage.step_episode.size());
  batch.final_env_rows = static_cast<int64_t>(storage.final_step_episode.size());
  const int64_t steps = batch.env_rows + batch.final_env_rows;
  if (storage.state.present()) {
    if (steps > storage.state_capacity) {
      storage.state_capacity = steps + steps / 2;
      storage.state.Grow(batch.env_rows, storage.state_capacity);
    }
    if (batch.final_env_rows > 0) {
      std::memcpy(storage.state.Row(batch.env_rows), storage.final_state.Row(0),
                  static_cast<size_t>(batch.final_env_rows) * storage.state.row_bytes());
    }
  }
  storage.step_episode.insert(storage.step_episode.end(), storage.final_step_episode.begin(),
                              storage.final_step_episode.end());
  storage.step_index.insert(storage.step_index.end(), storage.final_step_index.begin(), storage.final_step_index.end());
  batch.step_episode = {reinterpret_cast<const std::byte*>(storage.step_episode.data()), DType::kInt32, steps, 1};
  batch.step_index = {reinterpret_cast<const std::byte*>(storage.step_index.data()), DType::kInt32, steps, 1};
  batch.state = storage.state.View(DType::kFloat32, steps, schema_.state_size());
  for (size_t slot = 0; slot < storage.policies.size(); ++slot) {
    PolicyColumns& columns = storage.policies[slot];
    columns.Compact();
    if (columns.rows == 0) continue;
    FillPolicyRows(slot, batch.policies.emplace_back());
    if (!columns.agent_mask.present()) {
      batch.num_agent_steps += columns.rows;
    } else {
      for (int64_t r = 0; r < columns.rows; ++r) batch.num_agent_steps += columns.agent_mask.As<uint8_t>()[r];
    }
  }
  return pool_.Share(std::move(batch_), std::move(storage_));
}

void FragmentBuilder::Abandon() {
  if (begun()) pool_.Return(std::move(batch_), std::move(storage_));
}

}  // namespace troupe::rollout
