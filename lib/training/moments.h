#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::training {

/// Mean and population variance of each column of `values` [rows, columns] over the rows in `active` (ascending row
/// numbers), in double precision and two passes. No active row: count 0.
policy::RunningMoments MomentsOf(absl::Span<const float> values, int64_t columns, absl::Span<const int32_t> active);

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
