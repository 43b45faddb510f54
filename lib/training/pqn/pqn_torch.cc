#include "lib/training/pqn/pqn_torch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/core/q_lambda.h"
#include "lib/training/pqn/pqn_options.h"
#include "lib/training/torch/torch_group.h"
#include "lib/training/torch/torch_parts.h"

namespace troupe::training {
namespace {

using torch::Tensor;

/// Each discrete leaf of an action has its own values. Without a mixer each leaf learns by itself: the loss is the mean
/// of their halved squared errors. With one, an agent's value is the sum over its leaves, as of agents of the team.
class PqnGroup final : public TorchGroup {
 public:
  PqnGroup(absl::Span<const GroupMember> members, const TrainingContext& context, TorchPath path,
           std::vector<policy::AlgorithmSpec> specs, const PqnOptions& options)
      : TorchGroup(members, context, path), specs_(std::move(specs)), options_(options) {
    for (const GroupMember& member : members) slots_.push_back(member.slot);
  }

  int64_t MinibatchRows(int64_t rows) const override { return std::min(options_.minibatch_size, rows); }

  std::map<std::string, double, std::less<>> Exploration(policy::PolicySlot member,
                                                         const ScheduleTime& now) const override {
    const auto at = std::find(slots_.begin(), slots_.end(), member) - slots_.begin();
    // FormOf has seen that they are fine at every time.
    return {{policy::WeightSnapshot::kEpsilon,
             ParsePqnOptions(specs_[static_cast<size_t>(at)], now).value_or(options_).epsilon.initial}};
  }

 protected:
  absl::StatusOr<std::vector<Tensor>> Inputs(const GroupUpdate& update) override {
    const int64_t minibatch_size = options_.minibatch_size;  // the group's
    TROUPE_ASSIGN_OR_RETURN(options_,
                            ParsePqnOptions(specs_.front(), {update.context.env_steps, update.context.iteration}));
    options_.minibatch_size = minibatch_size;
    return std::vector<Tensor>{torch::scalar_tensor(options_.learning_rate, torch::kFloat64)};
  }
  OptimizerOptions Optimizer() const override { return options_; }
  bool counts_dead_rows() const override { return !options_.use_policy_active_masks; }
  std::optional<MinibatchPlan> Minibatches() const override {
    return MinibatchPlan{options_.num_epochs, options_.minibatch_size, mixes()};
  }

  absl::StatusOr<std::vector<Tensor>> RowTargets(const GroupUpdate& update,
                                                 absl::Span<const TorchGroupRows> all) override {
    const QLambda options = {options_.gamma, options_.q_lambda, options_.time_limit_bootstrap,
                             options_.discount_by == DiscountBy::kEnvStep};
    std::vector<Tensor> greatest;  // by member [its leaves, places]; of a team [1, places]
    for (const TorchGroupRows& of : all) {
      const TorchMember& m = of.member;
      const Tensor all_values = m.Run(policy::kActorRole, Net::kOnline, At::kPlaces);
      const Tensor values = m.Greatest(m.Allowed(all_values));
      greatest.push_back(ToHost((mixes() ? values.sum(1, /*keepdim=*/true) : values).t()));
    }
    const auto values_of = [&](size_t member, int64_t leaf) {
      const int64_t rows = all[member].batch.rows;
      const float* const first = greatest[member].data_ptr<float>() + leaf * greatest[member].size(1);
      return GreatestValues{{first, static_cast<size_t>(rows)},
                            {first + rows, static_cast<size_t>(greatest[member].size(1) - rows)}};
    };
    std::vector<Tensor> targets;
    if (!mixes()) {
      for (size_t member = 0; member < all.size(); ++member) {
        std::vector<Tensor> leaves;
        for (int64_t leaf = 0; leaf < greatest[member].size(0); ++leaf) {
          leaves.push_back(
              torch::tensor(QLambdaTargets(all[member].batch, all[member].uses, values_of(member, leaf), options)));
        }
        targets.push_back(torch::stack(leaves, 1));
      }
      return targets;
    }
    std::vector<TeamMember> members;
    for (size_t member = 0; member < all.size(); ++member) {
      members.push_back({all[member].batch, all[member].uses, values_of(member, 0)});
    }
    const std::vector<float> of_steps = TeamQLambdaTargets(*update.batch.joint, members, options);
    for (const TorchGroupRows& of : all) {
      std::vector<float> of_rows;
      for (const learner::JointPlace& place : of.batch.joint_place) {
        of_rows.push_back(of_steps[static_cast<size_t>(place.step)]);
      }
      targets.push_back(torch::tensor(of_rows));
    }
    return targets;
  }

  void Train(TorchStep* step) override {
    std::vector<Tensor> values, targets;
    for (const TorchMember* const m : step->members()) {
      const Tensor chosen = m->Chosen(m->Run(policy::kActorRole));
      values.push_back(mixes() ? chosen.sum(1) : chosen);
      targets.push_back(m->rows().targets);
    }
    // Without a mixer a group is one policy.
    const Tensor value = mixes() ? step->AtJointSteps(values).sum(1) : values.front();
    const Tensor target = mixes() ? step->AtJointSteps(targets).select(1, 0) : targets.front();
    const Tensor loss = 0.5 * (value - target).square().mean();
    const Tensor norm = step->Minimize(loss, {policy::kActorRole}, step->input(0));
    step->Report("Loss/Value loss", loss);
    step->Report("Policy/Action value", value.mean());
    step->Report("Policy/Gradient norm", norm);
    step->Report("Policy/Learning rate", step->input(0));
  }

 private:
  bool mixes() const { return options_.mixer != Mixer::kNone; }

  const std::vector<policy::AlgorithmSpec> specs_;  ///< by member
  std::vector<policy::PolicySlot> slots_;
  PqnOptions options_;  ///< at the last update
};

/// INVALID_ARGUMENT, naming the key, where policies of one team learn in different ways; epsilon is each one's own.
absl::Status CheckTeam(absl::Span<const GroupMember> members) {
  const GroupMember& first = members.front();
  for (const GroupMember& member : members) {
    for (const auto& [key, value] : first.algorithm->options) {
      // minibatch_size: auto is worked out for each policy.
      if (key == "epsilon" || key == "minibatch_size") continue;
      const auto found = member.algorithm->options.find(key);
      if (found != member.algorithm->options.end() && found->second == value) continue;
      return absl::InvalidArgumentError(absl::StrCat("algorithm.", key, ": policies \"", first.spec->id.value(),
                                                     "\" and \"", member.spec->id.value(),
                                                     "\" have different ones; expected one value for all policies that "
                                                     "mixer: vdn trains together"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GroupTrainer>> MakePqn(absl::Span<const GroupMember> members,
                                                      const TrainingContext& context) {
  return MakePqnGroup(members, context, context.device.is_cuda() ? TorchPath::kDevice : TorchPath::kHost);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupTrainer>> MakePqnGroup(absl::Span<const GroupMember> members,
                                                           const TrainingContext& context, TorchPath path) {
  TROUPE_RETURN_IF_ERROR(CheckTeam(members));
  TROUPE_ASSIGN_OR_RETURN(PqnOptions options, ParsePqnOptions(*members.front().algorithm));
  std::vector<policy::AlgorithmSpec> specs;
  for (const GroupMember& member : members) {
    specs.push_back(*member.algorithm);
    TROUPE_ASSIGN_OR_RETURN(const PqnOptions own, ParsePqnOptions(*member.algorithm));
    options.minibatch_size = std::max(options.minibatch_size, own.minibatch_size);
  }
  return TorchGroup::Make(std::make_unique<PqnGroup>(members, context, path, std::move(specs), options));
}

TorchParts PqnTorch() { return {.make_group = &MakePqn}; }

}  // namespace troupe::training
