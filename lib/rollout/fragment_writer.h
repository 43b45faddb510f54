#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/traceback.h"
#include "lib/env/multi_agent_env.h"
#include "lib/policy/policy_spec.h"
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

  void BeginCall(Lane* lane) {
    lane_ = lane;
    call_status_ = absl::OkStatus();
  }
  /// The first agent of the call that could not be mapped.
  const absl::Status& call_status() const { return call_status_; }

  void* Observe(env::AgentSlot slot) override {
    const auto index = static_cast<size_t>(slot.value());
    AgentState& agent = lane_->agent(slot);
    if (agent.policy == policy::kNoPolicy && !Map(slot, agent)) return &scratch_obs_[index * builder_.widest_obs_];
    if (agent.phase == AgentPhase::kDone) BeginAgain(agent);
    PolicyColumns& columns = builder_.Columns(agent);
    agent.next_row = columns.AddRow();
    agent.observed = true;
    agent.active = true;
    lane_->call.observed.push_back(slot);
    if (columns.action_mask.present() && !builder_.schema_.env.possible_agents[index].has_action_mask) {
      std::memset(columns.action_mask.Row(agent.next_row), 1, columns.action_mask.row_bytes());
    }
    return columns.obs.Row(agent.next_row);
  }

  uint8_t* ActionMask(env::AgentSlot slot) override {
    const auto index = static_cast<size_t>(slot.value());
    const AgentState& agent = lane_->agent(slot);
    if (agent.policy != policy::kNoPolicy && builder_.Columns(agent).action_mask.present()) {
      return reinterpret_cast<uint8_t*>(builder_.Columns(agent).action_mask.Row(agent.next_row));
    }
    return &scratch_mask_[index * builder_.widest_mask_];  // the policy takes no mask
  }

  float* State(env::AgentSlot slot) override {
    StepTable& steps = builder_.storage_->steps;
    if (builder_.schema_.has_env_state()) {
      // Where it is not sent it is kept all the same: the next fragment may have it.
      if (!steps.state.present()) return builder_.EnvStateOf(*lane_);
      if (lane_->fragment.env_row < 0) {
        lane_->fragment.env_row =
            steps.Add(lane_->fragment.episode_index, lane_->episode.step + (lane_->call.stepping ? 1 : 0));
      }
      return reinterpret_cast<float*>(steps.state.Row(lane_->fragment.env_row));
    }
    const AgentState& agent = lane_->agent(slot);
    if (!agent.observed || !builder_.Columns(agent).state.present()) {
      // Without an observation, or of a policy whose critic does not read it: nothing will ever look at it.
      scratch_state_.resize(builder_.state_size_);
      return scratch_state_.data();
    }
    return reinterpret_cast<float*>(builder_.Columns(agent).state.Row(agent.next_row));
  }

  void AddReward(env::AgentSlot slot, float reward) override {
    AgentState& agent = lane_->agent(slot);
    // Before its first observation it has no row that takes the reward; the return is its policy's all the same.
    if (agent.policy == policy::kNoPolicy && !Map(slot, agent)) return;
    agent.episode_return += reward;
    if (agent.row < 0) return;
    if (const int32_t waited = lane_->episode.step - agent.decided_at; waited > 0) {
      const double discount = builder_.schema_.policies[agent.policy].reward_discount;
      if (discount != 1) reward = static_cast<float>(reward * std::pow(discount, waited));
    }
    builder_.Columns(agent).rewards.As<float>()[agent.row] += reward;
  }

  void TerminateAgent(env::AgentSlot slot) override { End(slot, AgentEnd::kTerminated); }
  void TruncateAgent(env::AgentSlot slot) override { End(slot, AgentEnd::kTruncated); }
  void TerminateAll() override { lane_->call.all_terminated = true; }
  void TruncateAll() override { lane_->call.all_truncated = true; }
  void SetAgentMask(env::AgentSlot slot, bool active) override { lane_->agent(slot).active = active; }
  void SetInfo(env::AgentSlot, int column, double value) override {
    lane_->episode.info_sum[static_cast<size_t>(column)] += value;
    ++lane_->episode.info_count[static_cast<size_t>(column)];
  }

 private:
  /// A trajectory more of an agent that had ended.
  static void BeginAgain(AgentState& agent) {
    agent.phase = AgentPhase::kUnseen;
    agent.end = AgentEnd::kNone;
    agent.decisions = 0;
    agent.decided_at = 0;
    ++agent.trajectories;
  }

  void End(env::AgentSlot slot, AgentEnd end) {
    lane_->agent(slot).end = end;
    lane_->call.agent_ended = true;
  }

  /// Asks for the agent's policy in this episode; false when there is none that fits.
  bool Map(env::AgentSlot slot, AgentState& agent) {
    if (!call_status_.ok()) return false;  // the episode is over already
    const auto index = static_cast<size_t>(slot.value());
    const env::AgentSpec& spec = builder_.schema_.env.possible_agents[index];
    policy::EpisodeInfo episode = builder_.EpisodeOf(lane_->env_id, lane_->episode.ordinal);
    mapped_.clear();
    for (size_t other = 0; other < lane_->agents.size(); ++other) {
      const policy::PolicySlot policy = lane_->agents[other].policy;
      if (policy != policy::kNoPolicy) mapped_.push_back({env::AgentSlot(static_cast<int32_t>(other)), policy});
    }
    episode.agents = mapped_;
    const absl::StatusOr<policy::PolicySlot> answer = lane_->episode.mapping->Map(spec.id, slot, episode);
    const policy::PolicySlot policy = answer.ok() ? *answer : policy::kNoPolicy;
    const size_t num_policies = builder_.schema_.policies.size();
    const bool known = builder_.schema_.policies.Contains(policy);
    if (known && builder_.fits_[index * num_policies + static_cast<size_t>(policy.value())] != 0) {
      agent.policy = policy;
      return true;
    }
    absl::Status why = answer.status();
    if (why.ok()) {
      why = absl::InvalidArgumentError(
          known ? absl::StrCat("got policy \"", builder_.schema_.policies[policy].id.value(),
                               "\", which has another observation or action space")
                : absl::StrCat("got policy slot ", policy.value(), ", expected 0 to ", num_policies - 1));
    }
    const absl::Status status(why.code(), absl::StrCat("policy_mapping of agent \"", spec.id.value(), "\" in episode ",
                                                       episode.episode, " of env ", episode.env_id.value(), " of ",
                                                       builder_.schema_.env.name, ": ", why.message()));
    call_status_ = base::WithTraceback(status, base::TracebackOf(why));
    return false;
  }

  FragmentBuilder& builder_;
  Lane* lane_ = nullptr;
  absl::Status call_status_;
  std::vector<policy::MappedAgent> mapped_;  // of the lane
  std::vector<std::byte> scratch_obs_;       // of agents without a fitting policy
  std::vector<uint8_t> scratch_mask_;
  std::vector<float> scratch_state_;
};

}  // namespace troupe::rollout
