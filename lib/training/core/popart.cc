#include "lib/training/core/popart.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/moments.h"

namespace troupe::training {

void PreserveValues(const policy::PolicySpec& spec, const policy::RunningMoments& before,
                    const policy::RunningMoments& after, FlatParameters* parameters) {
  const double old_deviation = StandardDeviation(before.variance[0]);
  const double new_deviation = StandardDeviation(after.variance[0]);
  const double scale = old_deviation / new_deviation;
  const double shift = (before.mean[0] - after.mean[0]) / new_deviation;
  const std::string last = absl::StrCat(policy::kCriticRole, ".", spec.critic().num_layers() - 1);
  const auto values_of = [&](const char* tensor) {
    const policy::ParameterEntry* const entry = parameters->layout().Find(last + tensor);
    TROUPE_CHECK(entry != nullptr);
    return parameters->values().subspan(static_cast<size_t>(entry->offset), static_cast<size_t>(entry->count));
  };
  for (float& weight : values_of(".weight")) weight = static_cast<float>(weight * scale);
  for (float& bias : values_of(".bias")) bias = static_cast<float>(bias * scale + shift);
}

}  // namespace troupe::training
