#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"

namespace troupe::policy {

/// What a worker needs to act for a policy: the acting prefix of its flat parameters, its normalizers, and what it
/// explores with. Immutable after it is made and shared by pointer; thread-safe.
struct WeightSnapshot {
  static constexpr size_t kMaxExplorationScalars = 16;
  static constexpr size_t kMaxExplorationNameBytes = 64;
  /// Names of `exploration`: with the probability kEpsilon a discrete action is drawn evenly from those that are
  /// allowed, else the one of the largest output is taken; a continuous one is its mean with Gaussian noise of the
  /// standard deviation kNoise, before it is bounded. Who does not explore takes the largest, and the mean.
  static constexpr char kEpsilon[] = "epsilon";
  static constexpr char kNoise[] = "noise";

  PolicyId id;
  WeightVersion version;
  std::vector<float> actor;  ///< ParameterLayout::acting_size() elements
  /// Observation normalization: empty unless PolicySpec::normalize_observations, else observation_size() elements each.
  /// The actor's input is clip((obs - mean) * inverse_std, -10, 10).
  std::vector<float> observation_mean;
  std::vector<float> observation_inverse_std;
  /// How it explores, evaluated when these weights were published, so that it is versioned with them, by name. Empty
  /// where actions are sampled from the policy itself.
  std::map<std::string, double, std::less<>> exploration = {};

  /// INVALID_ARGUMENT when a size does not fit `spec`, a number is not finite, or `exploration` has more than
  /// kMaxExplorationScalars, a bad name, an epsilon outside [0, 1] or without a discrete action, or a negative noise,
  /// or one without a Gaussian action.
  absl::Status Validate(const PolicySpec& spec) const;
  /// The same for who has `acting_size` of the spec's layout at hand: a layout is many names.
  absl::Status Validate(const PolicySpec& spec, int64_t acting_size) const;
};
using WeightSnapshotPtr = std::shared_ptr<const WeightSnapshot>;

/// Root of `variance`, kept from 0 for a column that never changed. Every normalizer uses this one.
double StandardDeviation(double variance);

/// The actor's part of `state`, as its trainer would publish it. INVALID_ARGUMENT when the state does not fit `spec`.
absl::StatusOr<WeightSnapshotPtr> SnapshotOf(const PolicyState& state, const PolicySpec& spec);

}  // namespace troupe::policy
