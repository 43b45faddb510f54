#include "lib/rpc/serve/query_codec.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/convert.h"

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

/// Floats of the rows, as many for each; none where they were not asked for.
absl::StatusOr<std::vector<float>> ToColumns(const v1::QueryActions& in, const std::string& bytes, int64_t rows,
                                             const char* what) {
  const size_t column_bytes = sizeof(float) * static_cast<size_t>(std::max<int64_t>(rows, 1));
  if (bytes.size() % column_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the answer of policy \"", base::LogSafe(in.policy_id(), 64),
                                                   "\" has ", bytes.size(), " bytes of ", what, ", expected ", rows,
                                                   " rows of float32"));
  }
  std::vector<float> columns(bytes.size() / sizeof(float));
  if (!columns.empty()) std::memcpy(columns.data(), bytes.data(), bytes.size());
  return columns;
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

absl::StatusOr<serving::PolicyActions> ToActions(const v1::QueryActions& in, const serving::QueryRows& asked,
                                                 const std::vector<std::string>& outputs) {
  const auto words = static_cast<size_t>(in.action_dtypes_size());
  const auto rows = static_cast<size_t>(asked.rows);
  const auto has = [&outputs](const char* name) {
    return outputs.empty() || std::find(outputs.begin(), outputs.end(), name) != outputs.end();
  };
  const size_t actions = has("action") ? rows : 0;
  const size_t sampled = has("sampled_action") ? rows : 0;
  const size_t logps = has("log_prob") ? rows : 0;
  const size_t values = !outputs.empty() && has("value") ? rows : 0;
  // Where agents were asked for, the server says which policy plays them.
  const bool named = !asked.policy_id.value().empty();
  if ((named ? in.policy_id() != asked.policy_id.value() : !policy::ValidatePolicyId(in.policy_id()).ok()) ||
      in.rows() != rows) {
    return absl::InvalidArgumentError(absl::StrCat("the answer is ", in.rows(), " rows of policy \"",
                                                   base::LogSafe(in.policy_id(), 64), "\", expected ", rows, " of \"",
                                                   asked.policy_id.value(), "\""));
  }
  if (in.actions().size() != 4 * actions * words || in.sampled_actions().size() != 4 * sampled * words ||
      static_cast<size_t>(in.action_logp_size()) != logps || static_cast<size_t>(in.values_size()) != values) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the answer of policy \"", in.policy_id(), "\" has ", in.actions().size(), " and ", in.sampled_actions().size(),
        " bytes of actions and ", in.action_logp_size(), " log-probabilities, ", in.values_size(), " values, expected ",
        rows, " rows of ", words, " words"));
  }
  serving::PolicyActions out;
  out.policy_id = policy::PolicyId(in.policy_id());
  out.version = FromProto(in.version());
  out.rows = asked.rows;
  TROUPE_ASSIGN_OR_RETURN(out.word_dtypes, ToWordDTypes(in.policy_id(), in.action_dtypes()));
  out.actions.resize(actions * words);
  out.sampled_actions.resize(sampled * words);
  CopyWords(in.actions(), &out.actions);
  CopyWords(in.sampled_actions(), &out.sampled_actions);
  out.logp.assign(in.action_logp().begin(), in.action_logp().end());
  if (has("state_out")) {
    TROUPE_ASSIGN_OR_RETURN(out.state_out, ToState(in, asked));
  }
  out.state_tag = in.state_tag();
  TROUPE_ASSIGN_OR_RETURN(out.logits, ToColumns(in, in.logits(), asked.rows, "logits"));
  TROUPE_ASSIGN_OR_RETURN(out.mean, ToColumns(in, in.mean(), asked.rows, "means"));
  out.values.assign(in.values().begin(), in.values().end());
  return out;
}

void AddVersions(const serving::PolicyDescription& policy,
                 google::protobuf::RepeatedPtrField<v1::LabelledVersion>* versions) {
  for (const serving::LabelledVersion& each : policy.versions) {
    v1::LabelledVersion* const out = versions->Add();
    out->set_label(each.label);
    *out->mutable_version() = ToProto(each.version);
  }
}

}  // namespace

serving::ActionQuery FromProto(const v1::ComputeActionsRequest& request) {
  serving::ActionQuery query;
  query.deterministic = request.deterministic();
  if (request.has_seed()) query.seed = request.seed();
  query.outputs.assign(request.outputs().begin(), request.outputs().end());
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
    rows.state_tag = in.state_tag();
    rows.version = in.version();
    rows.min_version = FromProto(in.min_version());
    rows.agent_ids.assign(in.agent_ids().begin(), in.agent_ids().end());
    query.policies.push_back(std::move(rows));
  }
  return query;
}

v1::ComputeActionsRequest ToProto(const serving::ActionQuery& query) {
  v1::ComputeActionsRequest request;
  request.set_deterministic(query.deterministic);
  if (query.seed.has_value()) request.set_seed(*query.seed);
  request.mutable_outputs()->Add(query.outputs.begin(), query.outputs.end());
  for (const serving::QueryRows& rows : query.policies) {
    v1::QueryRows* out = request.add_policies();
    out->set_policy_id(rows.policy_id.value());
    out->set_rows(static_cast<uint32_t>(rows.rows));
    out->set_obs_dtype(static_cast<v1::DType>(rows.obs_dtype));
    out->set_obs(Bytes(rows.obs));
    out->set_action_mask(Bytes(rows.action_mask));
    out->mutable_agent_slots()->Add(rows.agent_slots.begin(), rows.agent_slots.end());
    out->set_state_in(Bytes(rows.state_in));
    out->set_state_tag(rows.state_tag);
    out->set_version(rows.version);
    if (rows.min_version != policy::WeightVersion()) *out->mutable_min_version() = ToProto(rows.min_version);
    out->mutable_agent_ids()->Add(rows.agent_ids.begin(), rows.agent_ids.end());
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
    out->set_state_tag(actions.state_tag);
    out->set_logits(Bytes(absl::MakeConstSpan(actions.logits)));
    out->set_mean(Bytes(absl::MakeConstSpan(actions.mean)));
    out->mutable_values()->Add(actions.values.begin(), actions.values.end());
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
                            ToActions(reply.policies(static_cast<int>(i)), query.policies[i], query.outputs));
    answer.push_back(std::move(actions));
  }
  return answer;
}

std::vector<policy::PolicyId> FromProto(const v1::DescribePoliciesRequest& request) {
  std::vector<policy::PolicyId> ids;
  for (const std::string& id : request.policy_ids()) ids.emplace_back(id);
  return ids;
}

v1::ListPoliciesReply ToList(const serving::PolicyDescriptions& descriptions) {
  v1::ListPoliciesReply reply;
  for (const serving::PolicyDescription& policy : descriptions.policies) {
    v1::ListedPolicy* out = reply.add_policies();
    out->set_policy_id(policy.policy_id.value());
    if (policy.version != policy::WeightVersion()) *out->mutable_version() = ToProto(policy.version);
    AddVersions(policy, out->mutable_versions());
  }
  return reply;
}

serving::PolicyDescriptions FromProto(const v1::ListPoliciesReply& reply) {
  serving::PolicyDescriptions descriptions;
  for (const v1::ListedPolicy& in : reply.policies()) {
    serving::PolicyDescription& policy = descriptions.policies.emplace_back();
    policy.policy_id = policy::PolicyId(in.policy_id());
    policy.version = FromProto(in.version());
    for (const v1::LabelledVersion& each : in.versions()) {
      policy.versions.push_back({each.label(), FromProto(each.version())});
    }
  }
  return descriptions;
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
    out->set_network(policy.network);
    out->mutable_outputs()->Add(policy.outputs.begin(), policy.outputs.end());
    out->set_logits_size(static_cast<uint32_t>(policy.logits_size));
    out->set_mean_size(static_cast<uint32_t>(policy.mean_size));
    AddVersions(policy, out->mutable_versions());
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
    policy.network = in.network();
    policy.outputs.assign(in.outputs().begin(), in.outputs().end());
    policy.logits_size = in.logits_size();
    policy.mean_size = in.mean_size();
    for (const v1::LabelledVersion& each : in.versions()) {
      policy.versions.push_back({each.label(), FromProto(each.version())});
    }
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
