#include "lib/training/ppo/ppo_options.h"

#include "lib/base/status_macros.h"

namespace troupe::training {

absl::Status ValidatePpoOptions(const PpoOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckOnPolicyOptions(options));
  TROUPE_RETURN_IF_ERROR(CheckPositive("clip_param", options.clip_param));
  if (options.use_value_clip) TROUPE_RETURN_IF_ERROR(CheckPositive("value_clip_param", options.value_clip_param));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("target_kl", options.target_kl));
  if (options.num_epochs < 1) return OptionError("num_epochs", static_cast<double>(options.num_epochs), "at least 1");
  if (options.minibatch_size < 1)
    return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1");
  return absl::OkStatus();
}

absl::StatusOr<PpoOptions> ParsePpoOptions(const policy::AlgorithmSpec& spec) {
  PpoOptions options;
  OptionReader reader(spec);
  ReadOnPolicyOptions(&reader, &options);
  reader.Read("clip_param", &options.clip_param);
  reader.Read("use_value_clip", &options.use_value_clip);
  reader.Read("value_clip_param", &options.value_clip_param);
  reader.Read("target_kl", &options.target_kl);
  reader.Read("num_epochs", &options.num_epochs);
  reader.Require("minibatch_size", &options.minibatch_size);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
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
  spec.options["num_epochs"] = options.num_epochs;
  spec.options["minibatch_size"] = options.minibatch_size;
  return spec;
}

}  // namespace troupe::training
