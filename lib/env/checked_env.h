#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/env/env_rule.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// An environment that holds another one to the contract of MultiAgentEnv, step by step: what workers run. Everything
/// that an environment gives passes through unchanged and uncopied.
///
/// Errors name the environment, the global env id, the episode, the agent and the step (0 is Reset, 1 the first Step),
/// and carry an EnvRule. INTERNAL: the environment broke the contract or threw. FAILED_PRECONDITION: the caller did
/// (acting unobserved, Step after the end); INVALID_ARGUMENT: an action outside its space. An error status of the
/// environment keeps its code. After any error only Reset may follow.
///
/// When the last agent is done and the environment forgot `__all__`, this ends the episode for it and counts that.
/// Not thread-safe. No heap allocation in Step.
class CheckedEnv final : public MultiAgentEnv {
 public:
  struct Options {
    /// Compare every observation, state and mask with its space, not only for NaN and infinity: for tests and
    /// conformance.
    bool check_bounds = false;
    /// Count calls that give observations that are not in their space: what an environment of unknown quality gives is
    /// trained on all the same. A pass over the row's bounds, without a branch; nothing for spaces without bounds.
    bool count_outside_space = false;
  };

  explicit CheckedEnv(std::unique_ptr<MultiAgentEnv> env);
  CheckedEnv(std::unique_ptr<MultiAgentEnv> env, Options options);
  ~CheckedEnv() override;

  const EnvSpec& spec() const override { return env_->spec(); }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override;
  absl::Status Step(ActionRows actions, StepWriter& out) override;

  bool runs_elsewhere() const override { return env_->runs_elsewhere(); }
  absl::Status StartReset(const EpisodeSeed& seed) override;
  absl::Status StartStep(ActionRows actions) override;
  /// FAILED_PRECONDITION without a Start that worked.
  absl::Status Finish(StepWriter& out) override;

  /// FAILED_PRECONDITION before the first Reset and after an error: there is no state to be drawn.
  absl::Status Draw(Canvas& canvas) const override;

  void NoteDecision(AgentSlot slot, std::string_view policy, float log_prob) override {
    env_->NoteDecision(slot, policy, log_prob);
  }
  void NoteEnd() override { env_->NoteEnd(); }

  int64_t missing_all_count() const override { return missing_all_count_ + env_->missing_all_count(); }
  MultiAgentEnv& inner() { return *env_; }
  /// Calls that gave an observation outside its space, since it was made; with Options::count_outside_space.
  int64_t outside_space_count() const { return outside_space_count_; }
  /// The first one of an agent.
  struct OutsideSpace {
    AgentSlot agent;
    std::string message;
  };
  bool has_outside_space() const { return !outside_space_.empty(); }
  std::vector<OutsideSpace> TakeOutsideSpace() { return std::exchange(outside_space_, {}); }

 private:
  class Writer;
  /// States of an agent in an episode: kUnseen -> kReady <-> kWaiting; kReady, kWaiting -> kDone -> kReady.
  enum class SlotState : uint8_t { kUnseen, kReady, kWaiting, kDone };
  struct Slot;

  /// Which call of the environment waits for its Finish.
  enum class InFlight : uint8_t { kNone, kReset, kStep };

  absl::Status BeginReset(const EpisodeSeed& seed);
  absl::Status BeginStep(ActionRows actions);
  absl::Status FinishReset(StepWriter& out);
  absl::Status CheckActions(ActionRows actions);
  /// What can be said only when the environment has returned; moves the slots on.
  absl::Status FinishCall(StepWriter& out);
  absl::Status CheckObserved(AgentSlot id);
  absl::Status CheckState(const float* row, const char* whose);
  /// Whether the row that was just given is in its space; an error of ContainsFlat.
  absl::Status Contains(AgentSlot id) const;
  void CountOutsideSpace(AgentSlot id);
  absl::Status NotFinished() const;
  absl::Status Fail(absl::Status status);
  /// Fail with what the environment itself returned or threw.
  absl::Status FailedInside(const absl::Status& status);
  /// Of no agent in particular.
  static constexpr AgentSlot kNoAgent{-1};
  /// The error message's beginning: where it happened.
  std::string Where(AgentSlot id) const;
  absl::Status Broken(EnvRule rule, AgentSlot id, const std::string& what) const;

  const std::unique_ptr<MultiAgentEnv> env_;
  const Options options_;
  std::unique_ptr<Writer> writer_;
  std::vector<Slot> slots_;
  EpisodeSeed seed_;
  int64_t step_ = 0;
  bool running_ = false;  ///< between a Reset that worked and the episode's end or an error
  bool failed_ = false;   ///< the last call returned an error
  InFlight in_flight_ = InFlight::kNone;
  int32_t live_ = 0;               ///< agents that were observed and are not done
  int64_t missing_all_count_ = 0;  ///< of the episodes that this one ended
  int64_t outside_space_count_ = 0;
  bool outside_space_in_call_ = false;
  std::vector<OutsideSpace> outside_space_;  ///< not taken yet
};

}  // namespace troupe::env
