#include <algorithm>
#include <cmath>

#include "lib/base/philox.h"
#include "lib/inference/kernels.h"
#include "lib/policy/policy_spec.h"
#include <Eigen/Core>

namespace troupe::inference {
namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kPanelVectors = 2;

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

/// torch.nn.LayerNorm of each row of y [rows, out_padded].
void Normalize(const DenseLayer& layer, int64_t rows, float* y) {
  const Eigen::Map<const Eigen::ArrayXf> scale(layer.scale, layer.out);
  const Eigen::Map<const Eigen::ArrayXf> shift(layer.shift, layer.out);
  for (int64_t r = 0; r < rows; ++r) {
    Eigen::Map<Eigen::ArrayXf> row(y + r * layer.out_padded, layer.out);
    row -= row.mean();
    row *= 1.0f / std::sqrt(row.square().mean() + kLayerNormEpsilon);
    row = row * scale + shift;
  }
}

template <bool kNormed>
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
      if (!last || call.activate_last) {
        if constexpr (kNormed) Normalize(layer, rows, y);
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

using Units = Eigen::Map<Eigen::ArrayXf>;
using ConstUnits = Eigen::Map<const Eigen::ArrayXf>;

/// x becomes the sigmoid of x + y.
void SigmoidOfSum(Units x, ConstUnits y) { x = (1.0f + (-(x + y)).exp()).inverse(); }

/// One row of a core. `of_input` and `of_state` [gates, size] are the products, the first ones are overwritten.
void Cell(const CoreLayer& layer, float* of_input, const float* of_state, const float* in, float* out, float* output) {
  const int64_t size = layer.size;
  const auto x = [=](int64_t gate) { return Units(of_input + gate * size, size); };
  const auto y = [=](int64_t gate) { return ConstUnits(of_state + gate * size, size); };
  const ConstUnits old_h(in, size);
  Units h(out, size);
  SigmoidOfSum(x(0), y(0));
  SigmoidOfSum(x(1), y(1));
  if (layer.gates == 3) {
    x(2) = (x(2) + x(0) * y(2)).tanh();
    h = x(2) + x(1) * (old_h - x(2));
  } else {
    x(2) = (x(2) + y(2)).tanh();
    SigmoidOfSum(x(3), y(3));
    const ConstUnits old_cell(in + size, size);
    Units cell(out + size, size);
    cell = x(1) * old_cell + x(0) * x(2);
    h = x(3) * cell.tanh();
  }
  Units(output, size) = h;
}

void Core(const CoreCall& call) {
  const CoreLayer& layer = *call.layer;
  const int64_t width = layer.gates * layer.size;
  Matrix of_input(call.scratch, call.rows, width, Eigen::OuterStride<>(width));
  Matrix of_state(call.scratch + kMlpChunkRows * width, call.rows, width, Eigen::OuterStride<>(width));
  for (int64_t r = 0; r < call.rows; ++r) {
    const int64_t bias_row = call.bias_row == nullptr ? 0 : call.bias_row[r * call.bias_row_stride];
    const auto bias = [&](int64_t sum) {
      const int64_t place = (bias_row * kCoreSums + sum) * layer.size_padded;
      return Eigen::Map<const Eigen::RowVectorXf>(layer.bias + place, layer.size);
    };
    of_state.row(r).setZero();
    for (int64_t gate = 0; gate < layer.gates; ++gate) {
      of_input.row(r).segment(gate * layer.size, layer.size) = bias(gate);
    }
    if (layer.gates == 3) of_state.row(r).tail(layer.size) = bias(3);
  }
  const ConstMatrix input(call.input, call.rows, layer.in, Eigen::OuterStride<>(call.input_stride));
  const ConstMatrix state(call.state_in, call.rows, layer.size, Eigen::OuterStride<>(call.state_stride));
  const ConstMatrix weight_ih(layer.raw_ih, width, layer.in, Eigen::OuterStride<>(layer.raw_stride));
  const ConstMatrix weight_hh(layer.raw_hh, width, layer.size, Eigen::OuterStride<>(layer.size));
  of_input.noalias() += input * weight_ih.transpose();
  of_state.noalias() += state * weight_hh.transpose();
  for (int64_t r = 0; r < call.rows; ++r) {
    Cell(layer, &of_input(r, 0), &of_state(r, 0), call.state_in + r * call.state_stride,
         call.state_out + r * call.state_stride, call.output + r * layer.size_padded);
  }
}

/// The patches of one image, [out_height * out_width][kernel][kernel * in_channels].
void TakePatches(const ConvLayer& layer, const float* image, float* patches) {
  const int64_t run = layer.kernel * layer.in_channels;
  const int64_t line = layer.in_width * layer.in_channels;
  for (int64_t y = 0; y < layer.out_height; ++y) {
    for (int64_t x = 0; x < layer.out_width; ++x) {
      const float* from = image + y * layer.stride * line + x * layer.stride * layer.in_channels;
      for (int64_t k = 0; k < layer.kernel; ++k, from += line, patches += run) std::copy_n(from, run, patches);
    }
  }
}

/// One layer over one image.
void Convolve(const ConvLayer& layer, const float* image, float* patches_memory, float* made) {
  const int64_t places = layer.out_height * layer.out_width;
  const int64_t inputs = layer.kernel * layer.kernel * layer.in_channels;
  TakePatches(layer, image, patches_memory);
  const ConstMatrix patches(patches_memory, places, inputs, Eigen::OuterStride<>(inputs));
  Matrix output(made, places, layer.out, Eigen::OuterStride<>(layer.out));
  output.rowwise() = Eigen::Map<const Eigen::RowVectorXf>(layer.bias, layer.out);
  const float* weights = layer.packed;
  for (int64_t column = 0; column < layer.out_padded;) {
    const int64_t width = layer.out_padded - column >= kPanelVectors * kLanes ? kPanelVectors * kLanes : kLanes;
    const int64_t count = std::min(width, layer.out - column);
    const ConstMatrix panel(weights, inputs, width, Eigen::OuterStride<>(width));
    output.middleCols(column, count).noalias() += patches * panel.leftCols(count);
    weights += inputs * width;
    column += width;
  }
}

void Conv(const ConvCall& call) {
  const int64_t pixels = call.layers[0].in_height * call.layers[0].in_width * call.layers[0].in_channels;
  for (int64_t r = 0; r < call.rows; ++r) {
    const float* image = call.image;
    if (call.bytes) {
      const auto* const bytes = static_cast<const uint8_t*>(call.input) + r * pixels;
      for (int64_t i = 0; i < pixels; ++i) {
        const int64_t at = call.uniform_bytes ? 0 : i;
        call.image[i] = (static_cast<float>(bytes[i]) - call.byte_offset[at]) * call.byte_scale[at];
      }
    } else {
      image = static_cast<const float*>(call.input) + r * pixels;
    }
    for (int64_t l = 0; l < call.num_layers; ++l) {
      const ConvLayer& layer = call.layers[l];
      float* const made = l + 1 == call.num_layers ? call.output + r * call.output_stride : call.scratch[l & 1];
      Convolve(layer, image, call.patches, made);
      Activate(static_cast<policy::Activation>(call.activation),
               Eigen::Map<Eigen::ArrayXf>(made, layer.out_height * layer.out_width * layer.out));
      image = made;
    }
  }
}

constexpr KernelTable kPortable = {"eigen", kLanes, kPanelVectors, Mlp<false>, Mlp<true>, Categorical,
                                   Philox,  Core,   true,          Conv,       true};

}  // namespace

const KernelTable& PortableKernels() { return kPortable; }

}  // namespace troupe::inference
