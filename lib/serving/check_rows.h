#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/serving/action_query.h"
#include "lib/space/space.h"

namespace troupe::serving {

/// The agents that may play a policy. Borrowed.
struct PolicyAgents {
  absl::Span<const std::string> ids;  ///< of the whole run, by slot; empty where that is not known
  absl::Span<const int32_t> slots;    ///< of those that may play the policy
};

/// OK when a policy of `spec` can act on `rows`; else INVALID_ARGUMENT with the policy, what was got and expected, and
/// the row and element where there is one. `leaves`: ActionLeaves(spec.action_space). `agents` are named
/// where an agent slot is wrong. The caller has bounded the number of rows.
absl::Status CheckRows(const policy::PolicySpec& spec, absl::Span<const space::ActionLeaf> leaves,
                       const QueryRows& rows, const PolicyAgents& agents = {});

}  // namespace troupe::serving
