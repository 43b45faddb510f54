#include "lib/training/torch/torch_inputs.h"

#include <algorithm>
#include <vector>

#include "lib/policy/leaf_encoders.h"
#include "lib/training/torch/torch_attention.h"

namespace troupe::training {

using torch::Tensor;

namespace {

constexpr int64_t kPassFloats = int64_t{16} << 20;

Tensor Joined(const Tensor& scaled, const Tensor& floats) {
  return floats.size(1) == 0 ? scaled : torch::cat({scaled, floats}, 1);
}

/// Of a row, what convolutions make one after another.
int64_t FloatsBetween(const std::vector<policy::ConvLayer>& layers, policy::ImageShape image) {
  int64_t floats = 0;
  for (const policy::ConvLayer& layer : layers) {
    image = layer.OutputOf(image);
    floats += image.size();
  }
  return floats;
}

}  // namespace

ImageScaling::ImageScaling(const policy::PolicySpec& spec, int64_t images, const torch::Device& device) {
  if (!spec.image_bytes()) return;
  const space::RowScaling scaling = spec.observation_scaling();
  offset_ = scaling.offset[0];
  scale_ = scaling.scale[0];
  if (scaling.is_uniform()) return;
  offsets_ = torch::tensor(scaling.offset).repeat({images}).to(device);
  scales_ = torch::tensor(scaling.scale).repeat({images}).to(device);
}

Tensor ImageScaling::Apply(const Tensor& bytes) const {
  const Tensor images = bytes.to(torch::kFloat32);
  if (scales_.defined()) return images.sub_(offsets_).mul_(scales_);
  if (offset_ != 0) images.sub_(offset_);
  return images.mul_(scale_);
}

Tensor NetworkInputs::Take(const Tensor& index) const {
  Tensor taken = floats.index_select(0, index);
  if (mask.defined()) taken = torch::cat({taken, mask.index_select(0, index).to(torch::kFloat32)}, 1);
  if (!images.defined()) return taken;
  const Tensor rows = image_rows.defined() ? image_rows.index_select(0, index) : index;
  return Joined(scaling.Apply(images.index_select(0, rows)), taken);
}

Tensor NetworkInputs::Range(int64_t first, int64_t count) const {
  const Tensor taken = floats.narrow(0, first, count);
  if (!images.defined()) return taken;
  const bool same = !image_rows.defined();
  const Tensor bytes =
      same ? images.narrow(0, first, count) : images.index_select(0, image_rows.narrow(0, first, count));
  return Joined(scaling.Apply(bytes), taken);
}

int64_t RowsOfPass(const policy::PolicySpec& spec, const policy::NetworkSpec& network, int64_t most) {
  int64_t between =
      spec.ImagesOf(network) * FloatsBetween(network.conv_layers, spec.image()) + FloatsOfAttention(network.attention);
  if (network.encoder == policy::EncoderKind::kLeaves) {
    for (const policy::ObservationPart& part : policy::ObservationParts(spec, network)) {
      if (part.encoder != nullptr) between += FloatsBetween(part.encoder->conv_layers, part.image);
    }
  }
  if (between == 0 && !spec.image_bytes()) return most;
  const int64_t floats = spec.InputSize(network) + between;
  return std::clamp<int64_t>(kPassFloats / floats, 1, most);
}

}  // namespace troupe::training
