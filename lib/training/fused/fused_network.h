#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/parameter_layout.h"
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {

/// Parts of the flat buffers are cut here: a cache line, and a whole number of vectors.
constexpr int64_t kGrain = 16;

inline Activation ToFused(policy::Activation activation) {
  switch (activation) {
    case policy::Activation::kTanh:
      return Activation::kTanh;
    case policy::Activation::kRelu:
      return Activation::kRelu;
    case policy::Activation::kElu:
      return Activation::kElu;
    case policy::Activation::kSigmoid:
      return Activation::kSigmoid;
    case policy::Activation::kGelu:
      return Activation::kGelu;
    case policy::Activation::kSilu:
      return Activation::kSilu;
    case policy::Activation::kIdentity:
      break;
  }
  return Activation::kIdentity;
}

/// Features of a hidden layer of `out` that Kernels::finish_backward needs; 0: the layer is without Kernels::finish.
inline int64_t KeptWidth(const policy::NetworkSpec& network, int64_t out) {
  const bool by_value =
      network.activation != policy::Activation::kGelu && network.activation != policy::Activation::kSilu;
  if (network.layer_norm) return out + 1;
  return by_value ? 0 : out;
}

/// A network inside the flat parameters.
struct Network {
  struct Layer {
    int in = 0;
    int out = 0;
    int64_t weight = 0;  ///< offset in the flat buffer
    int64_t bias = 0;
    Activation activation = Activation::kIdentity;
    int kept = 0;       ///< KeptWidth
    int64_t scale = 0;  ///< of layer normalization, as shift; 0: none
    int64_t shift = 0;

    bool is_normed() const { return scale > 0; }
  };
  /// The same of a core; `in` features give gates * size products.
  struct CoreLayer {
    int in = 0;
    int size = 0;
    int gates = 0;
    int64_t weight_ih = 0;
    int64_t weight_hh = 0;
    int64_t bias_ih = 0;
    int64_t bias_hh = 0;
  };
  std::vector<Layer> layers;
  size_t encoder = 0;  ///< the core stands behind so many of them
  policy::CoreKind core_kind = policy::CoreKind::kNone;
  std::vector<CoreLayer> core;

  int inputs() const { return inputs_; }
  int outputs() const { return layers.back().out; }
  /// Of all inputs of layers, what is kept of them, and the output together.
  int64_t total_width() const {
    int64_t width = inputs();
    for (const Layer& layer : layers) width += layer.out + layer.kept;
    return width;
  }

  bool remembers() const { return !core.empty(); }
  int64_t state_size() const {
    int64_t size = 0;
    for (const CoreLayer& layer : core) size += layer.size * (core_kind == policy::CoreKind::kLstm ? 2 : 1);
    return size;
  }

  static Network Find(const policy::ParameterLayout& layout, const policy::NetworkSpec& spec, int inputs) {
    Network network;
    const auto entry = [&](const auto&... name) { return layout.Find(absl::StrCat(spec.role, ".", name...)); };
    for (size_t i = 0; i < spec.num_layers(); ++i) {
      const policy::ParameterEntry* weight = entry(i, ".weight");
      Layer& layer = network.layers.emplace_back();
      layer.in = static_cast<int>(weight->shape[1]);
      layer.out = static_cast<int>(weight->shape[0]);
      layer.weight = weight->offset;
      layer.bias = entry(i, ".bias")->offset;
      if (i + 1 == spec.num_layers()) break;
      layer.activation = ToFused(spec.activation);
      layer.kept = static_cast<int>(KeptWidth(spec, layer.out));
      if (!spec.layer_norm) continue;
      layer.scale = entry("norm.", i, ".weight")->offset;
      layer.shift = entry("norm.", i, ".bias")->offset;
    }
    network.encoder = spec.hidden_sizes.size();
    network.core_kind = spec.core.kind;
    network.inputs_ = inputs;
    for (int64_t l = 0; l < spec.core.layers; ++l) {
      const policy::ParameterEntry* weight = entry("core.weight_ih_l", l);
      network.core.push_back({static_cast<int>(weight->shape[1]), static_cast<int>(spec.core.size),
                              static_cast<int>(spec.core.gates()), weight->offset, entry("core.weight_hh_l", l)->offset,
                              entry("core.bias_ih_l", l)->offset, entry("core.bias_hh_l", l)->offset});
    }
    return network;
  }

 private:
  int inputs_ = 0;
};

}  // namespace troupe::training::fused
