#include "lib/policy/weight_snapshot.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"

namespace troupe::policy {
namespace {

constexpr double kMinVariance = 1e-8;

template <typename T>
absl::Status CheckVector(const PolicyId& id, const char* name, const std::vector<T>& values, int64_t expected) {
  if (static_cast<int64_t>(values.size()) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": ", name, " has ", values.size(), " elements; expected ", expected));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", name, "[", i, "] is not finite"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMoments(const PolicyId& id, const char* name, const RunningMoments& moments, int64_t expected) {
  TROUPE_RETURN_IF_ERROR(CheckVector(id, name, moments.mean, expected));
  TROUPE_RETURN_IF_ERROR(CheckVector(id, name, moments.variance, expected));
  for (const double variance : moments.variance) {
    if (variance < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy \"", id.value(), "\": ", name, " has a variance of ", variance));
    }
  }
  if (!std::isfinite(moments.count) || moments.count < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": ", name, " has a count of ", moments.count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WeightSnapshot::Validate(const PolicySpec& spec) const {
  if (id != spec.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights are of policy \"", id.value(), "\"; expected \"", spec.id.value(), "\""));
  }
  const int64_t moments = spec.normalize_observations ? spec.observation_size() : 0;
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "actor", actor, ParameterLayout::For(spec).actor_size()));
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "observation_mean", observation_mean, moments));
  return CheckVector(id, "observation_inverse_std", observation_inverse_std, moments);
}

absl::Status PolicyState::Validate(const PolicySpec& spec) const {
  if (id != spec.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("state is of policy \"", id.value(), "\"; expected \"", spec.id.value(), "\""));
  }
  const int64_t size = ParameterLayout::For(spec).size();
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "parameters", parameters, size));
  const int64_t adam_size = adam_exp_avg.empty() ? 0 : size;
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "adam_exp_avg", adam_exp_avg, adam_size));
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "adam_exp_avg_sq", adam_exp_avg_sq, adam_size));
  TROUPE_RETURN_IF_ERROR(CheckMoments(id, "observation_moments", observation_moments,
                                      spec.normalize_observations ? spec.observation_size() : 0));
  const int64_t value_size = value_moments.mean.empty() ? 0 : 1;
  return CheckMoments(id, "value_moments", value_moments, value_size);
}

double StandardDeviation(double variance) { return std::sqrt(std::max(variance, kMinVariance)); }

absl::StatusOr<WeightSnapshotPtr> SnapshotOf(const PolicyState& state, const PolicySpec& spec) {
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  auto snapshot = std::make_shared<WeightSnapshot>();
  snapshot->id = state.id;
  snapshot->version = state.version;
  snapshot->actor.assign(state.parameters.begin(), state.parameters.begin() + ParameterLayout::For(spec).actor_size());
  const RunningMoments& moments = state.observation_moments;
  snapshot->observation_mean.assign(moments.mean.begin(), moments.mean.end());
  for (const double variance : moments.variance) {
    snapshot->observation_inverse_std.push_back(static_cast<float>(1.0 / StandardDeviation(variance)));
  }
  TROUPE_RETURN_IF_ERROR(snapshot->Validate(spec));
  return snapshot;
}

}  // namespace troupe::policy
