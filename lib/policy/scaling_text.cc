#include "lib/policy/scaling_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/row_scaling.h"

namespace troupe::policy {
namespace {

std::string ObservationText(const PolicySpec& spec) {
  std::string text = "as they are";
  if (space::HasBytes(spec.observation_space)) {
    const bool by_255 = spec.bytes_by_255 || !spec.bytes_have_bounds();
    text = by_255 ? "bytes divided by 255" : "bytes to [0, 1] by their bounds";
    if (spec.normalize_observations) text += ", then normalized";
  } else if (spec.normalize_observations) {
    text = "normalized";
  }
  return text;
}

std::string ActionText(const PolicySpec& spec) {
  if (!spec.HasContinuousActions()) return "discrete";
  if (spec.action_scaling) return "from [-1, 1] to their Box";
  if (!spec.HasBoundedActions()) return "not scaled, their Box has no bounds";
  return spec.action_bound_method == ActionBoundMethod::kClip ? "clipped to their Box, not scaled" : "not scaled";
}

}  // namespace

std::string ScalingText(const std::vector<PolicySpec>& specs) {
  std::vector<std::pair<std::string, std::string>> kinds;  // text, and the first policy
  for (const PolicySpec& spec : specs) {
    if (!spec.policy_class.has_weights()) continue;
    std::string text = absl::StrCat("observations ", ObservationText(spec), "; actions ", ActionText(spec));
    const bool known =
        std::any_of(kinds.begin(), kinds.end(), [&text](const auto& kind) { return kind.first == text; });
    if (!known) kinds.emplace_back(std::move(text), base::LogSafe(spec.id.value(), 64));
  }
  if (kinds.size() == 1) return kinds[0].first;
  return absl::StrJoin(kinds, "; ",
                       [](std::string* out, const auto& kind) { absl::StrAppend(out, kind.second, ": ", kind.first); });
}

}  // namespace troupe::policy
