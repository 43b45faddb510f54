#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/option_reader.h"

namespace troupe::training {

/// How a gradient changes parameters; each as in torch.optim. Values are in checkpoints (kOptimizer): never renumber.
enum class OptimizerKind : uint8_t {
  kAdam = 1,     ///< Kingma & Ba 2015; weight decay is added to the gradient
  kAdamW = 2,    ///< Adam whose weight decay shrinks the parameters (Loshchilov & Hutter 2019)
  kRmsprop = 3,  ///< Hinton 2012, not centered; with momentum where there is some
  kSgd = 4,      ///< with momentum where there is some, without dampening or Nesterov's form
};
inline constexpr std::array<std::pair<OptimizerKind, const char*>, 4> kOptimizerNames = {
    {{OptimizerKind::kAdam, "adam"},
     {OptimizerKind::kAdamW, "adamw"},
     {OptimizerKind::kRmsprop, "rmsprop"},
     {OptimizerKind::kSgd, "sgd"}}};

/// Over what the norm is taken that is clipped.
enum class ClipGradNormBy : uint8_t {
  kNetwork = 1,  ///< actor and critic each by itself
  kPolicy = 2,   ///< all of the policy
};
inline constexpr std::array<std::pair<ClipGradNormBy, const char*>, 2> kClipGradNormByNames = {
    {{ClipGradNormBy::kNetwork, "network"}, {ClipGradNormBy::kPolicy, "policy"}}};

/// The step that follows a gradient; members have the keys of the configuration, and the schema's defaults. Plain
/// value.
struct OptimizerOptions {
  OptimizerKind optimizer = OptimizerKind::kAdam;
  double adam_epsilon = 1e-5;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double weight_decay = 0;
  double momentum = 0;  ///< of kRmsprop and kSgd
  double rmsprop_alpha = 0.99;
  double rmsprop_epsilon = 1e-5;
  double max_grad_norm = 0;  ///< <= 0: off
  ClipGradNormBy clip_grad_norm_by = ClipGradNormBy::kNetwork;

  bool operator==(const OptimizerOptions& other) const = default;
};

/// Reads these keys.
void ReadOptimizerOptions(OptionReader* reader, OptimizerOptions* options);
/// INVALID_ARGUMENT, naming the option, what it is and what is expected.
absl::Status CheckOptimizerOptions(const OptimizerOptions& options);
void WriteOptimizerOptions(const OptimizerOptions& options, policy::AlgorithmSpec* spec);

/// The number that a policy's state has for its optimizer (kOptimizer): what the two rows of moments mean. Adam and
/// AdamW mean the same by them, 0, which is not written.
inline int64_t OptimizerNumber(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW ? 0 : static_cast<int64_t>(kind);
}

}  // namespace troupe::training
