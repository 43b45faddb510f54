#pragma once

// Users' losses for tests, made with LibTorch instead of Python.

#include <string>
#include <vector>

#include "lib/training/testing/script_modules.h"
#include <torch/script.h>

namespace troupe::training {

/// A module that names `columns` and whose forward has `body`.
inline torch::jit::Module LossModule(const std::vector<std::string>& columns, const std::string& body) {
  torch::jit::Module module("test.Loss");
  c10::List<std::string> names;
  for (const std::string& column : columns) names.push_back(column);
  module.register_attribute("columns", c10::ListType::ofStrings(), names);
  module.define(
      "def forward(self, outputs: Dict[str, Tensor], columns: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, "
      "Tensor]]:\n" +
      body);
  return module;
}

/// PpoLossCall's with PpoOptions' defaults, and an entropy bonus of 0.01.
inline torch::jit::Module PpoLossModule() {
  return LossModule({"old_logp", "advantages", "value_targets", "policy_weights", "value_weights"},
                    R"(    weights = columns["policy_weights"]
    count = weights.sum().clamp(min=1.0)
    ratio = (outputs["logp"] - columns["old_logp"]).exp()
    advantages = columns["advantages"]
    objective = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    surrogate = (objective * weights).sum() / count
    entropy = (outputs["entropy"] * weights).sum() / count
    value_weights = columns["value_weights"]
    error = 0.5 * (outputs["critic"].squeeze(1) - columns["value_targets"]).pow(2)
    value_error = (error * value_weights).sum() / value_weights.sum().clamp(min=1.0)
    return value_error - surrogate - 0.01 * entropy, {"Surrogate": surrogate, "Value error": value_error}
)");
}

/// Makes the module a file of this process; its hash.
inline std::string PutLoss(const torch::jit::Module& module, const std::string& path = "loss.pt") {
  return PutTestModule(BytesOfModule(module), path);
}

}  // namespace troupe::training
