#include "lib/training/a2c/a2c.h"

#include "lib/base/status_macros.h"
#include "lib/training/a2c/a2c_row_loss.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/on_policy_group.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {
namespace {

const fused::LossKernels* A2cKernelsFor([[maybe_unused]] fused::Unit unit) {
#if defined(TROUPE_KERNEL_X86_64_V4)
  if (unit == fused::Unit::kAvx512) return fused::A2cAvx512Kernels();
#endif
#if defined(TROUPE_KERNEL_X86_64_V3)
  if (unit == fused::Unit::kAvx2) return fused::A2cAvx2Kernels();
#endif
  return nullptr;
}

constexpr RowColumn kA2cActorColumns[] = {RowColumn::kAdvantage};
constexpr RowColumn kA2cCriticColumns[] = {RowColumn::kValueTarget};
constexpr RowLoss kA2cRowLoss = {"a2c", kA2cActorColumns, kA2cCriticColumns, &A2cKernelsFor};

class A2c final : public Algorithm {
 public:
  std::string_view name() const override { return "a2c"; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const A2cOptions options, ParseA2cOptions(spec, now));
      return StateForm{.value_moments = options.normalizes_values(), .optimizer = OptimizerNumber(options.optimizer)};
    });
  }

  absl::Status CheckPolicy(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) const override {
    return OnPolicyGroup::Check(policy, spec);
  }

  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          const TrainingContext& /*context*/) const override {
    return OnPolicyGroup::Make(members.front(), &PlanAt);
  }

 private:
  static absl::StatusOr<OnPolicyPlan> PlanAt(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec,
                                             const ScheduleTime& now) {
    TROUPE_ASSIGN_OR_RETURN(const A2cOptions options, ParseA2cOptions(spec, now));
    OnPolicyPlan plan;
    plan.options = OptionsFor(policy, options);
    TROUPE_ASSIGN_OR_RETURN(plan.frozen, FrozenRanges(policy, options.frozen_parameters));
    TROUPE_ASSIGN_OR_RETURN(plan.values_are_frozen, ValuesAreFrozen(policy, plan.frozen, options.use_popart));
    plan.minibatch_size = options.minibatch_size;
    plan.loss = A2cLossCall();
    return plan;
  }
};

}  // namespace

const Algorithm& A2cAlgorithm() {
  static const auto& a2c = *new A2c;
  return a2c;
}

RowLossCall A2cLossCall() { return {.loss = &kA2cRowLoss}; }

}  // namespace troupe::training
