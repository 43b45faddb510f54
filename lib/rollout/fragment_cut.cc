// What FragmentBuilder does where one fragment ends and the next begins.

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"
#include "lib/rollout/fragment_builder.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {

using sample::SegmentEnd;

void FragmentBuilder::SaveObservation(Lane& lane, size_t slot, PolicyColumns& columns, int64_t row) {
  std::memcpy(&lane.carried.obs[slot * widest_obs_], columns.obs.Row(row), columns.obs.row_bytes());
  if (columns.action_mask.present()) {
    std::memcpy(&lane.carried.mask[slot * widest_mask_], columns.action_mask.Row(row), columns.action_mask.row_bytes());
  }
  if (columns.state.present()) {
    std::memcpy(&lane.carried.state[slot * state_size_], columns.state.Row(row), columns.state.row_bytes());
  }
}

void FragmentBuilder::LoadObservation(const Lane& lane, size_t slot, PolicyColumns& columns, int64_t row) {
  columns.obs.CopyRow(row, &lane.carried.obs[slot * widest_obs_]);
  if (columns.action_mask.present()) columns.action_mask.CopyRow(row, &lane.carried.mask[slot * widest_mask_]);
  if (columns.state.present()) columns.state.CopyRow(row, &lane.carried.state[slot * state_size_]);
}

void FragmentBuilder::AttachPending(Lane& lane) {
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    CarriedAgent& carried = lane.carried.agents[slot];
    if (agent.phase != AgentPhase::kPending || !carried.has_row) continue;
    const policy::WeightVersion& now = (*versions_)[agent.policy];
    carried.has_row = false;
    if (carried.version.learner_epoch != now.learner_epoch || carried.version.n > now.n) {
      ++dropped_rows_;  // rows of another learner epoch are stale wherever they arrive
      continue;
    }
    PolicyColumns& columns = Columns(agent);
    const int64_t row = columns.AddRow();
    columns.Settle();
    LoadObservation(lane, slot, columns, row);
    columns.actions.CopyRow(row, &lane.carried.actions[slot * most_words_]);
    columns.action_logp.As<float>()[row] = carried.action_logp;
    columns.rewards.As<float>()[row] = carried.reward;
    if (columns.agent_mask.present()) columns.agent_mask.As<uint8_t>()[row] = static_cast<uint8_t>(carried.active);
    // Agents that decided at one step share its env row.
    int32_t env_row = -1;
    for (size_t other = 0; other < slot && env_row < 0; ++other) {
      const AgentState& earlier = lane.agents[other];
      if (earlier.phase == AgentPhase::kPending && earlier.row >= 0 &&
          lane.carried.agents[other].env_step == carried.env_step) {
        env_row = Columns(earlier).env_row.As<sample::Index>()[earlier.row];
      }
    }
    if (env_row < 0) {
      env_row = storage_->steps.Add(lane.fragment.episode_index, carried.env_step);
      Column& state = storage_->steps.state;
      if (state.present()) state.CopyRow(env_row, &lane.carried.state[slot * state_size_]);
    }
    columns.env_row.As<sample::Index>()[row] = static_cast<sample::Index>(env_row);
    agent.carried = true;
    const int32_t segment = columns.AddSegment(lane.fragment.episode_index, base::AgentSlot(static_cast<int32_t>(slot)),
                                               VersionLag(lane, slot), /*waited=*/!carried.of_client);
    columns.segment.As<sample::Index>()[row] = static_cast<sample::Index>(segment);
    columns.segment_rows[static_cast<size_t>(segment)] = 1;
    if (columns.remembers()) {
      columns.AddMemory(row, agent.decisions - 1, lane.memory.Of(slot, agent.decisions - 1));
    }
    agent.row = row;
    agent.segment = segment;
    agent.last_row = -1;
    sample::EpisodeEntry& entry = batch_->episodes[static_cast<size_t>(lane.fragment.episode_index)];
    entry.first_step = std::min(entry.first_step, carried.env_step);
    ++carried_rows_;
  }
}

void FragmentBuilder::AttachReady(Lane& lane) {
  lane.fragment.env_row = storage_->steps.Add(lane.fragment.episode_index, lane.episode.step);
  Column& state = storage_->steps.state;
  if (state.present()) state.CopyRow(lane.fragment.env_row, EnvStateOf(lane));
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    if (agent.phase != AgentPhase::kReady) continue;
    PolicyColumns& columns = Columns(agent);
    agent.row = columns.AddRow();
    columns.Settle();
    LoadObservation(lane, slot, columns, agent.row);
  }
}

void FragmentBuilder::TakeOutPending(const Lane& lane, AgentState& agent, SegmentEnd end) {
  PolicyColumns& columns = Columns(agent);
  columns.holes.push_back(agent.row);
  --columns.segment_rows[static_cast<size_t>(agent.segment)];
  if (agent.last_row >= 0) {
    int32_t* const words = columns.Segment(agent.segment);
    TROUPE_CHECK(words[sample::kSegmentEpisode] == lane.fragment.episode_index);
    words[sample::kSegmentEnd] = static_cast<int32_t>(end);
    words[sample::kSegmentFinalRow] = columns.AddFinalRow(agent.row, columns.env_row.As<sample::Index>()[agent.row]);
  }
  agent.row = -1;
  agent.last_row = -1;
  agent.segment = -1;
  agent.carried = false;
}

void FragmentBuilder::CutLane(Lane& lane) {
  // The step that waits for decisions is only looked at in this fragment, and acted on in the next one.
  const Column& state = storage_->steps.state;
  int32_t final_env_row = -1;
  const auto moved_env_row = [&] {
    if (final_env_row < 0) {
      final_env_row = storage_->final_steps.Add(lane.fragment.episode_index, lane.episode.step);
      if (state.present()) storage_->final_steps.state.CopyRow(final_env_row, state.Row(lane.fragment.env_row));
    }
    return ~final_env_row;
  };
  // A step in flight was acted on here: it stays in the fragment's tables, and what points at it.
  for (const auto& [policy, final_row] : lane.fragment.finals_at_env_row) {
    if (lane.call.in_flight) break;
    Columns(policy).final_steps[static_cast<size_t>(final_row)] = moved_env_row();
  }
  lane.fragment.finals_at_env_row.clear();
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    AgentState& agent = lane.agents[slot];
    CarriedAgent& carried = lane.carried.agents[slot];
    if (agent.row < 0) continue;
    PolicyColumns& columns = Columns(agent);
    SaveObservation(lane, slot, columns, agent.row);
    if (agent.phase == AgentPhase::kReady) {
      if (agent.segment >= 0) {
        columns.Segment(agent.segment)[sample::kSegmentFinalRow] = columns.AddFinalRow(agent.row, moved_env_row());
      }
      --columns.rows;
      agent.row = -1;
      agent.last_row = -1;
      agent.segment = -1;
      continue;
    }
    const int32_t env_row = columns.env_row.As<sample::Index>()[agent.row];
    if (!agent.carried) {
      carried.version = (*versions_)[agent.policy];
      carried.of_client = false;
    }
    carried.has_row = true;
    carried.env_step = storage_->steps.step_index.As<int32_t>()[env_row];
    carried.action_logp = columns.action_logp.As<float>()[agent.row];
    carried.reward = columns.rewards.As<float>()[agent.row];
    carried.active = !columns.agent_mask.present() || columns.agent_mask.As<uint8_t>()[agent.row] != 0;
    std::memcpy(&lane.carried.actions[slot * most_words_], columns.actions.Row(agent.row), columns.actions.row_bytes());
    if (state.present()) {
      std::memcpy(&lane.carried.state[slot * state_size_], state.Row(env_row), state.row_bytes());
    } else if (schema_.has_env_state()) {
      // Nobody has kept it, and nobody will miss it: a policy whose critic reads states plays in no episode that began
      // before there was one. The next fragment may have a column for it all the same.
      std::fill_n(&lane.carried.state[slot * state_size_], state_size_, 0.0f);
    }
    TakeOutPending(lane, agent, SegmentEnd::kCut);
  }
  if (lane.call.in_flight) {
    lane.fragment.env_row = -1;
  } else {
    if (state.present()) std::memcpy(EnvStateOf(lane), state.Row(lane.fragment.env_row), state.row_bytes());
    DropEnvRow(lane);
  }
  FillEpisodeEntry(lane);
  lane.fragment.episode_index = -1;
}

}  // namespace troupe::rollout
