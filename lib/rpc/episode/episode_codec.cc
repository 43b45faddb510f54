#include "lib/rpc/episode/episode_codec.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {
namespace {

outside::ClientAction FromProto(const v1::AgentAction& action) {
  outside::ClientAction plain;
  plain.discrete.assign(action.discrete().begin(), action.discrete().end());
  plain.continuous.assign(action.continuous().begin(), action.continuous().end());
  if (action.has_log_prob()) plain.logp = action.log_prob();
  return plain;
}

}  // namespace

absl::StatusOr<outside::End> FromProto(v1::EpisodeEnd end) {
  if (end >= v1::EPISODE_END_NONE && end <= v1::EPISODE_END_TRUNCATED) return static_cast<outside::End>(end);
  return absl::InvalidArgumentError(absl::StrCat("got end ", static_cast<int>(end), ", expected 0, 1 or 2"));
}

absl::StatusOr<outside::StepReport> ToReport(const google::protobuf::RepeatedPtrField<v1::AgentStep>& agents,
                                             const google::protobuf::RepeatedField<float>& state) {
  outside::StepReport report;
  report.state.assign(state.begin(), state.end());
  report.agents.reserve(static_cast<size_t>(agents.size()));
  for (const v1::AgentStep& from : agents) {
    outside::AgentReport& agent = report.agents.emplace_back();
    agent.agent = from.agent_id();
    agent.observation.assign(from.observation().begin(), from.observation().end());
    agent.image = from.image();
    agent.action_mask = from.action_mask();
    agent.reward = from.reward();
    TROUPE_ASSIGN_OR_RETURN(agent.end, FromProto(from.end()));
    if (from.has_action()) agent.action = FromProto(from.action());
  }
  return report;
}

size_t MostReportBytes(const env::EnvSpec& spec) {
  constexpr size_t kOfMessage = 256;  // the episode's id, tags and lengths
  constexpr size_t kOfAgent = 128;    // the same of an agent, and its numbers
  constexpr size_t kOfWord = 5;       // the largest varint of 32 bits
  size_t bytes = kOfMessage;
  for (const env::AgentSpec& agent : spec.possible_agents) {
    bytes += kOfAgent + 2 * agent.id.value().size();  // an action has the agent's id, too
    const bool is_image = agent.observation_space.flat_dtype() == tensor::DType::kUint8;
    bytes += (is_image ? 1 : sizeof(float)) * static_cast<size_t>(agent.observation_space.flat_size());
    bytes += static_cast<size_t>(agent.action_space.mask_size());
    bytes += kOfWord * static_cast<size_t>(agent.action_space.action_words());
  }
  if (spec.state_kind != env::StateKind::kNone) {
    bytes += sizeof(float) * static_cast<size_t>(spec.state_space.flat_size());
  }
  return bytes;
}

v1::GetActionsReply ToProto(const std::vector<outside::AgentAction>& actions) {
  v1::GetActionsReply reply;
  for (const outside::AgentAction& from : actions) {
    v1::AgentAction* const to = reply.add_actions();
    to->set_agent_id(from.agent);
    to->mutable_discrete()->Add(from.action.discrete.begin(), from.action.discrete.end());
    to->mutable_continuous()->Add(from.action.continuous.begin(), from.action.continuous.end());
    if (from.action.logp.has_value()) to->set_log_prob(*from.action.logp);
  }
  return reply;
}

v1::StartEpisodeReply ToProto(const std::string& episode_id, const env::EnvSpec& spec) {
  v1::StartEpisodeReply reply;
  reply.set_episode_id(episode_id);
  for (const env::AgentSpec& from : spec.possible_agents) {
    v1::WorldAgent* const agent = reply.add_agents();
    agent->set_agent_id(from.id.value());
    agent->set_observation_space(from.observation_space.ToString());
    agent->set_action_space(from.action_space.ToString());
    agent->set_has_action_mask(from.has_action_mask);
    agent->set_observation_size(static_cast<uint32_t>(from.observation_space.flat_size()));
    if (from.has_action_mask) agent->set_mask_size(static_cast<uint32_t>(from.action_space.mask_size()));
  }
  if (spec.state_kind != env::StateKind::kNone) {
    reply.set_state_size(static_cast<uint32_t>(spec.state_space.flat_size()));
  }
  return reply;
}

v1::GetPoliciesReply ToProto(const PolicyPiece& piece) {
  v1::GetPoliciesReply reply;
  if (piece.image == nullptr) return reply;
  reply.set_weights(piece.image->weights);
  for (const auto& [name, size] : piece.image->files) {
    v1::PolicyFile* const file = reply.add_files();
    file->set_name(name);
    file->set_size(size);
  }
  reply.set_data(piece.image->bytes.substr(piece.offset, kPolicyPieceBytes));
  return reply;
}

}  // namespace troupe::rpc
