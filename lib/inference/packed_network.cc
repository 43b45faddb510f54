#include "lib/inference/packed_network.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

constexpr int64_t kCacheLineFloats = 16;
constexpr int64_t kAllColumns = -1;  // that a layer's weights have

const policy::ParameterEntry& Find(const policy::ParameterLayout& layout, const std::string& name) {
  const policy::ParameterEntry* entry = layout.Find(name);
  TROUPE_CHECK(entry != nullptr);
  return *entry;
}

int64_t RoundUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// No defaults: a kind that is not written here does not compile.
bool HasCore(policy::CoreKind kind) {
  switch (kind) {
    case policy::CoreKind::kNone:
      return false;
    case policy::CoreKind::kGru:
    case policy::CoreKind::kLstm:
      return true;
  }
  return false;
}
size_t NumEncoderLayers(const policy::NetworkSpec& network) {
  switch (network.encoder) {
    case policy::EncoderKind::kMlp:
    case policy::EncoderKind::kCnn:
    case policy::EncoderKind::kLeaves:
    case policy::EncoderKind::kAttention:  // of critics alone, as the next
    case policy::EncoderKind::kShared:
    case policy::EncoderKind::kTorchScript:  // Actor::Create refuses it
      return HasCore(network.core.kind) ? network.hidden_sizes.size() : 0;
  }
  return 0;
}

}  // namespace

PackedNetwork::PackedNetwork(const policy::PolicySpec& spec, const KernelTable* kernels)
    : kernels_(kernels), num_encoder_layers_(NumEncoderLayers(spec.actor)) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  // In the order in which they are read.
  if (spec.actor.encoder == policy::EncoderKind::kLeaves) AddLeaves(spec, layout);
  for (size_t l = 0; l < num_encoder_layers_; ++l) AddDense(spec, layout, l);
  for (int64_t l = 0; l < spec.actor.core.layers; ++l) AddCore(spec, layout, l);
  for (size_t l = num_encoder_layers_; l < spec.actor.num_layers(); ++l) AddDense(spec, layout, l);
  packed_.EnsureCapacity(static_cast<size_t>(packed_floats_) * sizeof(float));
  for (size_t l = 0; l < layers_.size(); ++l) SetPointers(layer_places_[l], &layers_[l]);
  for (size_t l = 0; l < leaf_layers_.size(); ++l) SetPointers(leaf_places_[l], &leaf_layers_[l]);
  for (size_t l = 0; l < core_.size(); ++l) {
    core_[l].bias = packed() + core_places_[l].packed_bias;
    core_[l].packed = packed() + core_places_[l].packed_weight;
  }
}

int64_t PackedNetwork::Reserve(int64_t floats) {
  const int64_t place = packed_floats_;
  packed_floats_ += RoundUp(floats, kCacheLineFloats);
  return place;
}

void PackedNetwork::AddLeaves(const policy::PolicySpec& spec, const policy::ParameterLayout& layout) {
  for (const policy::ObservationPart& part : policy::ObservationParts(spec, spec.actor)) {
    if (part.encoder == nullptr) continue;
    const std::string stem = absl::StrCat("actor.", part.stem);
    for (size_t l = 0; l < part.encoder->hidden_sizes.size(); ++l) {
      const auto [layer, places] = MakeDense(layout, stem, l, kAllColumns, 1);
      leaf_layers_.push_back(layer);
      leaf_places_.push_back(places);
    }
    leaf_ends_.push_back(leaf_layers_.size());
  }
}

void PackedNetwork::AddDense(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, size_t index) {
  // The one-hot's columns become bias rows.
  const auto [layer, places] =
      ReadsInputs() ? MakeDense(layout, "actor.", index, policy::EncodedObservationSize(spec, spec.actor),
                                std::max<int64_t>(1, spec.agent_id_size))
                    : MakeDense(layout, "actor.", index, kAllColumns, 1);
  layers_.push_back(layer);
  layer_places_.push_back(places);
}

std::pair<DenseLayer, PackedNetwork::Places> PackedNetwork::MakeDense(const policy::ParameterLayout& layout,
                                                                      const std::string& stem, size_t index, int64_t in,
                                                                      int64_t bias_rows) {
  const policy::ParameterEntry& weight = Find(layout, absl::StrCat(stem, index, ".weight"));
  TROUPE_CHECK(weight.shape.size() == 2);
  DenseLayer layer;
  layer.raw_stride = weight.shape[1];
  layer.out = weight.shape[0];
  layer.in = in == kAllColumns ? weight.shape[1] : in;
  layer.out_padded = RoundUp(layer.out, kernels_->lanes);
  Places places;
  places.weight = weight.offset;
  places.bias = Find(layout, absl::StrCat(stem, index, ".bias")).offset;
  places.bias_rows = bias_rows;
  places.packed_bias = Reserve(places.bias_rows * layer.out_padded);
  places.packed_weight = Reserve(layer.in * layer.out_padded);
  if (const policy::ParameterEntry* scale = layout.Find(absl::StrCat(stem, "norm.", index, ".weight"))) {
    places.normed = true;
    places.scale = scale->offset;
    places.shift = Find(layout, absl::StrCat(stem, "norm.", index, ".bias")).offset;
    places.packed_scale = Reserve(layer.out_padded);
    places.packed_shift = Reserve(layer.out_padded);
  }
  return {layer, places};
}

void PackedNetwork::SetPointers(const Places& places, DenseLayer* layer) {
  layer->bias = packed() + places.packed_bias;
  layer->packed = packed() + places.packed_weight;
  if (!places.normed) return;
  layer->scale = packed() + places.packed_scale;
  layer->shift = packed() + places.packed_shift;
}

void PackedNetwork::AddCore(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, int64_t index) {
  const policy::ParameterEntry& weight = Find(layout, absl::StrCat("actor.core.weight_ih_l", index));
  TROUPE_CHECK(weight.shape.size() == 2);
  CoreLayer layer;
  layer.raw_stride = weight.shape[1];
  layer.size = spec.actor.core.size;
  layer.gates = spec.actor.core.gates();
  layer.in = ReadsInputs() ? policy::EncodedObservationSize(spec, spec.actor) : weight.shape[1];
  layer.size_padded = RoundUp(layer.size, kernels_->lanes);
  Places places;
  places.weight = weight.offset;
  places.bias = Find(layout, absl::StrCat("actor.core.bias_ih_l", index)).offset;
  places.weight_hh = Find(layout, absl::StrCat("actor.core.weight_hh_l", index)).offset;
  places.bias_hh = Find(layout, absl::StrCat("actor.core.bias_hh_l", index)).offset;
  places.bias_rows = ReadsInputs() ? std::max<int64_t>(1, spec.agent_id_size) : 1;
  places.packed_bias = Reserve(places.bias_rows * kCoreSums * layer.size_padded);
  places.packed_weight = Reserve((layer.in + layer.size) * layer.gates * layer.size_padded);
  core_.push_back(layer);
  core_places_.push_back(places);
}

int64_t PackedNetwork::widest_between() const {
  int64_t widest = kernels_->lanes;
  for (size_t l = 0; l + 1 < layers_.size(); ++l) widest = std::max(widest, layers_[l].out_padded);
  for (const CoreLayer& layer : core_) widest = std::max(widest, layer.size_padded);
  return widest;
}

void PackedNetwork::Pack(absl::Span<const float> parameters) {
  for (size_t l = 0; l < layers_.size(); ++l) PackDense(parameters.data(), layer_places_[l], &layers_[l]);
  for (size_t l = 0; l < leaf_layers_.size(); ++l) PackDense(parameters.data(), leaf_places_[l], &leaf_layers_[l]);
  for (size_t l = 0; l < core_.size(); ++l) PackCore(parameters.data(), core_places_[l], &core_[l]);
}

void PackedNetwork::PackDense(const float* parameters, const Places& places, DenseLayer* layer) {
  const float* raw = parameters + places.weight;
  const float* raw_bias = parameters + places.bias;
  layer->raw = raw;
  float* weights = packed() + places.packed_weight;
  const int64_t panel = kernels_->panel_vectors * kernels_->lanes;
  for (int64_t column = 0; column < layer->out_padded;) {
    const int64_t width = layer->out_padded - column >= panel ? panel : kernels_->lanes;
    for (int64_t k = 0; k < layer->in; ++k) {
      for (int64_t o = column; o < column + width; ++o)
        *weights++ = o < layer->out ? raw[o * layer->raw_stride + k] : 0.0f;
    }
    column += width;
  }
  const bool one_hot = layer->raw_stride > layer->in;
  float* bias = packed() + places.packed_bias;
  for (int64_t row = 0; row < places.bias_rows; ++row) {
    for (int64_t o = 0; o < layer->out_padded; ++o) {
      float value = o < layer->out ? raw_bias[o] : 0.0f;
      if (one_hot && o < layer->out) value += raw[o * layer->raw_stride + layer->in + row];
      *bias++ = value;
    }
  }
  if (!places.normed) return;
  const auto pack = [&](int64_t from, int64_t to) {
    float* const at = std::copy_n(parameters + from, layer->out, packed() + to);
    std::fill_n(at, layer->out_padded - layer->out, 0.0f);
  };
  pack(places.scale, places.packed_scale);
  pack(places.shift, places.packed_shift);
}

void PackedNetwork::PackCore(const float* parameters, const Places& places, CoreLayer* layer) {
  const int64_t size = layer->size;
  layer->raw_ih = parameters + places.weight;
  layer->raw_hh = parameters + places.weight_hh;
  float* weights = packed() + places.packed_weight;
  for (int64_t column = 0; column < layer->size_padded; column += kernels_->lanes) {
    const auto pack = [&](const float* raw, int64_t stride, int64_t columns) {
      for (int64_t k = 0; k < columns; ++k) {
        for (int64_t gate = 0; gate < layer->gates; ++gate) {
          for (int64_t o = column; o < column + kernels_->lanes; ++o)
            *weights++ = o < size ? raw[(gate * size + o) * stride + k] : 0.0f;
        }
      }
    };
    pack(layer->raw_ih, layer->raw_stride, layer->in);
    pack(layer->raw_hh, size, size);
  }
  const float* bias_ih = parameters + places.bias;
  const float* bias_hh = parameters + places.bias_hh;
  const bool one_hot = layer->raw_stride > layer->in;
  float* bias = packed() + places.packed_bias;
  std::fill(bias, bias + places.bias_rows * kCoreSums * layer->size_padded, 0.0f);
  for (int64_t row = 0; row < places.bias_rows; ++row) {
    for (int64_t gate = 0; gate < layer->gates; ++gate) {
      const bool apart = layer->gates == 3 && gate == 2;  // a GRU's reset multiplies the state's part, bias and all
      for (int64_t o = 0; o < size; ++o) {
        const int64_t unit = gate * size + o;
        float value = bias_ih[unit] + (apart ? 0.0f : bias_hh[unit]);
        if (one_hot) value += layer->raw_ih[unit * layer->raw_stride + layer->in + row];
        bias[gate * layer->size_padded + o] = value;
        if (apart) bias[3 * layer->size_padded + o] = bias_hh[unit];
      }
    }
    bias += kCoreSums * layer->size_padded;
  }
}

}  // namespace troupe::inference
