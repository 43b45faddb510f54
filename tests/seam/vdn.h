#pragma once

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/core/optimizer.h"

namespace troupe::seam {

/// Value decomposition networks (Sunehag et al. 2018). All policies of the run are one group, and each plays one agent.
/// An actor network gives Q-values: it acts greedily but for an epsilon that falls over the first updates. A joint
/// action's value is their sum, its reward the sum of the agents'. The members' target networks are the group's blocks.
class VdnGroup final : public training::GroupTrainer {
 public:
  static constexpr double kLearningRate = 5e-3;
  static constexpr float kGamma = 0.99f;
  static constexpr int64_t kTargetUpdateInterval = 20;  ///< updates
  static constexpr double kLastEpsilon = 0.5;           // games that are not worth it have values, too
  static constexpr int64_t kExplores = 500;             ///< updates, until then

  VdnGroup(absl::Span<const training::GroupMember> members, uint64_t seed) {
    for (const training::GroupMember& member : members) {
      const training::FlatParameters fresh = training::InitialParameters(*member.spec, seed);
      targets_.push_back({absl::StrCat("target.", targets_.size()), {fresh.size()}, Copy(fresh)});
    }
  }

  int64_t MinibatchRows(int64_t rows) const override { return rows; }
  std::vector<policy::StateBlock> Export() const override { return targets_; }
  std::map<std::string, double, std::less<>> Exploration(policy::PolicySlot /*member*/,
                                                         const training::ScheduleTime& now) const override {
    const double left = 1 - static_cast<double>(now.updates) / kExplores;
    return {{policy::WeightSnapshot::kEpsilon, std::max(kLastEpsilon, left)}};
  }
  absl::Status Import(const std::vector<policy::StateBlock>& blocks) override {
    std::vector<policy::BlockSpec> known;
    for (const policy::StateBlock& block : targets_) known.push_back({block.name, block.type(), block.shape});
    TROUPE_RETURN_IF_ERROR(policy::CheckKnownBlocks("vdn", blocks, known));
    for (policy::StateBlock& target : targets_) target = *policy::FindBlock(blocks, target.name);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const training::GroupUpdate& update) override {
    std::vector<Player> players;
    for (size_t p = 0; p < update.batches.size(); ++p) {
      TROUPE_ASSIGN_OR_RETURN(Player player, Evaluate(update, p));
      players.push_back(std::move(player));
    }
    Differentiate(update.batch, absl::MakeSpan(players));
    std::vector<learner::PolicyUpdateReport> reports;
    for (const Player& player : players) {
      training::ResidentPolicy& resident = player.member.resident;
      const training::ParameterBlock actor = resident.parameters.blocks().front();
      std::fill(actor.gradients.begin(), actor.gradients.end(), 0.0f);
      TROUPE_RETURN_IF_ERROR(
          resident.backend->Backward(player.call, player.derivatives, resident.parameters.gradients()));
      const double norm = training::GradientNorm(actor);
      if (!std::isfinite(norm)) return absl::InternalError("a gradient that is not finite");
      training::StepBlock(++resident.parameters.adam_steps, kLearningRate, training::StepSettings(), norm, actor);
      learner::PolicyUpdateReport& report = reports.emplace_back();
      report.policy = player.batch.policy;
      report.trained_rows = player.batch.rows;
    }
    return reports;
  }

 private:
  /// A member in an update. Values, and the loss's derivatives by them, are [rows and final rows, actions].
  struct Player {
    const training::MemberAtWork& member;
    const learner::PolicyTrainBatch& batch;
    std::vector<int32_t> rows = {};
    training::NetworkCall call = {};
    std::vector<float> values = {}, target_values = {}, derivatives = {};

    int64_t Chosen(int32_t row) const { return row * member.spec.actor_output_size() + batch.actions[row].i32; }
    float Greatest(int32_t row) const {
      const auto first = target_values.begin() + row * member.spec.actor_output_size();
      return *std::max_element(first, first + member.spec.actor_output_size());
    }
  };
  static std::vector<float> Copy(const training::FlatParameters& parameters) {
    return {parameters.values().begin(), parameters.values().end()};
  }

  absl::StatusOr<Player> Evaluate(const training::GroupUpdate& update, size_t p) {
    Player player{update.members[p], *update.batches[p]};
    training::ResidentPolicy& resident = player.member.resident;
    auto& target = std::get<std::vector<float>>(targets_[p].values);
    if (update.context.iteration % kTargetUpdateInterval == 0) target = Copy(resident.parameters);
    training::PreparedBatch& prepared = update.memory.prepared(p);
    TROUPE_RETURN_IF_ERROR(prepared.Prepare(player.member.spec, resident.observation_moments, player.batch));
    // A critic of the agent's own observation reads what the actor does, and the final observations.
    for (int32_t row = 0; row < prepared.critic_input().rows; ++row) player.rows.push_back(row);
    player.call = {"actor", target, prepared.critic_input(), player.rows, update.thread};
    TROUPE_ASSIGN_OR_RETURN(player.target_values, resident.backend->Forward(player.call));
    player.call.parameters = resident.parameters.values();
    TROUPE_ASSIGN_OR_RETURN(player.values, resident.backend->Forward(player.call));
    player.derivatives.resize(player.values.size());
    return player;
  }

  /// By policy its row at a joint step. Empty unless all agents are there; with `acting` unless all act.
  static std::vector<int32_t> RowsAt(const learner::TrainBatch& batch, const learner::JointStep& step, bool acting) {
    std::vector<int32_t> rows(batch.policies.size(), -1);
    for (int32_t e = step.first_entry; e < step.first_entry + step.num_entries; ++e) {
      const learner::JointEntry& entry = batch.joint->entries[e];
      const auto p = static_cast<size_t>(entry.policy.value());
      if (rows[p] >= 0 || (acting && entry.row < 0)) continue;
      rows[p] = entry.row >= 0 ? entry.row : static_cast<int32_t>(batch.policies[p].rows) + entry.final_row;
    }
    if (std::count(rows.begin(), rows.end(), -1) > 0) rows.clear();
    return rows;
  }

  /// Of the sum over joint steps of (Q(s, u) - r - gamma max Q'(s', u'))^2 / 2.
  static void Differentiate(const learner::TrainBatch& batch, absl::Span<Player> players) {
    for (const learner::JointStep& step : batch.joint->steps) {
      const std::vector<int32_t> rows = RowsAt(batch, step, /*acting=*/true);
      std::vector<int32_t> next;
      if (step.next >= 0) next = RowsAt(batch, batch.joint->steps[step.next], /*acting=*/false);
      if (rows.empty() || (step.next >= 0 && next.empty())) continue;
      float error = 0;
      for (size_t p = 0; p < players.size(); ++p) {
        error += players[p].values[players[p].Chosen(rows[p])] - players[p].batch.rewards[rows[p]];
        if (step.next >= 0) error -= kGamma * players[p].Greatest(next[p]);
      }
      for (size_t p = 0; p < players.size(); ++p) players[p].derivatives[players[p].Chosen(rows[p])] = error;
    }
  }

  std::vector<policy::StateBlock> targets_;  ///< by member
};

class Vdn final : public training::Algorithm {
 public:
  explicit Vdn(learner::FeedSpec feed) : feed_(std::move(feed)) {}
  std::string_view name() const override { return "vdn"; }
  absl::StatusOr<training::StateForm> FormOf(const policy::AlgorithmSpec& /*spec*/) const override {
    return training::StateForm{};
  }
  std::vector<std::vector<policy::PolicySlot>> Groups(absl::Span<const training::GroupMember> members) const override {
    std::vector<policy::PolicySlot> all;
    for (const training::GroupMember& member : members) all.push_back(member.slot);
    return {all};
  }
  std::optional<learner::FeedSpec> Feed(const policy::AlgorithmSpec& /*spec*/) const override { return feed_; }
  bool reads_joint_steps(const policy::AlgorithmSpec& /*spec*/) const override { return true; }
  absl::StatusOr<std::unique_ptr<training::GroupTrainer>> MakeGroup(
      absl::Span<const training::GroupMember> members, const training::TrainingContext& context) const override {
    return std::make_unique<VdnGroup>(members, context.seed);
  }

 private:
  const learner::FeedSpec feed_;
};

}  // namespace troupe::seam
