#pragma once

#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/sample/env_report.h"
#include "lib/sample/grant.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// The small messages, between wire and plain structs. Nothing here trusts the wire: From… checks ranges.
v1::WeightVersion ToProto(const policy::WeightVersion& version);
policy::WeightVersion FromProto(const v1::WeightVersion& version);

v1::Grant ToProto(const sample::Grant& grant);
/// INVALID_ARGUMENT for lanes that are not ascending or without steps.
absl::StatusOr<sample::Grant> FromProto(const v1::Grant& grant);

v1::Ack ToProto(const sample::FragmentAck& ack);
/// INVALID_ARGUMENT for an unknown disposition.
absl::StatusOr<sample::FragmentAck> FromProto(const v1::Ack& ack);

v1::EnvCounters ToProto(const sample::EnvCounters& counters);
/// INVALID_ARGUMENT for a count below 0.
absl::StatusOr<sample::EnvCounters> FromProto(const v1::EnvCounters& counters);
void FillHeartbeat(const sample::EnvReport& report, v1::Heartbeat* heartbeat);
/// Of one that has env_counters. INVALID_ARGUMENT for numbers and counts that no worker says; texts are cut.
absl::StatusOr<sample::EnvReport> FromProto(const v1::Heartbeat& heartbeat);

/// FAILED_PRECONDITION in words unless this build speaks `peer`'s protocol.
absl::Status CheckProtocol(const v1::ProtocolVersion& peer);
v1::ProtocolVersion OurProtocol();

/// One protobuf message as one slice.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);

}  // namespace troupe::rpc
