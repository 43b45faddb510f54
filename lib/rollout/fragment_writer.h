#pragma once

#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/env/multi_agent_env.h"
#include "lib/rollout/fragment_builder.h"

namespace troupe::rollout {

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
    const int32_t policy = lane_->mapping->Map(spec.id.value(), static_cast<int32_t>(slot), episode).value();
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

}  // namespace troupe::rollout
