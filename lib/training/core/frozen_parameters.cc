#include "lib/training/core/frozen_parameters.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/parameter_globs.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::training {
namespace {

/// Sections that no optimizer changes.
void AddUntrained(const policy::ParameterLayout& layout, std::vector<ParameterRange>* ranges) {
  for (const policy::ParameterSection& section : layout.sections()) {
    if (!section.trained) ranges->push_back({section.offset, section.offset + section.size});
  }
}

/// Whether `frozen` holds all that is trained of the critic, a user's module.
bool ModuleIsFrozen(const policy::ParameterLayout& layout, absl::Span<const ParameterRange> frozen) {
  const policy::ParameterSection& critic = *layout.FindSection(policy::kCriticRole);
  return std::any_of(frozen.begin(), frozen.end(), [&critic](const ParameterRange& range) {
    return range.first <= critic.offset && critic.offset + critic.size <= range.end;
  });
}

}  // namespace

absl::StatusOr<std::vector<ParameterRange>> FrozenRanges(const policy::PolicySpec& spec,
                                                         const std::vector<std::string>& globs) {
  std::vector<ParameterRange> ranges;
  const std::string owner = absl::StrCat("policy \"", spec.id.value(), "\"");
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  if (globs.empty()) {
    AddUntrained(layout, &ranges);
    return ranges;
  }
  const absl::StatusOr<std::vector<bool>> frozen = policy::MatchEntries(layout, globs, owner);
  if (!frozen.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm.frozen_parameters: ", frozen.status().message()));
  }
  const std::vector<policy::ParameterEntry>& entries = layout.entries();
  bool any_left = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    any_left = any_left || (!(*frozen)[i] && layout.sections()[entries[i].section].trained);
  }
  if (!any_left) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.frozen_parameters: nothing of ", owner,
                     " is left to train, expected some; leave it out of multi_agent.policies_to_train instead"));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!(*frozen)[i] && layout.sections()[entries[i].section].trained) continue;
    const int64_t end = i + 1 < entries.size() ? entries[i + 1].offset : layout.size();
    if (!ranges.empty() && ranges.back().end == entries[i].offset) {
      ranges.back().end = end;
    } else {
      ranges.push_back({entries[i].offset, end});
    }
  }
  return ranges;
}

absl::StatusOr<bool> ValuesAreFrozen(const policy::PolicySpec& spec, absl::Span<const ParameterRange> frozen,
                                     bool use_popart) {
  if (frozen.empty() || spec.FindLearnerNetwork(policy::kCriticRole) == nullptr) return false;
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  if (spec.critic().encoder == policy::EncoderKind::kTorchScript) return ModuleIsFrozen(layout, frozen);
  const std::string last = absl::StrCat(policy::kCriticRole, ".", spec.critic().num_layers() - 1);
  const auto is_frozen = [&](const char* tensor) {
    const policy::ParameterEntry* const entry = layout.Find(last + tensor);
    TROUPE_CHECK(entry != nullptr);
    return std::any_of(frozen.begin(), frozen.end(), [entry](const ParameterRange& range) {
      return range.first <= entry->offset && entry->offset < range.end;
    });
  };
  const bool weight = is_frozen(".weight");
  const bool bias = is_frozen(".bias");
  if (use_popart && weight != bias) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.frozen_parameters: of policy \"", spec.id.value(), "\" they hold \"", last,
                     weight ? ".weight" : ".bias", "\" and leave \"", last, weight ? ".bias" : ".weight",
                     "\"; expected both or none with use_popart, which rescales the critic's last layer"));
  }
  return weight && bias;
}

}  // namespace troupe::training
