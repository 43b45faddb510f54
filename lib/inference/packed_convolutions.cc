#include "lib/inference/packed_convolutions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

constexpr int64_t kLineFloats = 16;

int64_t RoundedUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

float* FloatsOf(tensor::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

void Grow(tensor::Buffer& buffer, int64_t floats) {
  buffer.EnsureCapacity(static_cast<size_t>(floats) * sizeof(float));
}

int64_t OffsetOf(const policy::ParameterLayout& layout, const std::string& stem, size_t index, const char* part) {
  const policy::ParameterEntry* const entry = layout.Find(absl::StrCat(stem, "conv.", index, part));
  TROUPE_CHECK(entry != nullptr);
  return entry->offset;
}

}  // namespace

PackedConvolutions::PackedConvolutions(const policy::PolicySpec& spec, const KernelTable* kernels)
    : PackedConvolutions(
          spec.actor.conv_layers.empty() ? policy::ParameterLayout() : policy::ParameterLayout::For(spec), "actor.",
          spec.actor.conv_layers, spec.image(), spec.actor.activation, kernels) {
  byte_scaling_ = spec.observation_scaling();
}

PackedConvolutions::PackedConvolutions(const policy::ParameterLayout& layout, const std::string& stem,
                                       const std::vector<policy::ConvLayer>& layers, policy::ImageShape image,
                                       policy::Activation activation, const KernelTable* kernels)
    : kernels_(kernels), activation_(static_cast<int>(activation)) {
  if (layers.empty()) return;
  const int64_t lanes = kernels->lanes;
  const int64_t pixels = image.size();
  int64_t packed = 0;
  int64_t between = 0;
  int64_t patches = 0;
  const auto reserve = [&packed](int64_t floats) {
    const int64_t place = packed;
    packed += RoundedUp(floats, kLineFloats);
    return place;
  };
  for (size_t l = 0; l < layers.size(); ++l) {
    const policy::ConvLayer& given = layers[l];
    const policy::ImageShape made = given.OutputOf(image);
    ConvLayer layer;
    layer.in_height = image.height;
    layer.in_width = image.width;
    layer.in_channels = image.channels;
    layer.kernel = given.kernel;
    layer.stride = given.stride;
    layer.out_height = made.height;
    layer.out_width = made.width;
    layer.out = made.channels;
    layer.out_padded = RoundedUp(made.channels, lanes);
    const int64_t inputs = given.kernel * given.kernel * image.channels;
    places_.push_back({OffsetOf(layout, stem, l, ".weight"), OffsetOf(layout, stem, l, ".bias"),
                       reserve(inputs * layer.out_padded), reserve(layer.out_padded)});
    layers_.push_back(layer);
    output_stride_ = RoundedUp(made.size(), lanes);
    if (l + 1 < layers.size()) between = std::max(between, output_stride_);
    patches = std::max(patches, made.height * made.width * inputs);
    image = made;
  }
  Grow(packed_, packed);
  Grow(image_, pixels);
  for (tensor::Buffer& scratch : scratch_) Grow(scratch, kConvChunkImages * between);
  if (kernels->conv_patches) Grow(patches_, patches);
  Grow(output_, kMlpChunkRows * output_stride_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].packed = FloatsOf(packed_) + places_[l].packed_weight;
    layers_[l].bias = FloatsOf(packed_) + places_[l].packed_bias;
  }
}

void PackedConvolutions::Pack(absl::Span<const float> parameters) {
  for (size_t l = 0; l < layers_.size(); ++l) PackLayer(parameters.data(), places_[l], layers_[l]);
}

void PackedConvolutions::PackLayer(const float* parameters, const Places& places, const ConvLayer& layer) {
  // torch.nn.Conv2d's: [out, in, kernel, kernel].
  const float* const raw = parameters + places.weight;
  const int64_t area = layer.kernel * layer.kernel;
  float* weights = FloatsOf(packed_) + places.packed_weight;
  const int64_t panel = kernels_->panel_vectors * kernels_->lanes;
  for (int64_t column = 0; column < layer.out_padded;) {
    const int64_t width = layer.out_padded - column >= panel ? panel : kernels_->lanes;
    for (int64_t pixel = 0; pixel < area; ++pixel) {
      for (int64_t channel = 0; channel < layer.in_channels; ++channel) {
        for (int64_t o = column; o < column + width; ++o) {
          *weights++ = o < layer.out ? raw[(o * layer.in_channels + channel) * area + pixel] : 0.0f;
        }
      }
    }
    column += width;
  }
  float* const bias = FloatsOf(packed_) + places.packed_bias;
  std::copy_n(parameters + places.bias, layer.out, bias);
  std::fill(bias + layer.out, bias + layer.out_padded, 0.0f);
}

const float* PackedConvolutions::Run(const void* images, bool bytes, int64_t rows, int64_t first) {
  ConvCall call;
  call.layers = layers_.data();
  call.num_layers = static_cast<int64_t>(layers_.size());
  call.activation = activation_;
  call.input = images;
  call.bytes = bytes;
  call.byte_offset = byte_scaling_.offset.data();
  call.byte_scale = byte_scaling_.scale.data();
  call.uniform_bytes = byte_scaling_.is_uniform();
  call.rows = rows;
  call.image = FloatsOf(image_);
  call.scratch[0] = FloatsOf(scratch_[0]);
  call.scratch[1] = FloatsOf(scratch_[1]);
  call.patches = FloatsOf(patches_);
  call.output = FloatsOf(output_) + first * output_stride_;
  call.output_stride = output_stride_;
  kernels_->conv(call);
  return FloatsOf(output_);
}

}  // namespace troupe::inference
