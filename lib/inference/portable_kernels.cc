#include <algorithm>
#include <cmath>

#include "lib/base/philox.h"
#include "lib/inference/kernels.h"
#include "lib/policy/policy_spec.h"
#include <Eigen/Core>

namespace troupe::inference {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMatrix = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;
using Matrix = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;

void Activate(policy::Activation activation, Eigen::Map<Eigen::ArrayXf> x) {
  switch (activation) {
    case policy::Activation::kTanh:
      x = x.tanh();
      return;
    case policy::Activation::kRelu:
      x = x.max(0.0f);
      return;
    case policy::Activation::kElu:
      x = (x > 0.0f).select(x, x.min(0.0f).exp() - 1.0f);
      return;
    case policy::Activation::kGelu:
      x = x.unaryExpr([](float v) { return 0.5f * v * (1.0f + std::erf(v * 0.70710678f)); });
      return;
    case policy::Activation::kSigmoid:
      x = (1.0f + (-x).exp()).inverse();
      return;
    case policy::Activation::kSilu:
      x = x / (1.0f + (-x).exp());
      return;
    case policy::Activation::kIdentity:
      return;
  }
}

void Mlp(const MlpCall& call) {
  for (int64_t first = 0; first < call.rows; first += kMlpChunkRows) {
    const int64_t rows = std::min(kMlpChunkRows, call.rows - first);
    const float* x = call.input + first * call.input_stride;
    int64_t x_stride = call.input_stride;
    for (int64_t l = 0; l < call.num_layers; ++l) {
      const DenseLayer& layer = call.layers[l];
      const bool last = l + 1 == call.num_layers;
      float* y = last ? call.output + first * layer.out_padded : call.scratch[l & 1];
      const ConstMatrix input(x, rows, layer.in, Eigen::OuterStride<>(x_stride));
      const ConstMatrix weights(layer.raw, layer.out, layer.in, Eigen::OuterStride<>(layer.raw_stride));
      Matrix output(y, rows, layer.out, Eigen::OuterStride<>(layer.out_padded));
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t bias_row =
            l == 0 && call.bias_row != nullptr ? call.bias_row[(first + r) * call.bias_row_stride] : 0;
        output.row(r) = Eigen::Map<const Eigen::RowVectorXf>(layer.bias + bias_row * layer.out_padded, layer.out);
      }
      output.noalias() += input * weights.transpose();
      if (!last) {
        Activate(static_cast<policy::Activation>(call.activation),
                 Eigen::Map<Eigen::ArrayXf>(y, rows * layer.out_padded));
      }
      x = y;
      x_stride = layer.out_padded;
    }
  }
}

/// One row; false when its mask forbids everything.
bool CategoricalRow(const CategoricalCall& call, int64_t r) {
  const float* logits = call.logits + r * call.logits_stride;
  const uint8_t* mask = call.mask == nullptr ? nullptr : call.mask + r * call.mask_stride;
  const auto allowed = [mask](int64_t i) { return mask == nullptr || mask[i] != 0; };
  int64_t best = -1;
  for (int64_t i = 0; i < call.categories; ++i) {
    if (allowed(i) && (best < 0 || logits[i] > logits[best])) best = i;
  }
  if (best < 0) return false;
  const float max = logits[best];
  float total = 0;
  for (int64_t i = 0; i < call.categories; ++i) {
    call.scratch[i] = allowed(i) ? std::exp(logits[i] - max) : 0.0f;
    total += call.scratch[i];
  }
  int64_t category = best;
  if (call.random != nullptr) {
    const float target = base::ToUniformFloat(call.random[r * call.random_stride]) * total;
    float sum = 0;
    // Rounding may leave the sum at the target: then the last one with weight.
    for (int64_t i = 0; i < call.categories; ++i) {
      if (call.scratch[i] <= 0) continue;
      category = i;
      sum += call.scratch[i];
      if (sum > target) break;
    }
  }
  call.action[r * call.action_stride] = call.start + static_cast<int32_t>(category);
  call.logp[r] += logits[category] - max - std::log(total);
  return true;
}

int64_t Categorical(const CategoricalCall& call) {
  for (int64_t r = 0; r < call.rows; ++r) {
    if (!CategoricalRow(call, r)) return r;
  }
  return -1;
}

void Philox(const PhiloxCall& call) {
  uint32_t* words = call.words;
  for (int64_t r = 0; r < call.rows; ++r) {
    const uint32_t* key = call.keys + r * 4;
    for (int64_t b = 0; b < call.blocks; ++b) {
      const uint32_t draw = key[3] * static_cast<uint32_t>(call.blocks) + static_cast<uint32_t>(b);
      for (const uint32_t word : base::Philox4x32({call.k0, call.k1}, {key[0], key[1], key[2], draw})) *words++ = word;
    }
  }
}

constexpr KernelTable kPortable = {"eigen", 8, 2, Mlp, Categorical, Philox};

}  // namespace

const KernelTable& PortableKernels() { return kPortable; }

}  // namespace troupe::inference
