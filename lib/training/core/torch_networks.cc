#include "lib/training/core/torch_networks.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace troupe::training {

using torch::Tensor;

namespace {

Tensor Activate(policy::Activation activation, const Tensor& x) {
  switch (activation) {
    case policy::Activation::kTanh:
      return torch::tanh(x);
    case policy::Activation::kRelu:
      return torch::relu(x);
    case policy::Activation::kElu:
      return torch::elu(x);
    case policy::Activation::kGelu:
      return torch::gelu(x);
    case policy::Activation::kSigmoid:
      return torch::sigmoid(x);
    case policy::Activation::kSilu:
      return torch::silu(x);
    case policy::Activation::kIdentity:
      return x;
  }
  return x;
}

/// [layers, sequences, size] of `states` [sequences, state size]: outputs (part 0), or of an LSTM cells (part 1).
Tensor StatePart(const policy::CoreSpec& core, const Tensor& states, int64_t part) {
  return states.view({states.size(0), core.layers, -1, core.size}).select(2, part).transpose(0, 1).contiguous();
}

}  // namespace

Module MakeModule(const policy::NetworkSpec& network, const std::function<Tensor(const std::string&)>& find) {
  Module module;
  for (size_t i = 0; i < network.num_layers(); ++i) {
    Layers& layers = i < network.hidden_sizes.size() ? module.encoder : module.head;
    layers.emplace_back(find(absl::StrCat(network.role, ".", i, ".weight")),
                        find(absl::StrCat(network.role, ".", i, ".bias")));
  }
  for (int64_t layer = 0; layer < network.core.layers; ++layer) {
    for (const char* const name : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"}) {
      module.core.push_back(find(absl::StrCat(network.role, ".core.", name, layer)));
    }
  }
  return module;
}

Tensor Encode(policy::Activation activation, const Module& module, Tensor x) {
  for (const auto& [weight, bias] : module.encoder) x = Activate(activation, torch::linear(x, weight, bias));
  return x;
}

Tensor Decode(policy::Activation activation, const Module& module, Tensor x) {
  for (size_t i = 0; i < module.head.size(); ++i) {
    x = torch::linear(x, module.head[i].first, module.head[i].second);
    if (i + 1 < module.head.size()) x = Activate(activation, x);
  }
  return x;
}

Tensor RunNetwork(policy::Activation activation, const Module& module, const Tensor& x) {
  return Decode(activation, module, Encode(activation, module, x));
}

Packed Pack(const std::vector<std::pair<int64_t, int64_t>>& pieces) {
  Packed packed;
  packed.sequences.resize(pieces.size());
  std::iota(packed.sequences.begin(), packed.sequences.end(), int64_t{0});
  const auto length = [&](int64_t sequence) { return pieces[static_cast<size_t>(sequence)].second; };
  std::stable_sort(packed.sequences.begin(), packed.sequences.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<int64_t> sizes;
  for (size_t alive = pieces.size(); alive > 0;) {
    const auto at = static_cast<int64_t>(sizes.size());
    while (alive > 0 && length(packed.sequences[alive - 1]) <= at) --alive;
    if (alive == 0) break;
    for (size_t i = 0; i < alive; ++i) {
      packed.rows.push_back(pieces[static_cast<size_t>(packed.sequences[i])].first + at);
    }
    sizes.push_back(static_cast<int64_t>(alive));
  }
  packed.batch_sizes = torch::tensor(sizes, torch::kInt64);
  return packed;
}

std::pair<Tensor, Tensor> RunCore(const policy::CoreSpec& core, const std::vector<Tensor>& parameters, const Tensor& x,
                                  const Tensor& batch_sizes, const Tensor& states) {
  const Tensor before = StatePart(core, states, 0);
  if (core.kind == policy::CoreKind::kGru) {
    const auto [output, after] = torch::gru(x, batch_sizes, before, parameters, /*has_biases=*/true, core.layers,
                                            /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false);
    return {output, after.transpose(0, 1).reshape(states.sizes())};
  }
  const auto [output, after, cells] =
      torch::lstm(x, batch_sizes, {before, StatePart(core, states, 1)}, parameters, /*has_biases=*/true, core.layers,
                  /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false);
  return {output, torch::stack({after.transpose(0, 1), cells.transpose(0, 1)}, 2).reshape(states.sizes())};
}

}  // namespace troupe::training
