#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/action_query.h"
#include "lib/space/space.h"

namespace troupe::serving {

/// OK when a policy of `spec` can act on `rows`; else INVALID_ARGUMENT with the policy, what was got and expected, and
/// the row and element where there is one. `leaves`: ActionLeaves(spec.action_space). The caller has bounded the number
/// of rows.
absl::Status CheckRows(const policy::PolicySpec& spec, absl::Span<const space::ActionLeaf> leaves,
                       const QueryRows& rows);

}  // namespace troupe::serving
