#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_reader.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/on_policy_group.h"
#include "lib/training/core/schedule.h"
#include "lib/training/custom/custom_options.h"

namespace troupe::training {
namespace {

absl::Status AtLoss(const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat("algorithm.loss: ", status.message()));
}

/// A loss of a user's own (algorithm.loss, a TorchScript module), trained on-policy as PPO is.
class Custom final : public Algorithm {
 public:
  std::string_view name() const override { return "custom"; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const CustomOptions options, ParseCustomOptions(spec, now));
      return StateForm{.value_moments = options.normalizes_values(),
                       .optimizer = OptimizerNumber(options.optimizer),
                       .loss = LossOver::kModule};
    });
  }

  absl::Status CheckPolicy(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) const override {
    TROUPE_RETURN_IF_ERROR(OnPolicyGroup::Check(policy, spec));
    TROUPE_ASSIGN_OR_RETURN(const CustomOptions options, ParseCustomOptions(spec));
    policy::ModuleReader* const reader = policy::FindModuleReader();
    // Workers have no file and run no loss: MakeGroup wants it.
    if (reader == nullptr || !policy::ModuleFiles::OfProcess().Find(options.loss).ok()) return absl::OkStatus();
    return AtLoss(reader->CheckLoss(policy, options.loss));
  }

  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          const TrainingContext& /*context*/) const override {
    TROUPE_ASSIGN_OR_RETURN(const CustomOptions options, ParseCustomOptions(*members.front().algorithm));
    TROUPE_RETURN_IF_ERROR(AtLoss(policy::ModuleFiles::OfProcess().Find(options.loss).status()));
    return OnPolicyGroup::Make(members.front(), &PlanAt);
  }

 private:
  static absl::StatusOr<OnPolicyPlan> PlanAt(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec,
                                             const ScheduleTime& now) {
    TROUPE_ASSIGN_OR_RETURN(const CustomOptions options, ParseCustomOptions(spec, now));
    OnPolicyPlan plan;
    plan.options = OptionsFor(policy, options);
    TROUPE_ASSIGN_OR_RETURN(plan.frozen, FrozenRanges(policy, options.frozen_parameters));
    TROUPE_ASSIGN_OR_RETURN(plan.values_are_frozen, ValuesAreFrozen(policy, plan.frozen, options.use_popart));
    plan.num_epochs = options.num_epochs;
    plan.minibatch_size = options.minibatch_size;
    plan.loss.module = options.loss;
    return plan;
  }
};

}  // namespace

const Algorithm& CustomAlgorithm() {
  static const auto& custom = *new Custom;
  return custom;
}

}  // namespace troupe::training
