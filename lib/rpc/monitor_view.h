#pragma once

#include "lib/policy/policy_table.h"
#include "lib/rpc/run_status.h"
#include "proto/troupe/v1/monitor.pb.h"

namespace troupe::rpc {

/// All of it; the protocol's version is the service's to say.
v1::StatusReply ToProto(const RunStatus& status);

/// `status` as it may be told to anybody: texts are dropped unless a list in the source names them, so a text field
/// that is new stays here until somebody decides about it; of numbers, those that are configuration are dropped.
void WithholdFromAnybody(v1::StatusReply* status);

/// The table as a list. `whole`: with the texts of classes and functions; else with their kinds alone.
v1::PoliciesReply ListPolicies(const policy::PolicyTable& table, bool whole);

}  // namespace troupe::rpc
