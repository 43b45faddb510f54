#pragma once

#include "absl/status/statusor.h"
#include "lib/policy/policy_change.h"
#include "proto/troupe/v1/control.pb.h"

namespace troupe::rpc {

/// A change of policies, between wire and plain struct.
v1::ChangePoliciesRequest ToProto(const policy::PolicyChange& change);
/// INVALID_ARGUMENT for a request without a change, an id that ValidatePolicyId refuses, more than
/// PolicyTable::kMaxPolicies ids, and a mapping that is no list of rules.
absl::StatusOr<policy::PolicyChange> FromProto(const v1::ChangePoliciesRequest& request);

}  // namespace troupe::rpc
