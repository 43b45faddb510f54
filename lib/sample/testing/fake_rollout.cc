#include "lib/sample/testing/fake_rollout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "lib/base/check.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"

namespace troupe::sample {
namespace {

/// What a draw decides; part of its counter.
enum Draws : uint32_t {
  kLength = 0,
  kAppears = 1,
  kLeaves = 2,
  kReady = 3,
  kEnd = 4,
  kReward = 5,
  kPolicy = 6,
  kAgentMask = 7,
  kLogp = 8,
  kValues = 16,
};

}  // namespace

/// A transition that is complete.
struct FakeRollout::DoneRow {
  int64_t tick;  ///< when it was decided, -1: before this fragment
  base::EnvId env_id;
  uint32_t episode;
  int32_t step;
  int32_t slot;
  int32_t policy;
  int64_t version_lag_base;  ///< version it was decided with
  float reward;
  bool terminated;
  bool truncated;
  int32_t next_step;  ///< step of the next observation
  int32_t decision;
};

/// What the fragment in the making holds.
struct FakeRollout::Draft {
  std::vector<DoneRow> rows;
  std::vector<FinishedEpisode> finished;
  std::map<std::pair<base::EnvId, uint32_t>, std::pair<bool, std::vector<AgentEntry>>> episodes;  ///< continues, agents
  int64_t env_steps = 0;
};

FakeRollout::FakeRollout(BatchSchema schema, FakeRolloutOptions options)
    : schema_(std::move(schema)), options_(std::move(options)) {
  TROUPE_CHECK(options_.policies_of_slot.empty() || options_.policies_of_slot.size() == schema_.agent_ids.size());
}

void FakeRollout::Adopt(policy::PolicyTablePtr table) {
  if (table == nullptr || table->revision() <= revision()) return;
  table_ = std::move(table);
  schema_.policies = table_->Specs();
  for (auto& [env_id, lane] : lanes_) {
    for (const Agent& agent : lane.agents) {
      const policy::PolicyEntry* const entry = table_->Find(policy::PolicySlot(agent.policy));
      if (entry == nullptr || entry->since > lane.revision) lane.running = false;
    }
  }
}

int32_t FakeRollout::PolicyOf(int32_t slot, base::EnvId env_id, uint32_t episode) const {
  if (table_ != nullptr) {
    return table_->mapping()
        .Map(base::AgentId(schema_.agent_ids[slot]), base::AgentSlot(slot), {options_.seed, env_id, episode})
        ->value();
  }
  std::vector<int32_t> candidates;
  if (!options_.policies_of_slot.empty()) {
    candidates = options_.policies_of_slot[slot];
  } else {
    for (const policy::PolicySlot p : schema_.policies.ids()) {
      if (schema_.agent_observation_sizes.empty() ||
          schema_.policies[p].observation_size() == schema_.agent_observation_sizes[slot]) {
        candidates = {p.value()};
        break;
      }
    }
  }
  TROUPE_CHECK(!candidates.empty());
  const double draw = Draw(env_id, episode, slot, 0, kPolicy);
  return candidates[static_cast<size_t>(draw * static_cast<double>(candidates.size()))];
}

double FakeRollout::Draw(base::EnvId env_id, uint32_t episode, int32_t slot, int32_t step, uint32_t what) const {
  const base::PhiloxKey key = base::PhiloxKey::Make(options_.seed, base::RandomStream::kTest);
  const auto words = base::Philox4x32(key, base::PhiloxCounter{env_id.value(), episode, static_cast<uint32_t>(slot),
                                                               static_cast<uint32_t>(step) * 4096 + what});
  return base::ToUniformDouble(words[0], words[1]);
}

bool FakeRollout::Ready(const Lane& lane, base::EnvId env_id, int32_t slot) const {
  const Agent& agent = lane.agents[slot];
  if (lane.step < agent.appears || lane.step >= agent.leaves) return false;
  return lane.step == agent.appears || Draw(env_id, lane.episode, slot, lane.step, kReady) < options_.ready_probability;
}

void FakeRollout::Begin(Lane& lane, base::EnvId env_id) {
  lane.running = true;
  lane.carried = false;
  lane.revision = revision();
  lane.episode = lane.next_episode++;
  ++begun_[{env_id, lane.episode}];
  lane.step = 0;
  const int32_t range = options_.max_episode_steps - options_.min_episode_steps + 1;
  const int32_t length =
      options_.min_episode_steps + static_cast<int32_t>(Draw(env_id, lane.episode, 0, 0, kLength) * range);
  lane.length = 0;
  lane.agents.assign(schema_.agent_ids.size(), Agent{});
  for (int32_t slot = 0; slot < static_cast<int32_t>(lane.agents.size()); ++slot) {
    Agent& agent = lane.agents[slot];
    agent.leaves = length;
    if (options_.agents_come_and_go) {
      // Slot 0 is there from the start, so that there is always somebody.
      if (slot > 0) agent.appears = static_cast<int32_t>(Draw(env_id, lane.episode, slot, 0, kAppears) * length * 1.2);
      const int32_t stays = 1 + static_cast<int32_t>(Draw(env_id, lane.episode, slot, 0, kLeaves) * length * 1.5);
      agent.leaves = std::min(length, agent.appears + stays);
    }
    if (agent.appears < agent.leaves) lane.length = std::max(lane.length, agent.leaves);
    agent.policy = PolicyOf(slot, env_id, lane.episode);
  }
}

void FakeRollout::Complete(Lane& lane, base::EnvId env_id, int32_t slot, bool terminated, bool truncated,
                           Draft& draft) {
  Agent& agent = lane.agents[slot];
  draft.rows.push_back(DoneRow{agent.pending_tick, env_id, lane.episode, agent.pending_step, slot, agent.policy,
                               agent.pending_version, agent.pending_reward, terminated, truncated, lane.step,
                               agent.decisions - 1});
  agent.return_sum += agent.pending_reward;
  agent.pending = false;
}

void FakeRollout::Step(Lane& lane, base::EnvId env_id, int64_t tick, int64_t version, Draft& draft) {
  if (!lane.running) Begin(lane, env_id);
  auto& [continues, entries] = draft.episodes[{env_id, lane.episode}];
  continues = lane.carried;
  for (int32_t slot = 0; slot < static_cast<int32_t>(lane.agents.size()); ++slot) {
    Agent& agent = lane.agents[slot];
    if (!Ready(lane, env_id, slot)) continue;
    if (agent.pending) Complete(lane, env_id, slot, false, false, draft);
    agent.pending = true;
    ++agent.decisions;
    agent.pending_step = lane.step;
    agent.pending_tick = tick;
    agent.pending_version = version;
    agent.pending_reward = 0;
  }
  ++lane.step;
  ++draft.env_steps;
  for (int32_t slot = 0; slot < static_cast<int32_t>(lane.agents.size()); ++slot) {
    Agent& agent = lane.agents[slot];
    if (!agent.pending) continue;
    agent.pending_reward += static_cast<float>(Draw(env_id, lane.episode, slot, lane.step, kReward)) - 0.5f;
    if (lane.step < agent.leaves) continue;
    const bool terminated = Draw(env_id, lane.episode, slot, 0, kEnd) < options_.terminated_probability;
    Complete(lane, env_id, slot, terminated, !terminated, draft);
  }
  entries.clear();
  for (int32_t slot = 0; slot < static_cast<int32_t>(lane.agents.size()); ++slot) {
    const Agent& agent = lane.agents[slot];
    if (agent.appears < agent.leaves && agent.appears < lane.step) {
      entries.push_back(AgentEntry{base::AgentSlot(slot), policy::PolicySlot(agent.policy)});
    }
  }
  if (lane.step < lane.length) return;
  FinishedEpisode finished{env_id, lane.episode, lane.length, {}, {}, {}};
  for (const Agent& agent : lane.agents) {
    const bool appeared = agent.appears < agent.leaves;
    finished.returns.push_back(appeared ? agent.return_sum : std::numeric_limits<float>::quiet_NaN());
    finished.policies.push_back(appeared ? policy::PolicySlot(agent.policy) : policy::kNoPolicy);
  }
  for (int64_t i = 0; i < schema_.num_info_columns; ++i) finished.infos.push_back(static_cast<float>(lane.length + i));
  draft.finished.push_back(std::move(finished));
  lane.running = false;
}

std::vector<float> FakeRollout::EnvState(base::EnvId env_id, uint32_t episode, int32_t step) const {
  std::vector<float> state;
  for (int64_t i = 0; i < schema_.env_state_size; ++i) {
    state.push_back(static_cast<float>(Draw(env_id, episode, 1000, step, kValues + static_cast<uint32_t>(i))));
  }
  return state;
}

RowValues FakeRollout::Values(base::EnvId env_id, uint32_t episode, int32_t slot, int32_t step, int32_t policy) const {
  const policy::PolicySpec& spec = schema_.policies[policy::PolicySlot(policy)];
  const base::PhiloxKey key = base::PhiloxKey::Make(options_.seed + 1, base::RandomStream::kTest);
  base::PhiloxSequence random(key, base::PhiloxCounter{env_id.value(), episode, static_cast<uint32_t>(slot),
                                                       static_cast<uint32_t>(step) * 65536});
  RowValues values;
  const bool bytes = spec.observation_space.flat_dtype() == tensor::DType::kUint8;
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    values.obs.push_back(bytes ? static_cast<float>(random.Below(256)) : static_cast<float>(random.Uniform(-1, 1)));
  }
  for (int64_t i = 0; i < spec.mask_size(); ++i) values.action_mask.push_back(random.Below(3) > 0 ? 1 : 0);
  values.actions.resize(static_cast<size_t>(spec.action_words()));
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind == space::ActionLeaf::Kind::kContinuous) {
      for (int64_t w = leaf.word; w < leaf.word + leaf.words; ++w) {
        const double action = random.Normal();
        const bool is_beta = spec.continuous == policy::ContinuousDistribution::kBeta;
        values.actions[w].f32 = static_cast<float>(is_beta ? std::tanh(action) : action);
      }
      continue;
    }
    const auto category = static_cast<int64_t>(random.Below(static_cast<uint32_t>(leaf.categories)));
    values.actions[leaf.word].i32 = static_cast<int32_t>(leaf.start + category);
    if (spec.mask_size() > 0) values.action_mask[leaf.mask_offset + category] = 1;
  }
  values.action_logp = static_cast<float>(-3 * Draw(env_id, episode, slot, step, kLogp));
  values.agent_mask = Draw(env_id, episode, slot, step, kAgentMask) < options_.agent_mask_probability ? 1 : 0;
  for (int64_t i = 0; i < schema_.agent_state_size; ++i) {
    values.state.push_back(static_cast<float>(random.Uniform(-1, 1)));
  }
  for (int64_t i = 0; i < spec.actor_state_size(); ++i) {
    values.memory.push_back(static_cast<float>(random.Uniform(-1, 1)));
  }
  return values;
}

RowValues FakeRollout::ValuesOf(const DoneRow& row) const {
  RowValues values = Values(row.env_id, row.episode, row.slot, row.step, row.policy);
  values.reward = row.reward;
  values.decision = row.decision;
  if (row.decision == 0) std::fill(values.memory.begin(), values.memory.end(), 0.0f);
  return values;
}

void FakeRollout::CompleteObserved(const Grant& grant, Draft& draft) {
  for (const GrantLane& granted : grant.lanes) {
    Lane& lane = lanes_[granted.env_id];
    if (!lane.running) continue;
    for (int32_t slot = 0; slot < static_cast<int32_t>(lane.agents.size()); ++slot) {
      Agent& agent = lane.agents[slot];
      if (!agent.pending) continue;
      if (Ready(lane, granted.env_id, slot)) {
        Complete(lane, granted.env_id, slot, false, false, draft);
      } else {
        agent.pending_tick = -1;
      }
    }
    lane.carried = true;
  }
  std::sort(draft.rows.begin(), draft.rows.end(), [](const DoneRow& a, const DoneRow& b) {
    return std::tie(a.tick, a.env_id, a.episode, a.step, a.slot) <
           std::tie(b.tick, b.env_id, b.episode, b.step, b.slot);
  });
}

/// Where a fragment's episodes and env steps are in its tables.
struct FakeRollout::Places {
  using EpisodeKey = std::pair<base::EnvId, uint32_t>;
  using StepKey = std::tuple<base::EnvId, uint32_t, int32_t>;
  std::map<EpisodeKey, int> episodes;
  std::map<StepKey, int> env_rows;
  std::map<StepKey, int> final_env_rows;
};

FakeRollout::Places FakeRollout::AddPlaces(const Draft& draft, BatchBuilder& builder) const {
  Places places;
  std::map<Places::EpisodeKey, int32_t> first_steps;
  for (const DoneRow& row : draft.rows) {
    const auto [it, inserted] = first_steps.try_emplace({row.env_id, row.episode}, row.step);
    if (!inserted) it->second = std::min(it->second, row.step);
  }
  for (const auto& [key, entry] : draft.episodes) {
    const auto first = first_steps.find(key);
    if (first == first_steps.end()) continue;  // every row of it is still pending
    places.episodes[key] = builder.AddEpisode(key.first, key.second, first->second, entry.first, entry.second);
  }
  for (const DoneRow& row : draft.rows) {
    const Places::StepKey key{row.env_id, row.episode, row.step};
    if (places.env_rows.count(key) > 0) continue;
    places.env_rows[key] = builder.AddEnvRow(places.episodes.at({row.env_id, row.episode}), row.step,
                                             EnvState(row.env_id, row.episode, row.step));
  }
  return places;
}

int FakeRollout::FinalEnvRowAfter(const DoneRow& row, Places& places, BatchBuilder& builder) const {
  const Places::StepKey key{row.env_id, row.episode, row.next_step};
  const auto acting = places.env_rows.find(key);
  if (acting != places.env_rows.end()) return acting->second;
  const auto [it, inserted] = places.final_env_rows.try_emplace(key, 0);
  if (inserted) {
    it->second = builder.AddFinalEnvRow(places.episodes.at({row.env_id, row.episode}), row.next_step,
                                        EnvState(row.env_id, row.episode, row.next_step));
  }
  return it->second;
}

void FakeRollout::AddRows(const Draft& draft, policy::WeightVersion version, Places& places,
                          BatchBuilder& builder) const {
  using Trajectory = std::tuple<base::EnvId, uint32_t, int32_t>;  // env, episode, slot
  std::map<Trajectory, int> open;                                 // its segment
  // What follows the last row of a trajectory is pending or not yet done: the segment is cut there.
  std::map<Trajectory, const DoneRow*> last_rows;
  for (const DoneRow& row : draft.rows) last_rows[{row.env_id, row.episode, row.slot}] = &row;
  std::set<int32_t> acted;
  for (const DoneRow& row : draft.rows) {
    const Trajectory trajectory{row.env_id, row.episode, row.slot};
    const bool alone = row.tick < 0;  // carried: a segment of its own
    auto segment = open.find(trajectory);
    if (segment == open.end()) {
      const auto lag = static_cast<int32_t>(alone ? version.n - row.version_lag_base : 0);
      const bool waited = alone && row.step % 2 == 0;  // the others are as of a client with older weights
      const int added = builder.AddSegment(row.policy, places.episodes.at({row.env_id, row.episode}),
                                           base::AgentSlot(row.slot), lag, waited);
      segment = open.emplace(trajectory, added).first;
    }
    acted.insert(row.policy);
    builder.AddRow(row.policy, segment->second, places.env_rows.at({row.env_id, row.episode, row.step}), ValuesOf(row));
    if (!row.terminated && !row.truncated && !alone && last_rows.at(trajectory) != &row) continue;
    const SegmentEnd end = row.terminated  ? SegmentEnd::kTerminated
                           : row.truncated ? SegmentEnd::kTruncated
                                           : SegmentEnd::kCut;
    int final_env_row = 0;
    RowValues final_values;
    if (end != SegmentEnd::kTerminated) {
      final_env_row = FinalEnvRowAfter(row, places, builder);
      final_values = Values(row.env_id, row.episode, row.slot, row.next_step, row.policy);
    }
    builder.EndSegment(row.policy, segment->second, end, final_env_row, final_values);
    open.erase(segment);
  }
  TROUPE_CHECK(open.empty());
  for (const int32_t policy : acted) builder.SetVersion(policy, version);
}

std::shared_ptr<MultiAgentBatch> FakeRollout::Cut(const Grant& grant, policy::WeightVersion version, bool last,
                                                  Draft& draft) {
  CompleteObserved(grant, draft);
  BatchBuilder builder(schema_);
  MultiAgentBatch& header = builder.header();
  header.grant = grant.id;
  header.iteration = grant.iteration;
  header.num_env_steps = draft.env_steps;
  header.last_of_grant = last;
  header.policies_revision = header.oldest_revision = revision();
  for (const auto& [env_id, lane] : lanes_) {
    if (lane.running) header.oldest_revision = std::min(header.oldest_revision, lane.revision);
  }
  header.finished = std::move(draft.finished);
  Places places = AddPlaces(draft, builder);
  AddRows(draft, version, places, builder);
  draft = Draft{};
  for (const GrantLane& granted : grant.lanes) {
    const Lane& lane = lanes_[granted.env_id];
    if (lane.running) draft.episodes[{granted.env_id, lane.episode}] = {true, {}};
  }
  return builder.Build();
}

std::vector<std::shared_ptr<MultiAgentBatch>> FakeRollout::Play(const Grant& grant, policy::WeightVersion version) {
  Adopt(grant.policies);
  std::vector<std::shared_ptr<MultiAgentBatch>> fragments;
  Draft draft;
  std::vector<int32_t> left;
  for (const GrantLane& granted : grant.lanes) {
    Lane& lane = lanes_[granted.env_id];
    if (granted.fresh) {
      lane.running = false;
      lane.next_episode = granted.next_episode;
    } else {
      lane.next_episode = std::max(lane.next_episode, granted.next_episode);
    }
    left.push_back(granted.env_steps);
  }
  const auto busy = [&](size_t i) {
    if (left[i] > 0) return true;
    return grant.complete_episodes && lanes_[grant.lanes[i].env_id].running;
  };
  bool any = true;
  for (int64_t tick = 0; any; ++tick) {
    any = false;
    for (size_t i = 0; i < grant.lanes.size(); ++i) {
      if (!busy(i)) continue;
      Step(lanes_[grant.lanes[i].env_id], grant.lanes[i].env_id, tick, version.n, draft);
      --left[i];
    }
    for (size_t i = 0; i < grant.lanes.size(); ++i) any = any || busy(i);
    if (!any || (tick + 1) % options_.max_ticks_per_fragment == 0) {
      fragments.push_back(Cut(grant, version, !any, draft));
    }
  }
  return fragments;
}

}  // namespace troupe::sample
