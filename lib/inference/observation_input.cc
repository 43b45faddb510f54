#include "lib/inference/observation_input.h"

#include <algorithm>

#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

constexpr float kObservationClip = 10.0f;

}  // namespace

ObservationInput::ObservationInput(const policy::PolicySpec& spec)
    : size_(spec.observation_size()),
      bytes_(spec.observation_space.flat_dtype() == tensor::DType::kUint8),
      normalizes_(spec.normalize_observations),
      scaling_(spec.observation_scaling()) {}

void ObservationInput::EnsureCapacity(int64_t rows) {
  if (!in_place()) floats_.EnsureCapacity(static_cast<size_t>(rows * size_) * sizeof(float));
}

template <typename T>
void ObservationInput::Scale(const T* from, int64_t count, float* to) const {
  if (scaling_.is_uniform()) return scaling_.Apply(from, count, to);
  for (int64_t i = 0; i < count; i += size_) scaling_.Apply(from + i, size_, to + i);
}

const float* ObservationInput::Prepare(const ActInput& input, const policy::WeightSnapshot& weights) {
  if (in_place()) return static_cast<const float*>(input.obs);
  float* out = reinterpret_cast<float*>(floats_.data());
  const int64_t count = input.rows * size_;
  if (bytes_) {
    Scale(static_cast<const uint8_t*>(input.obs), count, out);
  } else if (!scaling_.identity()) {
    Scale(static_cast<const float*>(input.obs), count, out);
  }
  if (!normalizes_) return out;
  const float* mean = weights.observation_mean.data();
  const float* inverse_std = weights.observation_inverse_std.data();
  const float* in = scaling_.identity() ? static_cast<const float*>(input.obs) : out;
  for (int64_t r = 0; r < input.rows; ++r) {
    for (int64_t i = 0; i < size_; ++i) {
      const float z = (in[r * size_ + i] - mean[i]) * inverse_std[i];
      out[r * size_ + i] = std::min(std::max(z, -kObservationClip), kObservationClip);
    }
  }
  return out;
}

}  // namespace troupe::inference
