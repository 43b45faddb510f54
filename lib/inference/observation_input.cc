#include "lib/inference/observation_input.h"

#include <algorithm>

namespace troupe::inference {
namespace {

constexpr float kObservationClip = 10.0f;

}  // namespace

ObservationInput::ObservationInput(const policy::PolicySpec& spec)
    : size_(spec.observation_size()),
      bytes_(spec.observation_space.flat_dtype() == tensor::DType::kUint8),
      normalizes_(spec.normalize_observations) {}

void ObservationInput::EnsureCapacity(int64_t rows) {
  if (!in_place()) floats_.EnsureCapacity(static_cast<size_t>(rows * size_) * sizeof(float));
}

const float* ObservationInput::Prepare(const ActInput& input, const policy::WeightSnapshot& weights) {
  if (in_place()) return static_cast<const float*>(input.obs);
  float* out = reinterpret_cast<float*>(floats_.data());
  const int64_t count = input.rows * size_;
  if (bytes_) {
    const auto* bytes = static_cast<const uint8_t*>(input.obs);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(bytes[i]) * (1.0f / 255.0f);
  }
  if (!normalizes_) return out;
  const float* mean = weights.observation_mean.data();
  const float* inverse_std = weights.observation_inverse_std.data();
  const float* in = bytes_ ? out : static_cast<const float*>(input.obs);
  for (int64_t r = 0; r < input.rows; ++r) {
    for (int64_t i = 0; i < size_; ++i) {
      const float z = (in[r * size_ + i] - mean[i]) * inverse_std[i];
      out[r * size_ + i] = std::min(std::max(z, -kObservationClip), kObservationClip);
    }
  }
  return out;
}

}  // namespace troupe::inference
