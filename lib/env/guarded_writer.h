#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// Finds an environment that writes beyond its rows: hands out rows of its own with guard bytes on both sides and
/// copies them on when the call is over. For conformance checks: a row costs a copy. Not thread-safe.
class GuardedWriter final : public StepWriter {
 public:
  static constexpr size_t kGuardBytes = 64;

  /// `spec` must outlive it.
  explicit GuardedWriter(const EnvSpec& spec);
  ~GuardedWriter() override;

  /// The writer of the next call, which passes everything on to `out`. Rows begin with what `out`'s hold.
  StepWriter& Begin(StepWriter& out);
  /// After the call: copies the rows. INTERNAL, with an EnvRule, names the agent, the row and its size when a guard was
  /// written to.
  absl::Status End();

  void* Observe(AgentSlot slot) override;
  uint8_t* ActionMask(AgentSlot slot) override;
  float* State(AgentSlot slot) override;
  void AddReward(AgentSlot slot, float reward) override { out_->AddReward(slot, reward); }
  void TerminateAgent(AgentSlot slot) override { out_->TerminateAgent(slot); }
  void TruncateAgent(AgentSlot slot) override { out_->TruncateAgent(slot); }
  void TerminateAll() override { out_->TerminateAll(); }
  void TruncateAll() override { out_->TruncateAll(); }
  void SetAgentMask(AgentSlot slot, bool active) override { out_->SetAgentMask(slot, active); }
  void SetInfo(AgentSlot slot, int column, double value) override { out_->SetInfo(slot, column, value); }

 private:
  /// A row between two guards.
  struct Row {
    std::vector<uint8_t> memory;
    size_t bytes = 0;
    uint8_t* target = nullptr;  ///< where the row goes; null when it was not asked for in this call
  };
  enum Kind : int { kObservation, kMask, kState, kKinds };

  Row* Find(Kind kind, AgentSlot slot);
  static void* HandOut(Row* row, void* target);
  absl::Status Close(Row& row, Kind kind, size_t slot);

  const EnvSpec& spec_;
  std::vector<Row> rows_[kKinds];  ///< by slot; a state of kPerEnv is slot 0's
  StepWriter* out_ = nullptr;
};

}  // namespace troupe::env
