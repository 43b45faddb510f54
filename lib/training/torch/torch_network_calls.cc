#include "lib/training/torch/torch_network_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/training/script/script_modules.h"
#include "lib/training/torch/torch_networks.h"
#include "lib/training/torch/torch_status.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

using torch::Tensor;

/// The network that a call names.
struct CalledNetwork {
  const policy::NetworkSpec* network = nullptr;
  Module module;
  /// The network whose encoder it shares, and that network's tensors; nullptr: it has its own.
  const policy::NetworkSpec* encoding = nullptr;
  Module encoder;
  /// Views of its parameters, and where each stands in the block.
  std::vector<Tensor> parameters;
  std::vector<int64_t> offsets;
};

absl::StatusOr<CalledNetwork> FindCalled(const policy::PolicySpec& spec, const NetworkCall& call) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  if (static_cast<int64_t>(call.parameters.size()) != layout.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", call.parameters.size(), " parameters; expected ", layout.size()));
  }
  CalledNetwork called;
  called.network = call.network == policy::kActorRole ? &spec.actor : spec.FindLearnerNetwork(call.network);
  if (called.network == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the policy has no network \"", std::string(call.network), "\"; expected actor or critic"));
  }
  const policy::NetworkSpec& network = *called.network;
  if (spec.EncodingNetwork(network).remembers()) {
    return absl::UnimplementedError(
        absl::StrCat("rows alone do not say what the ", network.role, ", a network with ",
                     network.encoder == policy::EncoderKind::kTorchScript ? "a state" : "a core", ", remembers"));
  }
  std::shared_ptr<ScriptNetwork> script;
  if (network.encoder == policy::EncoderKind::kTorchScript) {
    TROUPE_ASSIGN_OR_RETURN(script, LoadScript(spec, network, Device{}));
    if (script->widths().mask > 0) {
      return absl::UnimplementedError(absl::StrCat("rows alone do not say the action mask, which the ", network.role,
                                                   ", a TorchScript module, reads"));
    }
  }
  if (const int64_t columns = spec.InputSize(network); call.inputs.columns != columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs of the ", network.role, " have ", call.inputs.columns, " columns; expected ", columns));
  }
  const auto find = [&](const std::string& name) {
    const policy::ParameterEntry* const entry = layout.Find(name);
    Tensor view = torch::from_blob(const_cast<float*>(call.parameters.data()) + entry->offset, entry->shape);
    called.parameters.push_back(view);
    called.offsets.push_back(entry->offset);
    return view;
  };
  called.module = MakeModule(spec, network, find, std::move(script));
  if (network.encoder == policy::EncoderKind::kShared) {
    called.encoding = &spec.EncodingNetwork(network);
    called.encoder = MakeModule(spec, *called.encoding, find);
  }
  return called;
}

Tensor Run(const CalledNetwork& called, const Tensor& x) {
  const policy::Activation activation = called.network->activation;
  if (called.encoding == nullptr) return RunNetwork(activation, called.module, x);
  return Decode(activation, called.module, Encode(called.encoding->activation, called.encoder, x));
}

/// [rows, columns], a copy.
Tensor RowsOf(const NetworkCall& call) {
  const Tensor all = torch::from_blob(const_cast<float*>(call.inputs.data), {call.inputs.rows, call.inputs.columns},
                                      {call.inputs.stride, 1});
  const Tensor rows =
      torch::from_blob(const_cast<int32_t*>(call.rows.data()), {static_cast<int64_t>(call.rows.size())}, torch::kInt32);
  return all.index_select(0, rows.to(torch::kInt64));
}

}  // namespace

absl::StatusOr<std::vector<float>> ForwardOf(const policy::PolicySpec& spec, const NetworkCall& call) {
  std::vector<float> outputs;
  TROUPE_RETURN_IF_ERROR(CatchTorch("computing outputs", [&]() -> absl::Status {
    const torch::NoGradGuard no_grad;
    TROUPE_ASSIGN_OR_RETURN(const CalledNetwork called, FindCalled(spec, call));
    const Tensor result = Run(called, RowsOf(call)).contiguous();
    outputs.assign(result.data_ptr<float>(), result.data_ptr<float>() + result.numel());
    return absl::OkStatus();
  }));
  return outputs;
}

absl::Status BackwardOf(const policy::PolicySpec& spec, const NetworkCall& call,
                        absl::Span<const float> output_gradients, absl::Span<float> gradients,
                        absl::Span<float> input_gradients) {
  return CatchTorch("differentiating outputs", [&]() -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const CalledNetwork called, FindCalled(spec, call));
    std::vector<Tensor> leaves;
    for (const Tensor& parameter : called.parameters) leaves.push_back(parameter.requires_grad_(true));
    const Tensor inputs = RowsOf(call);
    if (!input_gradients.empty()) leaves.push_back(inputs.requires_grad_(true));
    const Tensor outputs = Run(called, inputs);
    if (static_cast<int64_t>(output_gradients.size()) != outputs.numel() ||
        gradients.size() != call.parameters.size() ||
        (!input_gradients.empty() && static_cast<int64_t>(input_gradients.size()) != inputs.numel())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradients of the ", std::string(call.network), ": got ", output_gradients.size(), " of outputs, ",
          gradients.size(), " of parameters, ", input_gradients.size(), " of inputs; expected ", outputs.numel(), ", ",
          call.parameters.size(), ", ", inputs.numel(), " or none"));
    }
    const Tensor from = torch::from_blob(const_cast<float*>(output_gradients.data()), outputs.sizes());
    const std::vector<Tensor> found = torch::autograd::grad({outputs}, leaves, {from}, /*retain_graph=*/std::nullopt,
                                                            /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < called.parameters.size(); ++i) {
      if (!found[i].defined()) continue;  // a module's buffer, or what the network does not use
      const Tensor gradient = found[i].contiguous();
      const float* const values = gradient.data_ptr<float>();
      float* const to = gradients.data() + called.offsets[i];
      for (int64_t k = 0; k < gradient.numel(); ++k) to[k] += values[k];
    }
    if (input_gradients.empty()) return absl::OkStatus();
    const Tensor gradient = (found.back().defined() ? found.back() : torch::zeros_like(inputs)).contiguous();
    std::copy_n(gradient.data_ptr<float>(), gradient.numel(), input_gradients.data());
    return absl::OkStatus();
  });
}

}  // namespace troupe::training
