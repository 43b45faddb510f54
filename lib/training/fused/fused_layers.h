#pragma once

#include "lib/training/core/fused_kernels.h"
#include "lib/training/fused/fused_network.h"

namespace troupe::training::fused {

/// What Kernels::finish is told of a layer that keeps something.
inline Finish FinishOf(const Network::Layer& layer, const float* values) {
  return {layer.is_normed() ? values + layer.scale : nullptr, layer.is_normed() ? values + layer.shift : nullptr,
          layer.activation};
}

/// From what the layer reads, x, to what the next one does, y. `values` are the flat parameters; `kept` is for
/// FinishBackward.
inline void ForwardLayer(const Kernels& kernels, const Network::Layer& layer, const float* values, const float* x,
                         int vectors, float* y, float* kept) {
  kernels.forward(values + layer.weight, values + layer.bias, layer.out, layer.in, x, vectors,
                  layer.is_normed() ? Activation::kIdentity : layer.activation, y);
  if (layer.kept > 0) kernels.finish(FinishOf(layer, values), layer.out, vectors, y, kept);
}

/// After Kernels::backward into what `layer` gave, with its activation: dy becomes the derivatives by its products.
inline void FinishBackward(const Kernels& kernels, const Network::Layer& layer, const float* values, int vectors,
                           const float* kept, float* dy, float* gradient) {
  if (layer.kept == 0) return;
  kernels.finish_backward(FinishOf(layer, values), layer.out, vectors, kept, dy, gradient + layer.scale,
                          gradient + layer.shift);
}

}  // namespace troupe::training::fused
