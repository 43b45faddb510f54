#include "lib/training/core/frozen_parameters.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_globs.h"
#include "lib/policy/parameter_layout.h"

namespace troupe::training {

absl::StatusOr<std::vector<ParameterRange>> FrozenRanges(const policy::PolicySpec& spec,
                                                         const std::vector<std::string>& globs) {
  std::vector<ParameterRange> ranges;
  if (globs.empty()) return ranges;
  const std::string owner = absl::StrCat("policy \"", spec.id.value(), "\"");
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const absl::StatusOr<std::vector<bool>> frozen = policy::MatchEntries(layout, globs, owner);
  if (!frozen.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm.frozen_parameters: ", frozen.status().message()));
  }
  if (std::find(frozen->begin(), frozen->end(), false) == frozen->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.frozen_parameters: nothing of ", owner,
                     " is left to train, expected some; leave it out of multi_agent.policies_to_train instead"));
  }
  const std::vector<policy::ParameterEntry>& entries = layout.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!(*frozen)[i]) continue;
    const int64_t end = i + 1 < entries.size() ? entries[i + 1].offset : layout.size();
    if (!ranges.empty() && ranges.back().end == entries[i].offset) {
      ranges.back().end = end;
    } else {
      ranges.push_back({entries[i].offset, end});
    }
  }
  return ranges;
}

}  // namespace troupe::training
