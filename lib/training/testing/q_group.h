#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/policy/testing.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/torch/torch_group.h"
#include <torch/torch.h>

namespace troupe::training {

/// How groups of tests and benchmarks train.
struct QSettings {
  TorchPath path = TorchPath::kHost;
  Device device = {};
  double gamma = 0.9;
  double learning_rate = 1e-2;
  OptimizerOptions optimizer = {.max_grad_norm = 0.5};
  std::vector<TargetRule> targets = {{"actor", 1, 2}};
  double scale = 1;  ///< of the loss
  bool own = false;  ///< adds a parameter of the group to each value
};

/// Q-learning of all members together, each by its own rows.
class QGroup final : public TorchGroup {
 public:
  QGroup(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
      : TorchGroup(members, context, settings.path), settings_(settings) {
    if (!settings.own) return;
    policy::ParameterLayout::Builder builder;
    builder.Section("mixer", /*trained=*/true, /*acting=*/false).Entry("bias", {1});
    builder.Section("mixer.target", /*trained=*/false, /*acting=*/false).Entry("bias", {1});
    SetOwn(FlatParameters(builder.Build()));
  }

 protected:
  absl::StatusOr<std::vector<torch::Tensor>> Inputs(const GroupUpdate& /*update*/) override {
    return std::vector<torch::Tensor>{torch::scalar_tensor(settings_.learning_rate, torch::kFloat64),
                                      torch::scalar_tensor(settings_.scale), torch::scalar_tensor(settings_.gamma)};
  }
  OptimizerOptions Optimizer() const override { return settings_.optimizer; }
  std::vector<TargetRule> Targets() const override { return settings_.targets; }
  void Train(TorchStep* step) override {
    torch::Tensor loss;
    for (const TorchMember* const m : step->members()) {
      const torch::Tensor next = m->AtNext(m->Greatest(m->Allowed(m->Run("actor", Net::kTarget, At::kPlaces))));
      const torch::Tensor target = m->rows().rewards.unsqueeze(1) + m->Discounts(step->input(2)).unsqueeze(1) * next;
      torch::Tensor error = m->Chosen(m->Run("actor")) - target;
      if (settings_.own) error = error + step->Own("mixer.bias");
      const torch::Tensor mean = m->Mean((0.5 * error.square()).sum(1)) * step->input(1);
      loss = loss.defined() ? loss + mean : mean;
    }
    const torch::Tensor norm = step->Minimize(loss, {"actor", "mixer"}, step->input(0));
    step->Report("Loss/Value loss", loss);
    step->Report("Policy/Gradient norm", norm);
  }

 private:
  const QSettings settings_;
};

/// Trains all policies as one Group.
template <typename Group>
class TorchAlgorithm final : public Algorithm {
 public:
  explicit TorchAlgorithm(const QSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "torch"; }
  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& /*spec*/) const override {
    return StateForm{.loss = LossOver::kTensors};
  }
  std::vector<std::vector<policy::PolicySlot>> Groups(absl::Span<const GroupMember> members) const override {
    std::vector<policy::PolicySlot> all;
    for (const GroupMember& member : members) all.push_back(member.slot);
    return {all};
  }
  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          const TrainingContext& context) const override {
    auto group = std::make_unique<Group>(members, context, settings_);
    last = group.get();
    return TorchGroup::Make(std::move(group));
  }

  mutable TorchGroup* last = nullptr;

 private:
  const QSettings settings_;
};

/// `spec` with an actor that gives values of actions and has a target, and nothing else.
inline policy::PolicySpec QSpecOf(policy::PolicySpec spec) {
  spec.actor.action_values = true;
  spec.actor.has_target = true;
  spec.actor.output_gain = 1;
  spec.learner_networks.clear();
  return spec;
}

}  // namespace troupe::training
