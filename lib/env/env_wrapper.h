#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lib/env/env_rule.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// A StepWriter that passes everything on, in the order of the calls; a wrapper overrides what it changes.
class ForwardingWriter : public StepWriter {
 public:
  /// The writer of the call that begins; must outlive the call.
  void Begin(StepWriter& out) { out_ = &out; }

  void* Observe(AgentSlot slot) override { return out_->Observe(slot); }
  uint8_t* ActionMask(AgentSlot slot) override { return out_->ActionMask(slot); }
  float* State(AgentSlot slot) override { return out_->State(slot); }
  void AddReward(AgentSlot slot, float reward) override { out_->AddReward(slot, reward); }
  void TerminateAgent(AgentSlot slot) override { out_->TerminateAgent(slot); }
  void TruncateAgent(AgentSlot slot) override { out_->TruncateAgent(slot); }
  void TerminateAll() override { out_->TerminateAll(); }
  void TruncateAll() override { out_->TruncateAll(); }
  void SetAgentMask(AgentSlot slot, bool active) override { out_->SetAgentMask(slot, active); }
  void SetInfo(AgentSlot slot, int column, double value) override { out_->SetInfo(slot, column, value); }

 protected:
  StepWriter& out() { return *out_; }

 private:
  StepWriter* out_ = nullptr;
};

/// The base of every environment that stands before another one: it owns the inner one, passes calls on, whole or in
/// two halves, and asks its three hooks what to change. With no hook overridden it is the inner environment.
///
/// The inner environment is held to its contract (CheckedEnv) unless it is a wrapper itself, whose own inner one is;
/// so a hook sees only what the contract allows, and a stack of wrappers checks once. Not thread-safe.
class EnvWrapper : public MultiAgentEnv {
 public:
  const EnvSpec& spec() const final { return spec_; }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) final;
  absl::Status Step(ActionRows actions, StepWriter& out) final;

  bool runs_elsewhere() const final { return inner_->runs_elsewhere(); }
  absl::Status StartReset(const EpisodeSeed& seed) final;
  absl::Status StartStep(ActionRows actions) final;
  absl::Status Finish(StepWriter& out) final;
  absl::Status Draw(Canvas& canvas) const final { return inner_->Draw(canvas); }
  void NoteDecision(AgentSlot slot, std::string_view policy, float log_prob) override {
    inner_->NoteDecision(slot, policy, log_prob);
  }
  void NoteEnd() final { inner_->NoteEnd(); }
  int64_t missing_all_count() const final { return inner_->missing_all_count(); }

 protected:
  /// `spec` is what policies see.
  EnvWrapper(std::unique_ptr<MultiAgentEnv> inner, EnvSpec spec);

  /// What the inner environment gets for `actions`: by inner slots. Must stay valid until the call is over.
  virtual ActionRows MapActions(ActionRows actions) { return actions; }
  /// The writer for the inner environment in a call whose own writer is `out`.
  virtual StepWriter& BeginCall(StepWriter& out) { return out; }
  /// The inner environment has written everything. An error ends the episode.
  virtual absl::Status EndCall(StepWriter& /*out*/) { return absl::OkStatus(); }

  const EnvSpec& inner_spec() const { return inner_->spec(); }
  bool is_reset() const { return step_ == 0; }  ///< whether the call is a Reset
  int64_t step() const { return step_; }        ///< of the call: 0 is Reset, 1 the first Step
  /// `what` as an error of the environment: INTERNAL with the rule, and where it happened.
  absl::Status Broken(EnvRule rule, const std::string& what) const;

 private:
  void Begin(const EpisodeSeed& seed);
  absl::Status CheckSize(ActionRows actions) const;

  const std::unique_ptr<MultiAgentEnv> inner_;
  const EnvSpec spec_;
  EpisodeSeed seed_;
  int64_t step_ = 0;
};

}  // namespace troupe::env
