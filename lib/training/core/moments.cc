#include "lib/training/core/moments.h"

#include <cmath>
#include <utility>

namespace troupe::training {

policy::RunningMoments MomentsOf(absl::Span<const float> values, int64_t columns, absl::Span<const int32_t> active) {
  if (columns == 1 && !active.empty()) return MomentsOfEach<1>({values}, active)[0];
  return MomentsOf(values.data(), columns, columns, active);
}

policy::RunningMoments MomentsOf(const float* values, int64_t columns, int64_t stride,
                                 absl::Span<const int32_t> active) {
  policy::RunningMoments moments;
  moments.count = static_cast<double>(active.size());
  moments.mean.assign(static_cast<size_t>(columns), 0.0);
  moments.variance.assign(static_cast<size_t>(columns), 0.0);
  if (active.empty()) return moments;
  for (const int32_t row : active) {
    const float* value = values + row * stride;
    for (int64_t c = 0; c < columns; ++c) moments.mean[c] += value[c];
  }
  for (double& mean : moments.mean) mean /= moments.count;
  for (const int32_t row : active) {
    const float* value = values + row * stride;
    for (int64_t c = 0; c < columns; ++c) {
      const double delta = value[c] - moments.mean[c];
      moments.variance[c] += delta * delta;
    }
  }
  for (double& variance : moments.variance) variance /= moments.count;
  return moments;
}

policy::RunningMoments Merge(policy::RunningMoments old, const policy::RunningMoments& batch, double max_count) {
  if (batch.count <= 0) return old;
  old.count = std::min(old.count, max_count);
  const double total = old.count + batch.count;
  for (size_t c = 0; c < old.mean.size(); ++c) {
    const double delta = batch.mean[c] - old.mean[c];
    old.variance[c] = (old.variance[c] * old.count + batch.variance[c] * batch.count +
                       delta * delta * old.count * batch.count / total) /
                      total;
    old.mean[c] += delta * batch.count / total;
  }
  old.count = total;
  return old;
}

bool IsFinite(const policy::RunningMoments& moments) {
  const auto finite = [](double value) { return std::isfinite(value); };
  return finite(moments.count) && std::all_of(moments.mean.begin(), moments.mean.end(), finite) &&
         std::all_of(moments.variance.begin(), moments.variance.end(), finite);
}

policy::RunningMoments InitialMoments(int64_t columns) {
  policy::RunningMoments moments;
  moments.mean.assign(static_cast<size_t>(columns), 0.0);
  moments.variance.assign(static_cast<size_t>(columns), 1.0);
  return moments;
}

double StandardDeviation(double variance) { return policy::StandardDeviation(variance); }

}  // namespace troupe::training
