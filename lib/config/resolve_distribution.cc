#include "lib/config/resolve_distribution.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/config/schema.h"
#include "lib/policy/policy_spec.h"

namespace troupe::config {
namespace {

using policy::ActionBoundMethod;
using policy::ContinuousDistribution;
using policy::PolicySpec;

static_assert(static_cast<int>(ContinuousDistribution::kGaussian) == v1::ACTION_DISTRIBUTION_GAUSSIAN);
static_assert(static_cast<int>(ContinuousDistribution::kSquashedGaussian) == v1::ACTION_DISTRIBUTION_SQUASHED_GAUSSIAN);
static_assert(static_cast<int>(ContinuousDistribution::kBeta) == v1::ACTION_DISTRIBUTION_BETA);
static_assert(static_cast<int>(ActionBoundMethod::kNone) == v1::ACTION_BOUND_METHOD_NONE);
static_assert(static_cast<int>(ActionBoundMethod::kTanh) == v1::ACTION_BOUND_METHOD_TANH);

constexpr char kBoundMethod[] = "action_bound_method";
constexpr char kScaling[] = "action_scaling";
constexpr char kDistribution[] = "action_distribution";

/// Refuses what the run says of bounding and the distribution cannot have.
absl::Status CheckBounding(const RunConfig& config, const SettingsOf& of, const std::string& name,
                           const PolicySpec& spec) {
  const bool squashed = spec.continuous == ContinuousDistribution::kSquashedGaussian;
  const std::string because =
      absl::StrCat("but ", ModelKey(config, of, kDistribution), ": ", name, " of policy \"", of.policy.value(), "\" ");
  if (squashed != (spec.action_bound_method == ActionBoundMethod::kTanh)) {
    const std::string got =
        EnumWord(*v1::ActionBoundMethod_descriptor()->FindValueByNumber(static_cast<int>(spec.action_bound_method)));
    return config.KeyError(kBoundMethod, absl::StrCat("got ", got, ", ", because,
                                                      squashed ? "is bounded by tanh; expected tanh or auto"
                                                               : "is bounded as it is; expected none, clip or auto"));
  }
  if (!spec.action_scaling) {
    return config.KeyError(kScaling,
                           absl::StrCat("got false, ", because, "gives actions in [-1, 1]; expected true or auto"));
  }
  if (!spec.HasBoundedActions()) {
    return config.KeyError(ModelKey(config, of, kDistribution),
                           absl::StrCat("got ", name, ", but policy \"", of.policy.value(),
                                        "\" has actions without "
                                        "bounds, ",
                                        spec.action_space.ToString(), ", expected gaussian"));
  }
  return absl::OkStatus();
}

absl::Status CheckLogStd(const RunConfig& config, const SettingsOf& of, const PolicySpec& spec) {
  if (spec.min_log_std > spec.max_log_std) {
    return config.KeyError(ModelKey(config, of, "min_log_std"),
                           absl::StrCat("got ", spec.min_log_std, ", expected at most ",
                                        ModelKey(config, of, "max_log_std"), ": ", spec.max_log_std));
  }
  if (spec.initial_log_std < spec.min_log_std || spec.initial_log_std > spec.max_log_std) {
    return config.KeyError(
        ModelKey(config, of, "initial_log_std"),
        absl::StrCat("got ", spec.initial_log_std, ", expected a number in [", spec.min_log_std, ", ", spec.max_log_std,
                     "], from ", ModelKey(config, of, "min_log_std"), " to ", ModelKey(config, of, "max_log_std")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetDistribution(const RunConfig& config, const SettingsOf& of, const v1::ModelConfig& model,
                             PolicySpec* spec) {
  if (spec->HasContinuousActions()) {
    spec->continuous = static_cast<ContinuousDistribution>(model.action_distribution());
  }
  const bool bounded = spec->continuous != ContinuousDistribution::kGaussian;
  const bool squashed = spec->continuous == ContinuousDistribution::kSquashedGaussian;
  spec->action_bound_method = config.proto().has_action_bound_method()
                                  ? static_cast<ActionBoundMethod>(config.proto().action_bound_method())
                                  : (squashed ? ActionBoundMethod::kTanh : ActionBoundMethod::kClip);
  const bool by_space = model.scaling() == v1::SCALING_RULE_BY_SPACE && spec->HasContinuousActions() &&
                        spec->HasBoundedActions() && spec->action_bound_method != ActionBoundMethod::kNone;
  // Of the run's tanh a policy without continuous actions has the scaling, too.
  const bool scaled = bounded || by_space || spec->action_bound_method == ActionBoundMethod::kTanh;
  spec->action_scaling = config.proto().has_action_scaling() ? config.proto().action_scaling() : scaled;
  if (!spec->HasContinuousActions()) return absl::OkStatus();
  if (bounded) {
    const std::string name =
        EnumWord(*v1::ActionDistribution_descriptor()->FindValueByNumber(static_cast<int>(spec->continuous)));
    TROUPE_RETURN_IF_ERROR(CheckBounding(config, of, name, *spec));
  }
  // A Beta has no deviation: what is said of it stays out of the spec's text.
  if (spec->continuous == ContinuousDistribution::kBeta) return absl::OkStatus();
  spec->free_log_std = model.free_log_std();
  spec->min_log_std = model.min_log_std();
  spec->max_log_std = model.max_log_std();
  return CheckLogStd(config, of, *spec);
}

bool IsSameBounding(std::string_view key, std::string_view before, std::string_view now, v1::ScalingRule scaling) {
  const bool unscaled = key == kScaling && scaling == v1::SCALING_RULE_BY_255;
  const std::string_view was = key == kBoundMethod ? "clip" : unscaled ? "false" : "";
  const auto means = [was](std::string_view word) { return word == "auto" ? was : word; };
  return !was.empty() && means(before) == means(now);
}

}  // namespace troupe::config
