#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/trainer.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::learner {

/// A trainer for tests: "learns" by mixing a hash of everything in the batch into its parameters, so that weights are
/// equal exactly when batches, contexts and history are. Not thread-safe.
class FakeTrainer final : public Trainer {
 public:
  explicit FakeTrainer(std::vector<policy::PolicySpec> specs) : specs_(std::move(specs)) {
    for (const policy::PolicySpec& spec : specs_) {
      policy::PolicyState state;
      state.id = spec.id;
      // A free slot has nothing.
      if (!spec.id.value().empty())
        state.parameters.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).size()), 0.0f);
      states_.push_back(std::move(state));
    }
  }

  /// The next Update returns it.
  void FailNext(absl::Status status) { failure_ = std::move(status); }
  /// Called in every Update, which lasts as long as this does.
  void OnUpdate(std::function<void(const UpdateContext&)> during) { during_ = std::move(during); }
  int64_t updates() const { return updates_; }
  const UpdateContext& last_context() const { return last_context_; }
  /// Of the last batch.
  int64_t last_env_steps() const { return last_env_steps_; }
  int64_t last_agent_steps() const { return last_agent_steps_; }

  absl::StatusOr<std::vector<PolicyUpdateReport>> Update(const TrainBatch& batch,
                                                         const UpdateContext& context) override {
    if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
    if (during_ != nullptr) during_(context);
    ++updates_;
    last_context_ = context;
    last_env_steps_ = batch.env_steps;
    last_agent_steps_ = batch.agent_steps;
    std::vector<PolicyUpdateReport> reports;
    for (const PolicyTrainBatch& rows : batch.policies) {
      if (!Has(rows.policy)) return absl::InternalError("rows of a slot without a policy");
    }
    for (const PolicyTrainBatch& rows : batch.policies) {
      hash_ = 0xcbf29ce484222325ull;
      Mix(context.seed);
      Mix(context.iteration);
      Mix(context.env_steps);
      Mix(rows.rows);
      MixAll(rows.obs);
      MixAll(rows.actions);
      MixAll(rows.action_logp);
      MixAll(rows.rewards);
      MixAll(rows.action_mask);
      MixAll(rows.agent_mask);
      MixAll(rows.slot);
      MixAll(rows.critic_row);
      MixAll(rows.final_obs);
      MixAll(rows.final_slot);
      MixAll(rows.final_critic_row);
      MixAll(rows.critic_state);
      for (const TrainSegment& segment : rows.segments) {
        Mix(segment.first_row);
        Mix(segment.rows);
        Mix(segment.final_row);
        Mix(segment.env_id);
        Mix(segment.episode);
        Mix(segment.slot);
      }
      policy::PolicyState& state = states_[rows.policy.value()];
      for (float& parameter : state.parameters) {
        hash_ = hash_ * 6364136223846793005ull + 1442695040888963407ull;
        parameter = 0.5f * parameter + static_cast<float>(hash_ >> 40) * 0x1p-24f;
      }
      state.trained_rows += rows.rows;
      PolicyUpdateReport report;
      report.policy = rows.policy;
      report.trained_rows = rows.rows;
      report.minibatch_steps = 1;
      report.epochs = 1;
      report.metrics.emplace_back("Loss/Policy loss", static_cast<double>(rows.policy.value() + 1));
      reports.push_back(std::move(report));
    }
    for (policy::PolicyState& state : states_) state.version = context.next_version;
    return reports;
  }

  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override {
    const policy::PolicyState& state = states_[policy.value()];
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = state.id;
    snapshot->version = state.version;
    const int64_t actor_size = policy::ParameterLayout::For(specs_[policy.value()]).actor_size();
    snapshot->actor.assign(state.parameters.begin(), state.parameters.begin() + actor_size);
    return policy::WeightSnapshotPtr(std::move(snapshot));
  }

  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override {
    return states_[policy.value()];
  }

  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override {
    if (state.parameters.size() != states_[policy.value()].parameters.size()) {
      return absl::InvalidArgumentError("parameters do not fit");
    }
    states_[policy.value()] = state;
    return absl::OkStatus();
  }

  absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         policy::PolicySlot like) override {
    if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
    const auto place = static_cast<size_t>(slot.value());
    if (place >= specs_.size()) {
      specs_.resize(place + 1);
      states_.resize(place + 1);
    }
    if (!specs_[place].id.value().empty()) return absl::AlreadyExistsError("the slot is taken");
    if (!Has(like)) return absl::NotFoundError("there is no policy to be like");
    if (static_cast<int64_t>(state.parameters.size()) != policy::ParameterLayout::For(spec).size()) {
      return absl::InvalidArgumentError("parameters do not fit");
    }
    specs_[place] = spec;
    states_[place] = std::move(state);
    return absl::OkStatus();
  }
  absl::Status RemovePolicy(policy::PolicySlot slot) override {
    if (!Has(slot)) return absl::NotFoundError("there is no such policy");
    specs_[static_cast<size_t>(slot.value())] = {};
    states_[static_cast<size_t>(slot.value())] = {};
    return absl::OkStatus();
  }
  bool Has(policy::PolicySlot slot) const {
    const auto place = static_cast<size_t>(slot.value());
    return slot.value() >= 0 && place < specs_.size() && !specs_[place].id.value().empty();
  }

 private:
  template <typename T>
  void Mix(T value) {
    MixBytes(&value, sizeof(value));
  }
  template <typename T>
  void MixAll(absl::Span<const T> values) {
    MixBytes(values.data(), values.size() * sizeof(T));
  }
  void MixBytes(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3ull;
  }

  std::vector<policy::PolicySpec> specs_;  ///< by slot; a free one has no id
  std::vector<policy::PolicyState> states_;
  absl::Status failure_;
  std::function<void(const UpdateContext&)> during_;
  int64_t updates_ = 0;
  int64_t last_env_steps_ = 0;
  int64_t last_agent_steps_ = 0;
  UpdateContext last_context_;
  uint64_t hash_ = 0;
};

}  // namespace troupe::learner
