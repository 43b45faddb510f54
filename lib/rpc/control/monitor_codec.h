#pragma once

#include "lib/rpc/control/policy_listing.h"
#include "lib/rpc/worker/run_status.h"
#include "proto/troupe/v1/monitor.pb.h"

namespace troupe::rpc {

/// The answers of Monitor, between wire and plain structs. From…: whatever a learner says, since people look at it.

/// All of it but the protocol's version, which is the service's to say.
v1::StatusReply ToProto(const RunStatus& status);
RunStatus FromProto(const v1::StatusReply& reply);

v1::PoliciesReply ToProto(const PolicyListing& listing);
PoliciesAnswer FromProto(v1::PoliciesReply reply);

}  // namespace troupe::rpc
