#include "lib/training/ppo/ppo.h"

#include "lib/base/status_macros.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/on_policy_group.h"
#include "lib/training/core/schedule.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/ppo/ppo_row_loss.h"

namespace troupe::training {
namespace {

const fused::LossKernels* PpoKernelsFor([[maybe_unused]] fused::Unit unit) {
#if defined(TROUPE_KERNEL_X86_64_V4)
  if (unit == fused::Unit::kAvx512) return fused::PpoAvx512Kernels();
#endif
#if defined(TROUPE_KERNEL_X86_64_V3)
  if (unit == fused::Unit::kAvx2) return fused::PpoAvx2Kernels();
#endif
  return nullptr;
}

const fused::LossKernels* PpoKlKernelsFor([[maybe_unused]] fused::Unit unit) {
#if defined(TROUPE_KERNEL_X86_64_V4)
  if (unit == fused::Unit::kAvx512) return fused::PpoKlAvx512Kernels();
#endif
#if defined(TROUPE_KERNEL_X86_64_V3)
  if (unit == fused::Unit::kAvx2) return fused::PpoKlAvx2Kernels();
#endif
  return nullptr;
}

constexpr RowColumn kPpoActorColumns[] = {RowColumn::kOldLogp, RowColumn::kAdvantage};
constexpr RowColumn kPpoCriticColumns[] = {RowColumn::kValueTarget, RowColumn::kOldValue};
constexpr RowLoss kPpoRowLoss = {"ppo", kPpoActorColumns, kPpoCriticColumns, &PpoKernelsFor};
constexpr RowLoss kPpoKlRowLoss = {"ppo", kPpoActorColumns, kPpoCriticColumns, &PpoKlKernelsFor};

RowLossCall LossCall(const PpoOptions& options, double kl_coeff) {
  RowLossCall call{.loss = options.penalty.use_kl_loss ? &kPpoKlRowLoss : &kPpoRowLoss};
  const double clip = options.clip_param;
  call.numbers[fused::kPpoClipParam] = clip;
  call.numbers[fused::kPpoClipLow] = 1.0 - clip;
  call.numbers[fused::kPpoClipHigh] = 1.0 + clip;
  call.numbers[fused::kPpoValueClip] = options.use_value_clip ? options.value_clip_param : 0.0;
  call.numbers[fused::kPpoKlCoeff] = options.penalty.use_kl_loss ? kl_coeff : 0.0;
  return call;
}

class Ppo final : public Algorithm {
 public:
  std::string_view name() const override { return "ppo"; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const PpoOptions options, ParsePpoOptions(spec, now));
      StateForm form{.value_moments = options.normalizes_values(), .optimizer = OptimizerNumber(options.optimizer)};
      if (options.rate.is_on()) form.numbers.push_back({kLearningRate, options.learning_rate});
      if (options.penalty.adapts()) form.numbers.push_back({kKlCoeff, options.penalty.kl_coeff});
      return form;
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
    TROUPE_ASSIGN_OR_RETURN(const PpoOptions options, ParsePpoOptions(spec, now));
    OnPolicyPlan plan;
    plan.options = OptionsFor(policy, options);
    TROUPE_ASSIGN_OR_RETURN(plan.frozen, FrozenRanges(policy, options.frozen_parameters));
    TROUPE_ASSIGN_OR_RETURN(plan.values_are_frozen, ValuesAreFrozen(policy, plan.frozen, options.use_popart));
    plan.num_epochs = options.num_epochs;
    plan.minibatch_size = options.minibatch_size;
    plan.loss = PpoLossCall(options);
    plan.statistics = {{"Policy/KL", /*last_epoch=*/true}, {"Policy/Clip fraction"}};
    plan.stop_above = options.target_kl;
    plan.rate = options.rate;
    plan.penalty = options.penalty;
    if (options.penalty.use_kl_loss) {
      plan.loss_with = [options](double kl_coeff) { return LossCall(options, kl_coeff); };
    }
    return plan;
  }
};

}  // namespace

const Algorithm& PpoAlgorithm() {
  static const auto& ppo = *new Ppo;
  return ppo;
}

RowLossCall PpoLossCall(const PpoOptions& options) { return LossCall(options, options.penalty.kl_coeff); }

}  // namespace troupe::training
