#include "lib/training/impala/impala.h"

#include "lib/base/status_macros.h"
#include "lib/training/a2c/a2c.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/on_policy_group.h"

namespace troupe::training {
namespace {

class Impala final : public Algorithm {
 public:
  std::string_view name() const override { return "impala"; }
  bool corrects_lag() const override { return true; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const VtraceOptions options, ParseImpalaOptions(spec, now));
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
    TROUPE_ASSIGN_OR_RETURN(const VtraceOptions options, ParseImpalaOptions(spec, now));
    OnPolicyPlan plan;
    plan.options = OptionsFor(policy, options);
    TROUPE_ASSIGN_OR_RETURN(plan.frozen, FrozenRanges(policy, options.frozen_parameters));
    TROUPE_ASSIGN_OR_RETURN(plan.values_are_frozen, ValuesAreFrozen(policy, plan.frozen, options.use_popart));
    plan.minibatch_size = options.minibatch_size;
    plan.vtrace = options.clips;
    // V-trace's weights are in the advantages.
    plan.loss = A2cLossCall();
    return plan;
  }
};

}  // namespace

const Algorithm& ImpalaAlgorithm() {
  static const auto& impala = *new Impala;
  return impala;
}

absl::StatusOr<VtraceOptions> ParseImpalaOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  VtraceOptions options;
  OptionReader reader(spec, now);
  ReadVtraceOptions(&reader, &options);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  TROUPE_RETURN_IF_ERROR(CheckVtraceOptions(options));
  return options;
}

policy::AlgorithmSpec ImpalaSpec(const VtraceOptions& options) {
  policy::AlgorithmSpec spec{.name = "impala"};
  WriteVtraceOptions(options, &spec);
  return spec;
}

}  // namespace troupe::training
