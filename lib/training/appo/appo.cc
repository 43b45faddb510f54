#include "lib/training/appo/appo.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/learner/circular_source.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/on_policy_group.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/ppo/ppo.h"

namespace troupe::training {
namespace {

/// PPO's loss, whose ratio is to the target here.
RowLossCall LossCall(const AppoOptions& options, double kl_coeff) {
  PpoOptions ppo;
  ppo.clip_param = options.clip_param;
  ppo.penalty = options.penalty;
  ppo.penalty.kl_coeff = kl_coeff;
  return PpoLossCall(ppo);
}

class Appo final : public Algorithm {
 public:
  std::string_view name() const override { return "appo"; }
  bool corrects_lag() const override { return true; }

  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    return FormAtAllTimes(spec, [&spec](const ScheduleTime& now) -> absl::StatusOr<StateForm> {
      TROUPE_ASSIGN_OR_RETURN(const AppoOptions options, ParseAppoOptions(spec, now));
      StateForm form{.value_moments = options.normalizes_values(), .optimizer = OptimizerNumber(options.optimizer)};
      if (options.penalty.adapts()) form.numbers.push_back({kKlCoeff, options.penalty.kl_coeff});
      return form;
    });
  }

  absl::Status SetNetworks(const policy::AlgorithmSpec& /*spec*/, policy::PolicySpec* policy) const override {
    policy->actor.has_target = true;
    return absl::OkStatus();
  }

  absl::Status CheckPolicy(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) const override {
    return OnPolicyGroup::Check(policy, spec);
  }

  std::optional<learner::FeedSpec> Feed(const policy::AlgorithmSpec& spec) const override {
    const absl::StatusOr<AppoOptions> options = ParseAppoOptions(spec);
    if (!options.ok()) return std::nullopt;  // FormOf says why
    const int64_t batches = options->circular_buffer_num_batches;
    const int64_t uses = options->circular_buffer_iterations_per_batch;
    return learner::FeedSpec{.name = absl::StrCat("appo of ", batches, " batches, ", uses, " times"),
                             .uses = uses,
                             .max_ahead = batches - 1,
                             .make_source = [uses](int64_t iteration) {
                               return std::make_unique<learner::CircularSource>(iteration, uses);
                             }};
  }

  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                          const TrainingContext& /*context*/) const override {
    return OnPolicyGroup::Make(members.front(), &PlanAt);
  }

 private:
  static absl::StatusOr<OnPolicyPlan> PlanAt(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec,
                                             const ScheduleTime& now) {
    TROUPE_ASSIGN_OR_RETURN(const AppoOptions options, ParseAppoOptions(spec, now));
    OnPolicyPlan plan;
    plan.options = OptionsFor(policy, options);
    TROUPE_ASSIGN_OR_RETURN(plan.frozen, FrozenRanges(policy, options.frozen_parameters));
    TROUPE_ASSIGN_OR_RETURN(plan.values_are_frozen, ValuesAreFrozen(policy, plan.frozen, options.use_popart));
    plan.minibatch_size = options.minibatch_size;
    plan.loss = LossCall(options, options.penalty.kl_coeff);
    plan.statistics = {{"Policy/KL", /*last_epoch=*/true}, {"Policy/Clip fraction"}};
    plan.vtrace = options.clips;
    plan.target = {.interval = options.target_network_update_freq, .share = options.tau};
    plan.penalty = options.penalty;
    if (options.penalty.use_kl_loss) {
      plan.loss_with = [options](double kl_coeff) { return LossCall(options, kl_coeff); };
    }
    return plan;
  }
};

absl::Status CheckAtLeastOne(const char* key, int64_t value) {
  return value >= 1 ? absl::OkStatus() : OptionError(key, static_cast<double>(value), "at least 1");
}

absl::Status CheckAppoOptions(const AppoOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckVtraceOptions(options));
  TROUPE_RETURN_IF_ERROR(CheckPositive("clip_param", options.clip_param));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("kl_coeff", options.penalty.kl_coeff));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("kl_target", options.penalty.kl_target));
  if (options.penalty.adapts()) TROUPE_RETURN_IF_ERROR(CheckPositive("kl_coeff", options.penalty.kl_coeff));
  TROUPE_RETURN_IF_ERROR(CheckAtLeastOne("circular_buffer_num_batches", options.circular_buffer_num_batches));
  TROUPE_RETURN_IF_ERROR(
      CheckAtLeastOne("circular_buffer_iterations_per_batch", options.circular_buffer_iterations_per_batch));
  TROUPE_RETURN_IF_ERROR(CheckAtLeastOne("target_network_update_freq", options.target_network_update_freq));
  TROUPE_RETURN_IF_ERROR(CheckPositive("tau", options.tau));
  return CheckUnitInterval("tau", options.tau);
}

}  // namespace

const Algorithm& AppoAlgorithm() {
  static const auto& appo = *new Appo;
  return appo;
}

absl::StatusOr<AppoOptions> ParseAppoOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  AppoOptions options;
  OptionReader reader(spec, now);
  ReadVtraceOptions(&reader, &options);
  reader.Read("clip_param", &options.clip_param);
  reader.Read("use_kl_loss", &options.penalty.use_kl_loss);
  reader.Read("kl_coeff", &options.penalty.kl_coeff);
  reader.Read("kl_target", &options.penalty.kl_target);
  reader.Read("circular_buffer_num_batches", &options.circular_buffer_num_batches);
  reader.Read("circular_buffer_iterations_per_batch", &options.circular_buffer_iterations_per_batch);
  reader.Read("target_network_update_freq", &options.target_network_update_freq);
  reader.Read("tau", &options.tau);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  TROUPE_RETURN_IF_ERROR(CheckAppoOptions(options));
  return options;
}

policy::AlgorithmSpec AppoSpec(const AppoOptions& options) {
  policy::AlgorithmSpec spec{.name = "appo"};
  WriteVtraceOptions(options, &spec);
  spec.options["clip_param"] = options.clip_param;
  spec.options["use_kl_loss"] = options.penalty.use_kl_loss;
  spec.options["kl_coeff"] = options.penalty.kl_coeff;
  spec.options["kl_target"] = options.penalty.kl_target;
  spec.options["circular_buffer_num_batches"] = options.circular_buffer_num_batches;
  spec.options["circular_buffer_iterations_per_batch"] = options.circular_buffer_iterations_per_batch;
  spec.options["target_network_update_freq"] = options.target_network_update_freq;
  spec.options["tau"] = options.tau;
  return spec;
}

}  // namespace troupe::training
