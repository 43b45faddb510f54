#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {

/// What a worker needs to act for a policy: the actor's prefix of its flat parameters and the non-trained section.
/// Immutable after it is made and shared by pointer; thread-safe.
struct WeightSnapshot {
  PolicyId id;
  WeightVersion version;
  std::vector<float> actor;  ///< ParameterLayout::actor_size() elements
  /// Observation normalization: empty unless PolicySpec::normalize_observations, else observation_size() elements each.
  /// The actor's input is clip((obs - mean) * inverse_std, -10, 10).
  std::vector<float> observation_mean;
  std::vector<float> observation_inverse_std;

  /// INVALID_ARGUMENT when a size does not fit `spec` or a number is not finite.
  absl::Status Validate(const PolicySpec& spec) const;
};
using WeightSnapshotPtr = std::shared_ptr<const WeightSnapshot>;

/// Running mean and variance (Chan et al. 1983, "Algorithms for computing the sample variance"), element-wise. Plain
/// value.
struct RunningMoments {
  double count = 0;
  std::vector<double> mean;
  std::vector<double> variance;  ///< population variance
};

/// Everything of a policy that lives on: flat parameters, optimizer, normalizers, counters. What is checkpointed,
/// spilled and swapped. Plain value.
struct PolicyState {
  PolicyId id;
  WeightVersion version;
  std::vector<float> parameters;    ///< ParameterLayout::size() elements
  std::vector<float> adam_exp_avg;  ///< same size, or empty
  std::vector<float> adam_exp_avg_sq;
  int64_t adam_steps = 0;
  RunningMoments observation_moments;  ///< observation_size() elements when normalized
  RunningMoments value_moments;        ///< 1 element when value normalization is on
  int64_t trained_rows = 0;
  int64_t skipped_updates = 0;  ///< updates refused for a non-finite loss or gradient
  int64_t consecutive_skips = 0;

  absl::Status Validate(const PolicySpec& spec) const;
};

/// Root of `variance`, kept from 0 for a column that never changed. Every normalizer uses this one.
double StandardDeviation(double variance);

/// The actor's part of `state`, as its trainer would publish it. INVALID_ARGUMENT when the state does not fit `spec`.
absl::StatusOr<WeightSnapshotPtr> SnapshotOf(const PolicyState& state, const PolicySpec& spec);

}  // namespace troupe::policy
