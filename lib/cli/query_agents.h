#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/serving/policy_description.h"

namespace troupe::cli {

/// Whom the rows of a query ask. Plain value.
struct AskedPolicy {
  policy::PolicyId policy_id;
  std::vector<int32_t> agent_slots;  ///< [rows]; empty where the policy takes none
};

/// The policy that plays `agents`, one for all of the `rows` or one a row, and their slots as it wants them.
/// `policy_id`
/// "": the only one that plays them all, without agents the run's only one. INVALID_ARGUMENT: none or several do, or
/// the policy that is named does not; NOT_FOUND: an agent or policy that is not in the run.
absl::StatusOr<AskedPolicy> ResolveAgents(const serving::PolicyDescriptions& run, const std::string& policy_id,
                                          const std::vector<std::string>& agents, int64_t rows);

}  // namespace troupe::cli
