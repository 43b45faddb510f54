#include "lib/training/ppo/ppo_options.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::training {
namespace {

absl::Status CheckRate(const PpoOptions& options) {
  const KlAdaptiveRate& rate = options.rate;
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("lr_kl_target", rate.lr_kl_target));
  TROUPE_RETURN_IF_ERROR(CheckPositive("min_lr", rate.min_lr));
  TROUPE_RETURN_IF_ERROR(CheckPositive("max_lr", rate.max_lr));
  if (!(rate.lr_kl_factor >= 1)) return OptionError("lr_kl_factor", rate.lr_kl_factor, "a number of at least 1");
  if (!(rate.lr_kl_step >= 1)) return OptionError("lr_kl_step", rate.lr_kl_step, "a number of at least 1");
  if (!rate.is_on()) return absl::OkStatus();
  if (rate.min_lr > rate.max_lr)
    return OptionError("min_lr", rate.min_lr, absl::StrCat("at most max_lr, ", rate.max_lr));
  const double first = options.learning_rate;
  if (first >= rate.min_lr && first <= rate.max_lr) return absl::OkStatus();
  return OptionError("lr", first,
                     absl::StrCat("min_lr to max_lr, ", rate.min_lr, " to ", rate.max_lr, ", with lr_kl_target"));
}

}  // namespace

absl::Status ValidatePpoOptions(const PpoOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckOnPolicyOptions(options));
  TROUPE_RETURN_IF_ERROR(CheckPositive("clip_param", options.clip_param));
  TROUPE_RETURN_IF_ERROR(CheckRate(options));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("kl_coeff", options.penalty.kl_coeff));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("kl_target", options.penalty.kl_target));
  if (options.penalty.adapts()) TROUPE_RETURN_IF_ERROR(CheckPositive("kl_coeff", options.penalty.kl_coeff));
  if (options.use_value_clip) TROUPE_RETURN_IF_ERROR(CheckPositive("value_clip_param", options.value_clip_param));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("target_kl", options.target_kl));
  if (options.num_epochs < 1) return OptionError("num_epochs", static_cast<double>(options.num_epochs), "at least 1");
  if (options.minibatch_size < 1)
    return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1");
  return absl::OkStatus();
}

absl::StatusOr<PpoOptions> ParsePpoOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  PpoOptions options;
  OptionReader reader(spec, now);
  ReadOnPolicyOptions(&reader, &options);
  reader.Read("clip_param", &options.clip_param);
  reader.Read("use_value_clip", &options.use_value_clip);
  reader.Read("value_clip_param", &options.value_clip_param);
  reader.Read("target_kl", &options.target_kl);
  reader.Read("lr_kl_target", &options.rate.lr_kl_target);
  reader.Read("lr_kl_factor", &options.rate.lr_kl_factor);
  reader.Read("lr_kl_step", &options.rate.lr_kl_step);
  reader.Read("min_lr", &options.rate.min_lr);
  reader.Read("max_lr", &options.rate.max_lr);
  reader.Read("use_kl_loss", &options.penalty.use_kl_loss);
  reader.Read("kl_coeff", &options.penalty.kl_coeff);
  reader.Read("kl_target", &options.penalty.kl_target);
  reader.Read("num_epochs", &options.num_epochs);
  reader.Require("minibatch_size", &options.minibatch_size);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  const auto lr = spec.options.find("lr");
  const bool is_schedule = lr != spec.options.end() && std::holds_alternative<policy::ScheduleValue>(lr->second);
  if (options.rate.is_on() && is_schedule) {
    return OptionError("lr_kl_target", options.rate.lr_kl_target, "0 where lr is a schedule: it sets the rate");
  }
  TROUPE_RETURN_IF_ERROR(ValidatePpoOptions(options));
  return options;
}

policy::AlgorithmSpec PpoSpec(const PpoOptions& options) {
  policy::AlgorithmSpec spec{.name = "ppo"};
  WriteOnPolicyOptions(options, &spec);
  spec.options["clip_param"] = options.clip_param;
  spec.options["use_value_clip"] = options.use_value_clip;
  spec.options["value_clip_param"] = options.value_clip_param;
  spec.options["target_kl"] = options.target_kl;
  spec.options["lr_kl_target"] = options.rate.lr_kl_target;
  spec.options["lr_kl_factor"] = options.rate.lr_kl_factor;
  spec.options["lr_kl_step"] = options.rate.lr_kl_step;
  spec.options["min_lr"] = options.rate.min_lr;
  spec.options["max_lr"] = options.rate.max_lr;
  spec.options["use_kl_loss"] = options.penalty.use_kl_loss;
  spec.options["kl_coeff"] = options.penalty.kl_coeff;
  spec.options["kl_target"] = options.penalty.kl_target;
  spec.options["num_epochs"] = options.num_epochs;
  spec.options["minibatch_size"] = options.minibatch_size;
  return spec;
}

}  // namespace troupe::training
