#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/device_options.h"
#include "lib/training/script/script_network.h"
#include "lib/training/torch/torch_networks.h"
#include <torch/torch.h>

namespace troupe::training {

/// A flat tensor and the named parameters inside it, as leaves whose gradients are views of a flat gradient.
struct Modules {
  torch::Tensor values;
  torch::Tensor gradients;
  Module actor;
  Module critic;
  torch::Tensor log_std;  ///< undefined without a Gaussian head
};

/// The networks that are users' modules; nullptr: it is none.
struct Scripts {
  std::shared_ptr<ScriptNetwork> actor;
  std::shared_ptr<ScriptNetwork> actor_target;
  std::shared_ptr<ScriptNetwork> critic;
};

/// Those of `spec`. UNIMPLEMENTED for an encoder of a kind that LibTorch's back end does not know; what LoadScript
/// says.
absl::StatusOr<Scripts> LoadScripts(const policy::PolicySpec& spec, const Device& device);

/// `values` and `gradients` have the layout, which is the spec's.
Modules MakeModules(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, const Scripts& scripts,
                    const torch::Tensor& values, const torch::Tensor& gradients);
/// The actor alone, with the parameters of its target (policy::NetworkSpec::has_target), which have no gradient.
Modules MakeTargetActor(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, const Scripts& scripts,
                        const torch::Tensor& values);

}  // namespace troupe::training
