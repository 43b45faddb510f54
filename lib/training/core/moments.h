#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::training {

/// Mean and population variance of each column of `values` [rows, columns] over the rows in `active` (ascending row
/// numbers), in double precision and two passes. No active row: count 0.
policy::RunningMoments MomentsOf(absl::Span<const float> values, int64_t columns, absl::Span<const int32_t> active);
/// The same of rows that begin `stride` elements apart.
policy::RunningMoments MomentsOf(const float* values, int64_t columns, int64_t stride,
                                 absl::Span<const int32_t> active);

/// The same of several columns that lie apart. A sum waits for the one before it: sums of several columns fill the
/// time.
template <size_t kColumns>
std::array<policy::RunningMoments, kColumns> MomentsOfEach(const std::array<absl::Span<const float>, kColumns>& columns,
                                                           absl::Span<const int32_t> active) {
  std::array<double, kColumns> mean{};
  std::array<double, kColumns> variance{};
  for (const int32_t row : active) {
    for (size_t c = 0; c < kColumns; ++c) mean[c] += columns[c][static_cast<size_t>(row)];
  }
  const auto count = static_cast<double>(active.size());
  if (!active.empty()) {
    for (double& sum : mean) sum /= count;
  }
  for (const int32_t row : active) {
    for (size_t c = 0; c < kColumns; ++c) {
      const double delta = columns[c][static_cast<size_t>(row)] - mean[c];
      variance[c] += delta * delta;
    }
  }
  if (!active.empty()) {
    for (double& sum : variance) sum /= count;
  }
  std::array<policy::RunningMoments, kColumns> moments;
  for (size_t c = 0; c < kColumns; ++c) moments[c] = {count, {mean[c]}, {variance[c]}};
  return moments;
}

/// `old` and `batch` together (Chan, Golub, LeVeque 1983). `old` counts for at most `max_count` values, so that the
/// result keeps following returns and observations that drift while the policy learns.
policy::RunningMoments Merge(policy::RunningMoments old, const policy::RunningMoments& batch, double max_count);

/// True when count, means and variances are finite numbers.
bool IsFinite(const policy::RunningMoments& moments);

/// Moments before any data: mean 0, variance 1, weight 0.
policy::RunningMoments InitialMoments(int64_t columns);

/// sqrt of the variance, kept from 0 for a column that never changed.
double StandardDeviation(double variance);

}  // namespace troupe::training
