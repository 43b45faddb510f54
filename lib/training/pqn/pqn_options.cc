#include "lib/training/pqn/pqn_options.h"

#include <string>

#include "lib/base/status_macros.h"
#include "lib/training/core/option_reader.h"

namespace troupe::training {

absl::StatusOr<PqnOptions> ParsePqnOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now) {
  PqnOptions options;
  double epsilon = ValueAt(options.epsilon, now);
  OptionReader reader(spec, now);
  reader.Require("minibatch_size", &options.minibatch_size);
  reader.Read("num_epochs", &options.num_epochs);
  reader.Read("lr", &options.learning_rate);
  reader.Read("gamma", &options.gamma);
  reader.ReadWord("discount_by", kDiscountByNames, &options.discount_by);
  reader.Read("q_lambda", &options.q_lambda);
  reader.Read("time_limit_bootstrap", &options.time_limit_bootstrap);
  reader.Read("use_policy_active_masks", &options.use_policy_active_masks);
  reader.Read("epsilon", &epsilon);
  reader.ReadWord("mixer", kMixerNames, &options.mixer);
  ReadOptimizerOptions(&reader, &options);
  TROUPE_RETURN_IF_ERROR(reader.Finish());
  options.epsilon = {epsilon, epsilon};
  if (options.minibatch_size < 1) {
    return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1");
  }
  if (options.num_epochs < 1) return OptionError("num_epochs", static_cast<double>(options.num_epochs), "at least 1");
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("lr", options.learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gamma", options.gamma));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("q_lambda", options.q_lambda));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("epsilon", epsilon));
  TROUPE_RETURN_IF_ERROR(CheckOptimizerOptions(options));
  return options;
}

policy::AlgorithmSpec PqnSpec(const PqnOptions& options) {
  policy::AlgorithmSpec spec{.name = "pqn"};
  WriteOptimizerOptions(options, &spec);
  auto& to = spec.options;
  to.erase("clip_grad_norm_by");
  to["minibatch_size"] = options.minibatch_size;
  to["num_epochs"] = options.num_epochs;
  to["lr"] = options.learning_rate;
  to["gamma"] = options.gamma;
  to["discount_by"] = std::string(WordOf(kDiscountByNames, options.discount_by));
  to["q_lambda"] = options.q_lambda;
  to["time_limit_bootstrap"] = options.time_limit_bootstrap;
  to["use_policy_active_masks"] = options.use_policy_active_masks;
  if (options.epsilon.env_steps == 0) {
    to["epsilon"] = options.epsilon.initial;
  } else {
    to["epsilon"] = options.epsilon;
  }
  to["mixer"] = std::string(WordOf(kMixerNames, options.mixer));
  return spec;
}

}  // namespace troupe::training
