#include "lib/training/core/on_policy_options.h"

#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::training {

OnPolicyOptions OptionsFor(const policy::PolicySpec& policy, OnPolicyOptions options) {
  if (!policy.shares_encoder()) return options;
  options.critic_learning_rate.reset();
  options.clip_grad_norm_by = ClipGradNormBy::kPolicy;
  return options;
}

void ReadOnPolicyOptions(OptionReader* reader, OnPolicyOptions* options) {
  reader->Read("lr", &options->learning_rate);
  reader->Read("critic_lr", &options->critic_learning_rate);
  ReadOptimizerOptions(reader, options);
  reader->Read("gamma", &options->gamma);
  reader->ReadWord("discount_by", kDiscountByNames, &options->discount_by);
  reader->Read("gae_lambda", &options->gae_lambda);
  reader->Read("use_gae", &options->use_gae);
  reader->Read("time_limit_bootstrap", &options->time_limit_bootstrap);
  reader->Read("use_advnorm", &options->use_advnorm);
  reader->Read("use_value_norm", &options->use_value_norm);
  reader->Read("use_popart", &options->use_popart);
  reader->Read("use_policy_active_masks", &options->use_policy_active_masks);
  reader->Read("use_value_active_masks", &options->use_value_active_masks);
  reader->Read("death_masking", &options->death_masking);
  reader->ReadWord("minibatch_by", kMinibatchByNames, &options->minibatch_by);
  reader->Read("value_loss_coeff", &options->value_loss_coeff);
  reader->Read("huber_delta", &options->huber_delta);
  reader->Read("entropy_coeff", &options->entropy_coeff);
  reader->Read("frozen_parameters", &options->frozen_parameters);
}

absl::Status CheckOnPolicyOptions(const OnPolicyOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("lr", options.learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("critic_lr", options.critic_learning_rate.value_or(0)));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("entropy_coeff", options.entropy_coeff));
  TROUPE_RETURN_IF_ERROR(CheckOptimizerOptions(options));
  if (options.use_popart && options.use_value_norm) {
    return absl::InvalidArgumentError(
        "algorithm.use_popart is true, and so is use_value_norm; expected one of them: PopArt normalizes values, too. "
        "Set use_value_norm: false");
  }
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gamma", options.gamma));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gae_lambda", options.gae_lambda));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("value_loss_coeff", options.value_loss_coeff));
  return CheckNotNegative("huber_delta", options.huber_delta);
}

void WriteOnPolicyOptions(const OnPolicyOptions& options, policy::AlgorithmSpec* spec) {
  auto& to = spec->options;
  to["lr"] = options.learning_rate;
  if (options.critic_learning_rate.has_value()) to["critic_lr"] = *options.critic_learning_rate;
  WriteOptimizerOptions(options, spec);
  to["gamma"] = options.gamma;
  to["discount_by"] = std::string(WordOf(kDiscountByNames, options.discount_by));
  to["gae_lambda"] = options.gae_lambda;
  to["use_gae"] = options.use_gae;
  to["time_limit_bootstrap"] = options.time_limit_bootstrap;
  to["use_advnorm"] = options.use_advnorm;
  to["use_value_norm"] = options.use_value_norm;
  to["use_popart"] = options.use_popart;
  to["use_policy_active_masks"] = options.use_policy_active_masks;
  to["use_value_active_masks"] = options.use_value_active_masks;
  to["death_masking"] = options.death_masking;
  to["minibatch_by"] = std::string(WordOf(kMinibatchByNames, options.minibatch_by));
  to["value_loss_coeff"] = options.value_loss_coeff;
  to["huber_delta"] = options.huber_delta;
  to["entropy_coeff"] = options.entropy_coeff;
  to["frozen_parameters"] = options.frozen_parameters;
}

}  // namespace troupe::training
