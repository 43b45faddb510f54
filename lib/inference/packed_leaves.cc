#include "lib/inference/packed_leaves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

float* LeafFloats(tensor::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace

PackedLeaves::PackedLeaves(const policy::PolicySpec& spec, const PackedNetwork& network, const KernelTable* kernels)
    : kernels_(kernels),
      activation_(static_cast<int>(spec.actor.activation)),
      normed_(spec.actor.layer_norm),
      observation_size_(spec.observation_size()) {
  if (spec.actor.encoder != policy::EncoderKind::kLeaves) return;
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  int64_t gathered = 0;
  int64_t between = 0;
  int64_t made = 0;
  size_t encoders = 0;
  for (policy::ObservationPart& place : policy::ObservationParts(spec, spec.actor)) {
    Part part;
    part.output = output_stride_;
    output_stride_ += place.made;
    if (place.encoder != nullptr) {
      part.layers = network.leaf(encoders++);
      for (const DenseLayer& layer : part.layers) between = std::max(between, layer.out_padded);
      if (!part.layers.empty()) made = std::max(made, part.layers.back().out_padded);
      const bool convolves = !place.encoder->conv_layers.empty();
      if (convolves) {
        part.convolutions =
            std::make_unique<PackedConvolutions>(layout, absl::StrCat("actor.", place.stem), place.encoder->conv_layers,
                                                 place.image, spec.actor.activation, kernels);
      }
      if (convolves || place.divided) {
        gathered = std::max(gathered, (convolves ? kConvChunkImages : kMlpChunkRows) * place.size);
      }
    }
    place.encoder = nullptr;  // of a spec that may be gone later
    part.place = std::move(place);
    parts_.push_back(std::move(part));
  }
  const auto grow = [](tensor::Buffer& buffer, int64_t floats) {
    buffer.EnsureCapacity(static_cast<size_t>(floats) * sizeof(float));
  };
  grow(gathered_, gathered);
  for (tensor::Buffer& scratch : scratch_) grow(scratch, kMlpChunkRows * between);
  grow(made_, kMlpChunkRows * made);
  grow(output_, kMlpChunkRows * output_stride_);
}

void PackedLeaves::Pack(absl::Span<const float> parameters) {
  for (const Part& part : parts_) {
    if (part.convolutions != nullptr) part.convolutions->Pack(parameters);
  }
}

const float* PackedLeaves::Run(const float* observations, int64_t rows) {
  for (const Part& part : parts_) RunPart(part, observations, rows);
  return LeafFloats(output_);
}

const float* PackedLeaves::Gather(const policy::ObservationPart& place, const float* observations, int64_t rows) {
  float* out = LeafFloats(gathered_);
  for (int64_t r = 0; r < rows; ++r) {
    const float* const leaf = observations + r * observation_size_ + place.first;
    if (place.divided) {
      for (int64_t i = 0; i < place.size; ++i) out[i] = leaf[i] * (1.0f / 255.0f);
    } else {
      std::copy_n(leaf, place.size, out);
    }
    out += place.size;
  }
  return LeafFloats(gathered_);
}

void PackedLeaves::RunPart(const Part& part, const float* observations, int64_t rows) {
  MlpCall call;
  call.input = observations + part.place.first;
  call.input_stride = observation_size_;
  if (part.convolutions != nullptr) {
    for (int64_t first = 0; first < rows; first += kConvChunkImages) {
      const int64_t images = std::min(kConvChunkImages, rows - first);
      const float* const from = Gather(part.place, observations + first * observation_size_, images);
      call.input = part.convolutions->Run(from, /*bytes=*/false, images, first);
    }
    call.input_stride = part.convolutions->output_stride();
  } else if (part.place.divided) {
    call.input = Gather(part.place, observations, rows);
    call.input_stride = part.place.size;
  }
  if (part.layers.empty()) return Put(part, call.input, call.input_stride, rows);
  call.layers = part.layers.data();
  call.num_layers = static_cast<int64_t>(part.layers.size());
  call.activation = activation_;
  call.activate_last = true;
  call.rows = rows;
  call.scratch[0] = LeafFloats(scratch_[0]);
  call.scratch[1] = LeafFloats(scratch_[1]);
  call.output = LeafFloats(made_);
  (normed_ ? kernels_->normed_mlp : kernels_->mlp)(call);
  Put(part, call.output, part.layers.back().out_padded, rows);
}

void PackedLeaves::Put(const Part& part, const float* made, int64_t stride, int64_t rows) {
  float* out = LeafFloats(output_) + part.output;
  for (int64_t r = 0; r < rows; ++r, made += stride, out += output_stride_) std::copy_n(made, part.place.made, out);
}

}  // namespace troupe::inference
