#include "lib/training/core/on_policy_options.h"

#include <cmath>

#include "lib/base/status_macros.h"

namespace troupe::training {

void ReadOnPolicyOptions(OptionReader* reader, OnPolicyOptions* options) {
  reader->Read("lr", &options->learning_rate);
  reader->Read("critic_lr", &options->critic_learning_rate);
  reader->Read("adam_epsilon", &options->adam_epsilon);
  reader->Read("adam_beta1", &options->adam_beta1);
  reader->Read("adam_beta2", &options->adam_beta2);
  reader->Read("gamma", &options->gamma);
  reader->Read("gae_lambda", &options->gae_lambda);
  reader->Read("use_gae", &options->use_gae);
  reader->Read("use_advnorm", &options->use_advnorm);
  reader->Read("use_value_norm", &options->use_value_norm);
  reader->Read("value_loss_coeff", &options->value_loss_coeff);
  reader->Read("huber_delta", &options->huber_delta);
  reader->Read("entropy_coeff", &options->entropy_coeff);
  reader->Read("max_grad_norm", &options->max_grad_norm);
}

absl::Status CheckOnPolicyOptions(const OnPolicyOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckSchedule("lr", options.learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckSchedule("critic_lr", options.critic_learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckSchedule("entropy_coeff", options.entropy_coeff));
  TROUPE_RETURN_IF_ERROR(CheckPositive("adam_epsilon", options.adam_epsilon));
  if (!(options.adam_beta1 >= 0 && options.adam_beta1 < 1))
    return OptionError("adam_beta1", options.adam_beta1, "a number in [0, 1)");
  if (!(options.adam_beta2 >= 0 && options.adam_beta2 < 1))
    return OptionError("adam_beta2", options.adam_beta2, "a number in [0, 1)");
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gamma", options.gamma));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gae_lambda", options.gae_lambda));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("value_loss_coeff", options.value_loss_coeff));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("huber_delta", options.huber_delta));
  if (std::isnan(options.max_grad_norm)) return OptionError("max_grad_norm", options.max_grad_norm, "a number");
  return absl::OkStatus();
}

void WriteOnPolicyOptions(const OnPolicyOptions& options, policy::AlgorithmSpec* spec) {
  auto& to = spec->options;
  to["lr"] = options.learning_rate.value();
  if (options.critic_learning_rate.initial != 0) to["critic_lr"] = options.critic_learning_rate.value();
  to["adam_epsilon"] = options.adam_epsilon;
  to["adam_beta1"] = options.adam_beta1;
  to["adam_beta2"] = options.adam_beta2;
  to["gamma"] = options.gamma;
  to["gae_lambda"] = options.gae_lambda;
  to["use_gae"] = options.use_gae;
  to["use_advnorm"] = options.use_advnorm;
  to["use_value_norm"] = options.use_value_norm;
  to["value_loss_coeff"] = options.value_loss_coeff;
  to["huber_delta"] = options.huber_delta;
  to["entropy_coeff"] = options.entropy_coeff.value();
  to["max_grad_norm"] = options.max_grad_norm;
}

}  // namespace troupe::training
