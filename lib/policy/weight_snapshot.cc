#include "lib/policy/weight_snapshot.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {
namespace {

constexpr double kMinVariance = 1e-8;

absl::Status CheckVector(const PolicyId& id, const char* name, const std::vector<float>& values, int64_t expected) {
  if (static_cast<int64_t>(values.size()) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": ", name, " has ", values.size(), " elements; expected ", expected));
  }
  if (base::AllFinite(values)) return absl::OkStatus();
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", id.value(), "\": ", name, "[", bad - values.begin(), "] is not finite"));
}

}  // namespace

absl::Status WeightSnapshot::Validate(const PolicySpec& spec) const {
  return Validate(spec, ParameterLayout::For(spec).acting_size());
}

absl::Status WeightSnapshot::Validate(const PolicySpec& spec, int64_t acting_size) const {
  if (id != spec.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights are of policy \"", id.value(), "\"; expected \"", spec.id.value(), "\""));
  }
  const int64_t moments = spec.normalize_observations ? spec.observation_size() : 0;
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "actor", actor, acting_size));
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "observation_mean", observation_mean, moments));
  TROUPE_RETURN_IF_ERROR(CheckVector(id, "observation_inverse_std", observation_inverse_std, moments));
  if (exploration.size() > kMaxExplorationScalars) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": explores with ", exploration.size(),
                                                   " numbers; expected at most ", kMaxExplorationScalars));
  }
  for (const auto& [name, value] : exploration) {
    if (!name.empty() && name.size() <= kMaxExplorationNameBytes && std::isfinite(value)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "policy \"", id.value(), "\": exploration \"", base::LogSafe(name, kMaxExplorationNameBytes), "\" is ", value,
        "; expected a finite number with a name of 1 to ", kMaxExplorationNameBytes, " bytes"));
  }
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(spec.action_space);
  const auto acts_by = [&leaves](space::ActionLeaf::Kind kind) {
    return std::any_of(leaves.begin(), leaves.end(),
                       [kind](const space::ActionLeaf& leaf) { return leaf.kind == kind; });
  };
  const auto refuse = [this](const char* name, double value, const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": exploration \"", name, "\" is ", value, "; expected ", expected));
  };
  if (const auto epsilon = exploration.find(kEpsilon); epsilon != exploration.end()) {
    const bool fits = epsilon->second >= 0 && epsilon->second <= 1 && acts_by(space::ActionLeaf::Kind::kCategorical);
    if (!fits) return refuse(kEpsilon, epsilon->second, "0 to 1, of a policy with discrete actions");
  }
  if (const auto noise = exploration.find(kNoise); noise != exploration.end()) {
    const bool fits =
        noise->second >= 0 && spec.continuous == ContinuousDistribution::kGaussian && spec.log_std_size() > 0;
    if (!fits) return refuse(kNoise, noise->second, "at least 0, of a policy with Gaussian actions (free_log_std)");
  }
  return absl::OkStatus();
}

double StandardDeviation(double variance) { return std::sqrt(std::max(variance, kMinVariance)); }

absl::StatusOr<WeightSnapshotPtr> SnapshotOf(const PolicyState& state, const PolicySpec& spec) {
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  auto snapshot = std::make_shared<WeightSnapshot>();
  snapshot->id = state.id;
  snapshot->version = state.version;
  snapshot->actor = ParameterLayout::For(spec).ActingPart(state.parameters());
  const RunningMoments moments = state.Moments(kObservationMoments);
  snapshot->observation_mean.assign(moments.mean.begin(), moments.mean.end());
  for (const double variance : moments.variance) {
    snapshot->observation_inverse_std.push_back(static_cast<float>(1.0 / StandardDeviation(variance)));
  }
  TROUPE_RETURN_IF_ERROR(snapshot->Validate(spec));
  return snapshot;
}

}  // namespace troupe::policy
