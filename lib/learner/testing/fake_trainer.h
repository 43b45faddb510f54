#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "lib/learner/trainer.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::learner {

/// A trainer for tests: "learns" by mixing a hash of everything in the batch into its parameters, so that weights are
/// equal exactly when batches, contexts and history are. Not thread-safe.
class FakeTrainer final : public Trainer {
 public:
  explicit FakeTrainer(policy::BySlot<policy::PolicySpec> specs) : specs_(std::move(specs)) {
    for (const policy::PolicySpec& spec : specs_) {
      policy::PolicyState state;
      state.id = spec.id;
      // A free slot has nothing.
      if (!spec.id.value().empty())
        state.Set(policy::kParameters,
                  std::vector<float>(static_cast<size_t>(policy::ParameterLayout::For(spec).size()), 0.0f));
      states_.push_back(std::move(state));
    }
  }

  /// The next Update returns it.
  void FailNext(absl::Status status) { failure_ = std::move(status); }
  /// From now on every row is a dead agent's, which is trained on and is no trained row.
  void TakeAllForDead() { all_are_dead_ = true; }
  /// From now on the policies `group` has are trained together, and it keeps a block of what it was trained on:
  /// "trained_rows", an i64 of each member. The other policies are groups by themselves.
  void KeepGroup(policy::LearnGroup group) {
    policy::StateBlock block;
    block.name = "trained_rows";
    block.shape = {static_cast<int64_t>(group.members.size())};
    block.values = std::vector<int64_t>(group.members.size());
    kept_.push_back({group.id, {std::move(block)}});
    groups_.push_back(std::move(group));
  }
  /// From now on its groups are fed so, and policies that a batch does not train stay as they are.
  void TakeFeed(FeedSpec feed) { feeds_.push_back(std::move(feed)); }
  /// Called in every Update with what it is given.
  void OnBatch(std::function<void(const TrainBatch&, const UpdateContext&)> look) { look_ = std::move(look); }
  /// Called in every Update, which lasts as long as this does.
  void OnUpdate(std::function<void(const UpdateContext&)> during) { during_ = std::move(during); }
  /// Of the last batch; -1: it had none.
  int64_t last_joint_steps() const { return last_joint_steps_; }
  int64_t updates() const { return updates_; }
  const UpdateContext& last_context() const { return last_context_; }
  /// Of the last batch.
  int64_t last_env_steps() const { return last_env_steps_; }
  int64_t last_agent_steps() const { return last_agent_steps_; }
  /// That SetAlgorithm was given last.
  const policy::AlgorithmSpec& last_algorithm() const { return last_algorithm_; }
  /// By policy of the last batch: PolicyTrainBatch::train.
  const std::vector<bool>& last_train() const { return last_train_; }

  absl::StatusOr<std::vector<PolicyUpdateReport>> Update(const TrainBatch& batch,
                                                         const UpdateContext& context) override {
    if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
    if (during_ != nullptr) during_(context);
    if (look_ != nullptr) look_(batch, context);
    ++updates_;
    last_context_ = context;
    last_env_steps_ = batch.env_steps;
    last_agent_steps_ = batch.agent_steps;
    last_joint_steps_ = batch.joint == nullptr ? -1 : static_cast<int64_t>(batch.joint->steps.size());
    std::vector<PolicyUpdateReport> reports;
    last_train_.clear();
    for (const PolicyTrainBatch& rows : batch.policies) {
      last_train_.push_back(rows.train);
      if (!Has(rows.policy)) return absl::InternalError("rows of a slot without a policy");
    }
    for (const PolicyTrainBatch& rows : batch.policies) {
      if (!feeds_.empty() && !rows.train) {
        reports.emplace_back().policy = rows.policy;
        continue;
      }
      hash_ = 0xcbf29ce484222325ull;
      Mix(context.seed);
      Mix(context.iteration);
      Mix(context.env_steps);
      Mix(rows.rows);
      MixMatrix(rows.obs);
      MixAll(rows.actions);
      MixAll(rows.action_logp);
      MixAll(rows.rewards);
      MixAll(rows.action_mask);
      MixAll(rows.agent_mask);
      MixAll(rows.slot);
      MixAll(rows.critic_row);
      MixMatrix(rows.final_obs);
      MixBytes(rows.images.data, static_cast<size_t>(rows.images.rows * rows.images.columns));
      MixBytes(rows.final_images.data, static_cast<size_t>(rows.final_images.rows * rows.final_images.columns));
      MixBytes(rows.critic_images.data, static_cast<size_t>(rows.critic_images.rows * rows.critic_images.columns));
      MixAll(rows.final_slot);
      MixAll(rows.final_critic_row);
      MixMatrix(rows.critic_state);
      MixMatrix(rows.memory);
      for (const TrainSequence& sequence : rows.sequences) {
        Mix(sequence.first_row);
        Mix(sequence.rows);
        Mix(sequence.decision);
      }
      for (const TrainSegment& segment : rows.segments) {
        Mix(segment.first_row);
        Mix(segment.rows);
        Mix(segment.final_row);
        Mix(segment.env_id);
        Mix(segment.episode);
        Mix(segment.slot);
      }
      policy::PolicyState& state = states_[rows.policy];
      for (float& parameter : state.MutableFloats(policy::kParameters)) {
        hash_ = hash_ * 6364136223846793005ull + 1442695040888963407ull;
        parameter = 0.5f * parameter + static_cast<float>(hash_ >> 40) * 0x1p-24f;
      }
      state.SetInteger("trained_rows", state.Integer("trained_rows") + rows.rows);
      NoteInGroup(rows);
      PolicyUpdateReport report;
      report.policy = rows.policy;
      report.trained_rows = all_are_dead_ ? 0 : rows.rows;
      report.minibatch_steps = 1;
      report.epochs = 1;
      report.metrics.emplace_back("Loss/Policy loss", static_cast<double>(rows.policy.value() + 1));
      reports.push_back(std::move(report));
    }
    for (policy::PolicyState& state : states_) state.version = context.next_version;
    return reports;
  }

  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override {
    const policy::PolicyState& state = states_[policy];
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = state.id;
    snapshot->version = state.version;
    const int64_t actor_size = policy::ParameterLayout::For(specs_[policy]).acting_size();
    snapshot->actor.assign(state.parameters().begin(), state.parameters().begin() + actor_size);
    return policy::WeightSnapshotPtr(std::move(snapshot));
  }

  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override { return states_[policy]; }

  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override {
    if (state.parameters().size() != states_[policy].parameters().size()) {
      return absl::InvalidArgumentError("parameters do not fit");
    }
    states_[policy] = state;
    return absl::OkStatus();
  }

  absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         policy::PolicySlot like) override {
    if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
    specs_.GrowTo(slot);
    states_.GrowTo(slot);
    if (!specs_[slot].id.value().empty()) return absl::AlreadyExistsError("the slot is taken");
    if (!Has(like)) return absl::NotFoundError("there is no policy to be like");
    if (static_cast<int64_t>(state.parameters().size()) != policy::ParameterLayout::For(spec).size()) {
      return absl::InvalidArgumentError("parameters do not fit");
    }
    specs_[slot] = spec;
    states_[slot] = std::move(state);
    return absl::OkStatus();
  }
  absl::Status SetAlgorithm(policy::PolicySlot slot, const policy::AlgorithmSpec& algorithm) override {
    if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
    if (!Has(slot)) return absl::NotFoundError("there is no such policy");
    last_algorithm_ = algorithm;
    return absl::OkStatus();
  }
  absl::Status RemovePolicy(policy::PolicySlot slot) override {
    if (!Has(slot)) return absl::NotFoundError("there is no such policy");
    specs_[slot] = {};
    states_[slot] = {};
    // A group goes with the last of its policies.
    for (size_t g = groups_.size(); g-- > 0;) {
      const std::vector<policy::PolicySlot>& members = groups_[g].members;
      if (std::any_of(members.begin(), members.end(), [this](policy::PolicySlot member) { return Has(member); }))
        continue;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(g));
    }
    return absl::OkStatus();
  }
  std::vector<policy::LearnGroup> Groups() const override {
    if (groups_.empty()) return {};
    std::vector<policy::LearnGroup> groups = groups_;
    for (const policy::PolicySlot slot : specs_.ids()) {
      if (!Has(slot) || !specs_[slot].policy_class.trainable() || GroupOf(slot) != nullptr) continue;
      groups.push_back({policy::GroupId(specs_[slot].id.value()), "fake", {slot}});
    }
    return groups;
  }
  std::vector<FeedSpec> Feeds() const override { return feeds_; }
  absl::StatusOr<std::vector<policy::GroupState>> ExportGroups() override { return kept_; }
  absl::Status ImportGroup(const policy::GroupState& state) override {
    for (policy::GroupState& kept : kept_) {
      if (kept.id != state.id) continue;
      if (state.blocks.size() != 1 || state.blocks[0].name != kept.blocks[0].name ||
          state.blocks[0].shape != kept.blocks[0].shape) {
        return absl::InvalidArgumentError("blocks do not fit the group");
      }
      kept = state;
      return absl::OkStatus();
    }
    return absl::NotFoundError("there is no such group");
  }
  bool Has(policy::PolicySlot slot) const { return specs_.Contains(slot) && !specs_[slot].id.value().empty(); }

 private:
  const policy::LearnGroup* GroupOf(policy::PolicySlot slot) const {
    for (const policy::LearnGroup& group : groups_) {
      if (std::count(group.members.begin(), group.members.end(), slot) > 0) return &group;
    }
    return nullptr;
  }
  void NoteInGroup(const PolicyTrainBatch& rows) {
    const policy::LearnGroup* const group = GroupOf(rows.policy);
    if (group == nullptr) return;
    const auto place = std::find(group->members.begin(), group->members.end(), rows.policy) - group->members.begin();
    policy::GroupState& kept = kept_[static_cast<size_t>(group - groups_.data())];
    std::get<std::vector<int64_t>>(kept.blocks[0].values)[static_cast<size_t>(place)] += rows.rows;
  }
  template <typename T>
  void Mix(T value) {
    MixBytes(&value, sizeof(value));
  }
  template <typename T>
  void MixAll(absl::Span<const T> values) {
    MixBytes(values.data(), values.size() * sizeof(T));
  }
  void MixMatrix(const RowMatrix& matrix) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      MixBytes(matrix.row(r), static_cast<size_t>(matrix.columns) * sizeof(float));
    }
  }
  void MixBytes(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3ull;
  }

  policy::BySlot<policy::PolicySpec> specs_;  ///< a free slot's has no id
  policy::BySlot<policy::PolicyState> states_;
  std::vector<policy::LearnGroup> groups_;  ///< that were asked for
  std::vector<policy::GroupState> kept_;    ///< by the same
  std::vector<FeedSpec> feeds_;
  absl::Status failure_;
  policy::AlgorithmSpec last_algorithm_;
  bool all_are_dead_ = false;
  std::function<void(const UpdateContext&)> during_;
  std::function<void(const TrainBatch&, const UpdateContext&)> look_;
  int64_t updates_ = 0;
  int64_t last_env_steps_ = 0;
  int64_t last_agent_steps_ = 0;
  std::vector<bool> last_train_;
  int64_t last_joint_steps_ = -1;
  UpdateContext last_context_;
  uint64_t hash_ = 0;
};

}  // namespace troupe::learner
