#pragma once

// An agent as CheckedEnv knows it, and the writer that its environment gets; included by checked_env.cc alone.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/env/checked_env.h"

namespace troupe::env {

struct CheckedEnv::Slot {
  // For the environment's life.
  size_t flat_size = 0;
  bool float_row = true;
  bool discrete = false;  ///< the action is one Discrete: checked without walking the space
  int32_t low = 0;
  int32_t high = 0;
  std::vector<space::ActionLeaf> mask_leaves;  ///< categorical leaves, when there is a mask
  std::vector<float> least, most;              ///< of each element, when what is outside is counted; else empty
  bool told_outside_space = false;

  // For the episode.
  SlotState state = SlotState::kUnseen;
  bool acted = false;

  // For the call.
  bool ended = false;
  bool truncated = false;
  void* row = nullptr;
  uint8_t* mask = nullptr;
  float* state_row = nullptr;
};

/// Forwards to the caller's writer what the contract allows, and remembers the first thing that it does not. Refused
/// rows are written into a scratch row, since the environment goes on until it returns.
class CheckedEnv::Writer final : public StepWriter {
 public:
  explicit Writer(CheckedEnv& owner) : owner_(owner), spec_(owner.spec()) {
    size_t bytes = sizeof(float) * static_cast<size_t>(spec_.state_space.flat_size());
    for (const AgentSpec& agent : spec_.possible_agents) {
      bytes = std::max(bytes, sizeof(float) * static_cast<size_t>(agent.observation_space.flat_size()));
      bytes = std::max(bytes, static_cast<size_t>(agent.action_space.mask_size()));
    }
    scratch_.resize(bytes / sizeof(float) + 1);
  }

  void Begin(StepWriter& out, bool reset) {
    out_ = &out;
    reset_ = reset;
    all_ = false;
    env_state_ = nullptr;
    error_ = absl::OkStatus();
    for (Slot& slot : owner_.slots_) {
      slot.ended = false;
      slot.truncated = false;
      slot.row = nullptr;
      slot.mask = nullptr;
      slot.state_row = nullptr;
    }
  }

  bool all() const { return all_; }
  const float* env_state() const { return env_state_; }
  absl::Status& error() { return error_; }

  void* Observe(AgentSlot id) override {
    Slot* slot = Find(id, EnvRule::kObservedAgents, "observed");
    if (slot == nullptr) return scratch_.data();
    if (slot->row != nullptr) {
      Error(EnvRule::kObservedAgents, id, "was observed twice in one step");
      return scratch_.data();
    }
    slot->row = out_->Observe(id);
    return slot->row;
  }

  uint8_t* ActionMask(AgentSlot id) override {
    Slot* slot = Find(id, EnvRule::kActionMask, "given an action mask");
    if (slot != nullptr && slot->mask_leaves.empty()) {
      Error(EnvRule::kActionMask, id, "was given an action mask, but its spec declares none");
      slot = nullptr;
    } else if (slot != nullptr && slot->row == nullptr) {
      Error(EnvRule::kActionMask, id, "was given an action mask before its observation");
      slot = nullptr;
    }
    if (slot == nullptr) return reinterpret_cast<uint8_t*>(scratch_.data());
    slot->mask = out_->ActionMask(id);
    return slot->mask;
  }

  float* State(AgentSlot id) override {
    if (spec_.state_kind == StateKind::kPerEnv) {
      if (env_state_ == nullptr) env_state_ = out_->State(id);
      return env_state_;
    }
    if (spec_.state_kind == StateKind::kNone) {
      Error(EnvRule::kState, kNoAgent, "gave a global state, but its spec declares none");
      return scratch_.data();
    }
    Slot* slot = Find(id, EnvRule::kState, "given a state");
    if (slot == nullptr) return scratch_.data();
    if (slot->state_row == nullptr) slot->state_row = out_->State(id);
    return slot->state_row;
  }

  void AddReward(AgentSlot id, float reward) override {
    Slot* slot = Find(id, EnvRule::kReward, "rewarded");
    if (slot == nullptr) return;
    if (!std::isfinite(reward)) {
      Error(EnvRule::kReward, id, absl::StrCat("got the reward ", reward, ", expected a finite number"));
      return;
    }
    // Environments that hand out a zero to everybody mean "nothing".
    if (reward == 0.0f && !slot->acted) return;
    if (reset_ || slot->state == SlotState::kDone) {
      if (reward != 0.0f) {
        Error(EnvRule::kReward, id,
              absl::StrCat("got the reward ", reward, reset_ ? " at Reset" : " after it was done"));
      }
      return;
    }
    if (slot->row != nullptr) {
      Error(EnvRule::kReward, id, "was rewarded after its observation of the same step, expected before");
      return;
    }
    out_->AddReward(id, reward);
  }

  void TerminateAgent(AgentSlot id) override {
    if (End(id, false)) out_->TerminateAgent(id);
  }
  void TruncateAgent(AgentSlot id) override {
    if (End(id, true)) out_->TruncateAgent(id);
  }
  void TerminateAll() override {
    if (EndAll()) out_->TerminateAll();
  }
  void TruncateAll() override {
    if (EndAll()) out_->TruncateAll();
  }

  void SetAgentMask(AgentSlot id, bool active) override {
    Slot* slot = Find(id, EnvRule::kInfo, "given an agent mask");
    if (slot == nullptr) return;
    if (!spec_.has_agent_mask) {
      Error(EnvRule::kInfo, id, "was given an agent mask, but the spec declares none");
    } else if (slot->row == nullptr) {
      Error(EnvRule::kInfo, id, "was given an agent mask before its observation");
    } else {
      out_->SetAgentMask(id, active);
    }
  }

  void SetInfo(AgentSlot id, int column, double value) override {
    Slot* slot = Find(id, EnvRule::kInfo, "given an info");
    if (slot == nullptr) return;
    if (column < 0 || column >= static_cast<int>(spec_.info_columns.size())) {
      Error(EnvRule::kInfo, id,
            absl::StrCat("was given info column ", column, ", expected one of ", spec_.info_columns.size()));
      return;
    }
    out_->SetInfo(id, column, value);
  }

 private:
  Slot* Find(AgentSlot id, EnvRule rule, const char* what) {
    if (id.value() >= 0 && id.value() < static_cast<int32_t>(owner_.slots_.size()))
      return &owner_.slots_[static_cast<size_t>(id.value())];
    if (error_.ok()) {
      error_ = owner_.Broken(
          rule, kNoAgent,
          absl::StrCat("agent slot ", id.value(), " was ", what, ", expected one below ", owner_.slots_.size()));
    }
    return nullptr;
  }

  bool End(AgentSlot id, bool truncated) {
    Slot* slot = Find(id, EnvRule::kDone, "ended");
    if (slot == nullptr) return false;
    if (slot->state == SlotState::kDone || slot->ended) {
      Error(EnvRule::kDone, id, "was ended twice");
      return false;
    }
    if (reset_) {
      Error(EnvRule::kDone, id, "was ended at Reset");
      return false;
    }
    slot->ended = true;
    slot->truncated = truncated;
    return true;
  }

  bool EndAll() {
    if (reset_) {
      Error(EnvRule::kReset, kNoAgent, "ended the episode at Reset");
      return false;
    }
    if (all_) {
      Error(EnvRule::kEpisodeEnd, kNoAgent, "ended the episode twice");
      return false;
    }
    all_ = true;
    return true;
  }

  void Error(EnvRule rule, AgentSlot id, const std::string& what) {
    if (error_.ok()) error_ = owner_.Broken(rule, id, what);
  }

  CheckedEnv& owner_;
  const EnvSpec& spec_;
  std::vector<float> scratch_;
  StepWriter* out_ = nullptr;
  bool reset_ = false;
  bool all_ = false;
  float* env_state_ = nullptr;
  absl::Status error_;
};

}  // namespace troupe::env
