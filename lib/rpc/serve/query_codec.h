#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.pb.h"

namespace troupe::rpc {

/// `request` as the engine takes it, which checks it. Borrows the request's arrays.
serving::ActionQuery FromProto(const v1::ComputeActionsRequest& request);
v1::ComputeActionsRequest ToProto(const serving::ActionQuery& query);

/// Replaces what is in `reply`.
void ToProto(const serving::ActionAnswer& answer, v1::ComputeActionsReply* reply);
/// INVALID_ARGUMENT unless it answers `query`: policy by policy as many rows, and arrays that are as long as they say;
/// CallError is the caller's.
absl::StatusOr<serving::ActionAnswer> FromProto(const v1::ComputeActionsReply& reply,
                                                const serving::ActionQuery& query);

/// The ids that are asked for.
std::vector<policy::PolicyId> FromProto(const v1::DescribePoliciesRequest& request);
/// Ids and versions alone.
v1::ListPoliciesReply ToList(const serving::PolicyDescriptions& descriptions);
serving::PolicyDescriptions FromProto(const v1::ListPoliciesReply& reply);
v1::DescribePoliciesReply ToProto(const serving::PolicyDescriptions& descriptions);
/// INVALID_ARGUMENT for slots of no agent, or words of dtypes that no action has.
absl::StatusOr<serving::PolicyDescriptions> FromProto(const v1::DescribePoliciesReply& reply);

}  // namespace troupe::rpc
