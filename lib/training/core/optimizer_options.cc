#include "lib/training/core/optimizer_options.h"

#include <cmath>
#include <string>

#include "lib/base/status_macros.h"

namespace troupe::training {

void ReadOptimizerOptions(OptionReader* reader, OptimizerOptions* options) {
  reader->ReadWord("optimizer", kOptimizerNames, &options->optimizer);
  reader->Read("adam_epsilon", &options->adam_epsilon);
  reader->Read("adam_beta1", &options->adam_beta1);
  reader->Read("adam_beta2", &options->adam_beta2);
  reader->Read("weight_decay", &options->weight_decay);
  reader->Read("momentum", &options->momentum);
  reader->Read("rmsprop_alpha", &options->rmsprop_alpha);
  reader->Read("rmsprop_epsilon", &options->rmsprop_epsilon);
  reader->Read("max_grad_norm", &options->max_grad_norm);
  reader->ReadWord("clip_grad_norm_by", kClipGradNormByNames, &options->clip_grad_norm_by);
}

absl::Status CheckOptimizerOptions(const OptimizerOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckPositive("adam_epsilon", options.adam_epsilon));
  TROUPE_RETURN_IF_ERROR(CheckPositive("rmsprop_epsilon", options.rmsprop_epsilon));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("weight_decay", options.weight_decay));
  for (const auto& [option, value] : {std::pair<const char*, double>{"adam_beta1", options.adam_beta1},
                                      {"adam_beta2", options.adam_beta2},
                                      {"momentum", options.momentum},
                                      {"rmsprop_alpha", options.rmsprop_alpha}}) {
    if (!(value >= 0 && value < 1)) return OptionError(option, value, "a number in [0, 1)");
  }
  const bool has_momentum = options.optimizer == OptimizerKind::kRmsprop || options.optimizer == OptimizerKind::kSgd;
  if (options.momentum != 0 && !has_momentum) {
    return OptionError("momentum", options.momentum,
                       "0 with optimizer adam or adamw, whose moments are adam_beta1 and adam_beta2");
  }
  if (std::isnan(options.max_grad_norm)) return OptionError("max_grad_norm", options.max_grad_norm, "a number");
  return absl::OkStatus();
}

void WriteOptimizerOptions(const OptimizerOptions& options, policy::AlgorithmSpec* spec) {
  auto& to = spec->options;
  to["optimizer"] = std::string(WordOf(kOptimizerNames, options.optimizer));
  to["adam_epsilon"] = options.adam_epsilon;
  to["adam_beta1"] = options.adam_beta1;
  to["adam_beta2"] = options.adam_beta2;
  to["weight_decay"] = options.weight_decay;
  to["momentum"] = options.momentum;
  to["rmsprop_alpha"] = options.rmsprop_alpha;
  to["rmsprop_epsilon"] = options.rmsprop_epsilon;
  to["max_grad_norm"] = options.max_grad_norm;
  to["clip_grad_norm_by"] = std::string(WordOf(kClipGradNormByNames, options.clip_grad_norm_by));
}

}  // namespace troupe::training
