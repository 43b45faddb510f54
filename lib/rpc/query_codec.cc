#include "lib/rpc/query_codec.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/convert.h"

namespace troupe::rpc {
namespace {

template <typename T>
std::string Bytes(absl::Span<const T> array) {
  return std::string(reinterpret_cast<const char*>(array.data()), array.size() * sizeof(T));
}

template <typename T>
absl::Span<const T> Borrow(const std::string& bytes) {
  return absl::MakeConstSpan(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
}

/// An unknown number must not become a known one by losing bits.
tensor::DType ToDType(int number) {
  return v1::DType_IsValid(number) ? static_cast<tensor::DType>(number) : tensor::DType::kUnspecified;
}

/// `words` is as long as `bytes`; both may be empty, for which memcpy has no pointer.
void CopyWords(const std::string& bytes, std::vector<space::ActionWord>* words) {
  if (!bytes.empty()) std::memcpy(words->data(), bytes.data(), bytes.size());
}

/// Of the rows' states. What the policy remembers is as much after a decision as before it.
absl::StatusOr<std::vector<float>> ToState(const v1::QueryActions& in, const serving::QueryRows& asked) {
  const size_t bytes = in.state_out().size();
  const size_t column_bytes = sizeof(float) * static_cast<size_t>(asked.rows);
  const bool has_columns = column_bytes == 0 ? bytes == 0 : bytes % column_bytes == 0;
  if (!has_columns || (!asked.state_in.empty() && bytes != asked.state_in.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the answer of policy \"", base::LogSafe(in.policy_id(), 64), "\" has ", bytes, " bytes of states, expected ",
        asked.state_in.empty() ? absl::StrCat(asked.rows, " rows of float32")
                               : absl::StrCat("as many as in the query, ", asked.state_in.size())));
  }
  std::vector<float> state(bytes / sizeof(float));
  if (!state.empty()) std::memcpy(state.data(), in.state_out().data(), bytes);
  return state;
}

/// Of action words.
absl::StatusOr<std::vector<tensor::DType>> ToWordDTypes(const std::string& policy_id,
                                                        const google::protobuf::RepeatedField<int>& numbers) {
  std::vector<tensor::DType> dtypes;
  for (const int number : numbers) {
    dtypes.push_back(ToDType(number));
    if (dtypes.back() != tensor::DType::kInt32 && dtypes.back() != tensor::DType::kFloat32) {
      return absl::InvalidArgumentError(
          absl::StrCat("the answer of policy \"", base::LogSafe(policy_id, 64), "\" has words of dtype ", number));
    }
  }
  return dtypes;
}

absl::StatusOr<serving::PolicyActions> ToActions(const v1::QueryActions& in, const serving::QueryRows& asked) {
  const auto words = static_cast<size_t>(in.action_dtypes_size());
  const auto rows = static_cast<size_t>(asked.rows);
  if (in.policy_id() != asked.policy_id.value() || in.rows() != rows) {
    return absl::InvalidArgumentError(absl::StrCat("the answer is ", in.rows(), " rows of policy \"",
                                                   base::LogSafe(in.policy_id(), 64), "\", expected ", rows, " of \"",
                                                   asked.policy_id.value(), "\""));
  }
  if (in.actions().size() != 4 * rows * words || in.sampled_actions().size() != 4 * rows * words ||
      static_cast<size_t>(in.action_logp_size()) != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer of policy \"", in.policy_id(), "\" has ", in.actions().size(), " and ",
                     in.sampled_actions().size(), " bytes of actions and ", in.action_logp_size(),
                     " log-probabilities, expected ", rows, " rows of ", words, " words"));
  }
  serving::PolicyActions out;
  out.policy_id = asked.policy_id;
  out.version = FromProto(in.version());
  out.rows = asked.rows;
  TROUPE_ASSIGN_OR_RETURN(out.word_dtypes, ToWordDTypes(in.policy_id(), in.action_dtypes()));
  out.actions.resize(rows * words);
  out.sampled_actions.resize(rows * words);
  CopyWords(in.actions(), &out.actions);
  CopyWords(in.sampled_actions(), &out.sampled_actions);
  out.logp.assign(in.action_logp().begin(), in.action_logp().end());
  TROUPE_ASSIGN_OR_RETURN(out.state_out, ToState(in, asked));
  return out;
}

}  // namespace

serving::ActionQuery FromProto(const v1::ComputeActionsRequest& request) {
  serving::ActionQuery query;
  query.deterministic = request.deterministic();
  query.policies.reserve(static_cast<size_t>(request.policies_size()));
  for (const v1::QueryRows& in : request.policies()) {
    serving::QueryRows rows;
    rows.policy_id = policy::PolicyId(in.policy_id());
    rows.rows = in.rows();
    rows.obs_dtype = ToDType(in.obs_dtype());
    rows.obs = Borrow<std::byte>(in.obs());
    rows.action_mask = Borrow<uint8_t>(in.action_mask());
    rows.agent_slots = absl::MakeConstSpan(in.agent_slots().data(), static_cast<size_t>(in.agent_slots().size()));
    rows.state_in = Borrow<std::byte>(in.state_in());
    query.policies.push_back(std::move(rows));
  }
  return query;
}

v1::ComputeActionsRequest ToProto(const serving::ActionQuery& query) {
  v1::ComputeActionsRequest request;
  request.set_deterministic(query.deterministic);
  for (const serving::QueryRows& rows : query.policies) {
    v1::QueryRows* out = request.add_policies();
    out->set_policy_id(rows.policy_id.value());
    out->set_rows(static_cast<uint32_t>(rows.rows));
    out->set_obs_dtype(static_cast<v1::DType>(rows.obs_dtype));
    out->set_obs(Bytes(rows.obs));
    out->set_action_mask(Bytes(rows.action_mask));
    out->mutable_agent_slots()->Add(rows.agent_slots.begin(), rows.agent_slots.end());
    out->set_state_in(Bytes(rows.state_in));
  }
  return request;
}

void ToProto(const serving::ActionAnswer& answer, v1::ComputeActionsReply* reply) {
  reply->Clear();
  for (const serving::PolicyActions& actions : answer) {
    v1::QueryActions* out = reply->add_policies();
    out->set_policy_id(actions.policy_id.value());
    *out->mutable_version() = ToProto(actions.version);
    out->set_rows(static_cast<uint32_t>(actions.rows));
    for (const tensor::DType dtype : actions.word_dtypes) out->add_action_dtypes(static_cast<v1::DType>(dtype));
    out->set_actions(Bytes(absl::MakeConstSpan(actions.actions)));
    out->set_sampled_actions(Bytes(absl::MakeConstSpan(actions.sampled_actions)));
    out->mutable_action_logp()->Add(actions.logp.begin(), actions.logp.end());
    out->set_state_out(Bytes(absl::MakeConstSpan(actions.state_out)));
  }
}

absl::StatusOr<serving::ActionAnswer> FromProto(const v1::ComputeActionsReply& reply,
                                                const serving::ActionQuery& query) {
  if (static_cast<size_t>(reply.policies_size()) != query.policies.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer is of ", reply.policies_size(), " policies, expected ", query.policies.size()));
  }
  serving::ActionAnswer answer;
  for (size_t i = 0; i < query.policies.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(serving::PolicyActions actions,
                            ToActions(reply.policies(static_cast<int>(i)), query.policies[i]));
    answer.push_back(std::move(actions));
  }
  return answer;
}

std::vector<policy::PolicyId> FromProto(const v1::DescribePoliciesRequest& request) {
  std::vector<policy::PolicyId> ids;
  for (const std::string& id : request.policy_ids()) ids.emplace_back(id);
  return ids;
}

v1::DescribePoliciesReply ToProto(const serving::PolicyDescriptions& descriptions) {
  v1::DescribePoliciesReply reply;
  reply.mutable_agent_ids()->Add(descriptions.agent_ids.begin(), descriptions.agent_ids.end());
  for (const serving::PolicyDescription& policy : descriptions.policies) {
    v1::PolicyDescription* out = reply.add_policies();
    out->set_policy_id(policy.policy_id.value());
    if (policy.version != policy::WeightVersion()) *out->mutable_version() = ToProto(policy.version);
    out->set_observation_space(policy.observation_space);
    out->set_action_space(policy.action_space);
    out->set_obs_dtype(static_cast<v1::DType>(policy.obs_dtype));
    out->set_obs_size(static_cast<uint32_t>(policy.observation_size));
    out->set_mask_size(static_cast<uint32_t>(policy.mask_size));
    out->set_state_size(static_cast<uint32_t>(policy.state_size));
    for (const tensor::DType dtype : policy.word_dtypes) out->add_action_dtypes(static_cast<v1::DType>(dtype));
    out->set_needs_agent_slots(policy.needs_agent_slots);
    out->mutable_agent_slots()->Add(policy.agent_slots.begin(), policy.agent_slots.end());
  }
  return reply;
}

absl::StatusOr<serving::PolicyDescriptions> FromProto(const v1::DescribePoliciesReply& reply) {
  serving::PolicyDescriptions descriptions;
  descriptions.agent_ids.assign(reply.agent_ids().begin(), reply.agent_ids().end());
  for (const v1::PolicyDescription& in : reply.policies()) {
    serving::PolicyDescription& policy = descriptions.policies.emplace_back();
    policy.policy_id = policy::PolicyId(in.policy_id());
    policy.version = FromProto(in.version());
    policy.observation_space = in.observation_space();
    policy.action_space = in.action_space();
    policy.obs_dtype = ToDType(in.obs_dtype());
    policy.observation_size = in.obs_size();
    policy.mask_size = in.mask_size();
    policy.state_size = in.state_size();
    TROUPE_ASSIGN_OR_RETURN(policy.word_dtypes, ToWordDTypes(in.policy_id(), in.action_dtypes()));
    policy.needs_agent_slots = in.needs_agent_slots();
    policy.agent_slots.assign(in.agent_slots().begin(), in.agent_slots().end());
    for (const int32_t slot : policy.agent_slots) {
      if (slot >= 0 && slot < reply.agent_ids_size()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the answer names agent slot ", slot, " of ", reply.agent_ids_size(), " agents"));
    }
  }
  return descriptions;
}

}  // namespace troupe::rpc
