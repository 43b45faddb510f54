#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/env_spec.h"
#include "lib/outside/episode_step.h"
#include "lib/rpc/episode/policy_files.h"
#include "proto/troupe/v1/episodes.pb.h"

namespace troupe::rpc {

/// Messages of the service ExternalEpisodes, between wire and plain structs; what is in them outside::CheckStep looks
/// at. INVALID_ARGUMENT: an end that is none.
absl::StatusOr<outside::End> FromProto(v1::EpisodeEnd end);
absl::StatusOr<outside::StepReport> ToReport(const google::protobuf::RepeatedPtrField<v1::AgentStep>& agents,
                                             const google::protobuf::RepeatedField<float>& state);
/// What a report of all agents takes on the wire at most, as any Protobuf library writes it.
size_t MostReportBytes(const env::EnvSpec& spec);
v1::GetActionsReply ToProto(const std::vector<outside::AgentAction>& actions);
/// What a client must know of the world that the worker expects.
v1::StartEpisodeReply ToProto(const std::string& episode_id, const env::EnvSpec& spec);
v1::GetPoliciesReply ToProto(const PolicyPiece& piece);

}  // namespace troupe::rpc
