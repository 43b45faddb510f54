#include "lib/rpc/codec/policy_change_codec.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {
namespace {

using policy::PolicyId;

/// An id that anybody may have sent.
absl::StatusOr<PolicyId> IdOf(const std::string& text) {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(text));
  return PolicyId(text);
}

/// The same where it may be absent.
absl::StatusOr<PolicyId> OptionalIdOf(const std::string& text) {
  if (text.empty()) return PolicyId();
  return IdOf(text);
}

absl::StatusOr<std::vector<PolicyId>> IdsOf(const v1::PolicyIdsRequest& request) {
  if (static_cast<size_t>(request.ids_size()) > policy::PolicyTable::kMaxPolicies) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", request.ids_size(), " policy ids, expected at most ", policy::PolicyTable::kMaxPolicies));
  }
  std::vector<PolicyId> ids;
  for (const std::string& id : request.ids()) {
    TROUPE_ASSIGN_OR_RETURN(ids.emplace_back(), IdOf(id));
  }
  return ids;
}

/// A name or a path longer than any that there is.
absl::Status CheckText(const char* what, const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": got ", text.size(), " bytes, expected at most ", max_bytes));
}

absl::StatusOr<policy::AddPolicy> AddOf(const v1::AddPolicyRequest& request) {
  policy::AddPolicy add;
  TROUPE_ASSIGN_OR_RETURN(add.id, IdOf(request.id()));
  TROUPE_ASSIGN_OR_RETURN(add.like, OptionalIdOf(request.like()));
  TROUPE_ASSIGN_OR_RETURN(add.copy_of, OptionalIdOf(request.copy_of()));
  TROUPE_RETURN_IF_ERROR(CheckText("class", request.class_(), kMaxPathBytes));
  TROUPE_RETURN_IF_ERROR(CheckText("import_from", request.import_from(), kMaxPathBytes));
  add.policy_class = request.class_();
  add.import_from = request.import_from();
  add.trains = !request.frozen();
  add.replace = request.replace();
  return add;
}

absl::StatusOr<policy::SetPolicy> SetOf(const v1::SetPolicyRequest& request) {
  constexpr size_t kMost = policy::PolicyTable::kMaxSettings;
  policy::SetPolicy set;
  TROUPE_ASSIGN_OR_RETURN(set.id, IdOf(request.id()));
  if (request.settings().empty() || static_cast<size_t>(request.settings_size()) > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("settings: got ", request.settings_size(), ", expected 1 to ", kMost));
  }
  for (const std::string& setting : request.settings()) {
    TROUPE_RETURN_IF_ERROR(CheckText("settings", setting, policy::PolicyTable::kMaxSettingBytes));
    set.settings.push_back(setting);
  }
  return set;
}

absl::StatusOr<policy::SetMapping> MappingOf(const v1::PolicyMapping& mapping) {
  if (mapping.per_agent() || mapping.rules().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_mapping: got ", mapping.per_agent() ? "per_agent" : "no rules", ", expected rules"));
  }
  if (static_cast<size_t>(mapping.rules_size()) > policy::kMaxMappingRules) {
    return absl::InvalidArgumentError(absl::StrCat("policy_mapping: got ", mapping.rules_size(),
                                                   " rules, expected at most ", policy::kMaxMappingRules));
  }
  policy::SetMapping set;
  for (const v1::PolicyMappingRule& rule : mapping.rules()) {
    policy::MappingRule& out = set.rules.emplace_back();
    TROUPE_RETURN_IF_ERROR(CheckText("policy_mapping: agents", rule.agents(), policy::kMaxAgentGlobBytes));
    TROUPE_RETURN_IF_ERROR(CheckText("policy_mapping: function", rule.function(), kMaxPathBytes));
    if (static_cast<size_t>(rule.policies_size()) > policy::PolicyTable::kMaxPolicies) {
      return absl::InvalidArgumentError(absl::StrCat("policy_mapping: got a rule with ", rule.policies_size(),
                                                     " policies, expected at most ",
                                                     policy::PolicyTable::kMaxPolicies));
    }
    out.agent_glob = rule.agents();
    out.function = rule.function();
    for (const v1::WeightedPolicy& weighted : rule.policies()) {
      TROUPE_ASSIGN_OR_RETURN(PolicyId id, IdOf(weighted.policy()));
      out.policies.push_back({std::move(id), weighted.weight()});
    }
  }
  return set;
}

void Fill(const std::vector<PolicyId>& ids, v1::PolicyIdsRequest* request) {
  for (const PolicyId& id : ids) request->add_ids(id.value());
}

/// Writes each kind of change into a request.
struct Writer {
  v1::ChangePoliciesRequest* request;

  void operator()(const policy::AddPolicy& change) const {
    v1::AddPolicyRequest* add = request->mutable_add();
    add->set_id(change.id.value());
    add->set_like(change.like.value());
    add->set_class_(change.policy_class);
    add->set_copy_of(change.copy_of.value());
    add->set_import_from(change.import_from);
    add->set_frozen(!change.trains);
    add->set_replace(change.replace);
  }
  void operator()(const policy::RemovePolicy& change) const { request->mutable_remove()->set_id(change.id.value()); }
  void operator()(const policy::SetPoliciesTrain& change) const {
    Fill(change.ids, change.trains ? request->mutable_thaw() : request->mutable_freeze());
  }
  void operator()(const policy::SetTrainable& change) const { Fill(change.ids, request->mutable_set_trainable()); }
  void operator()(const policy::SetPolicy& change) const {
    request->mutable_set()->set_id(change.id.value());
    for (const std::string& setting : change.settings) request->mutable_set()->add_settings(setting);
  }
  void operator()(const policy::SetMapping& change) const {
    v1::PolicyMapping* mapping = request->mutable_set_mapping();
    for (const policy::MappingRule& rule : change.rules) {
      v1::PolicyMappingRule* out = mapping->add_rules();
      out->set_agents(rule.agent_glob);
      out->set_function(rule.function);
      for (const policy::WeightedPolicy& weighted : rule.policies) {
        v1::WeightedPolicy* policy = out->add_policies();
        policy->set_policy(weighted.policy.value());
        policy->set_weight(weighted.weight);
      }
    }
  }
};

}  // namespace

v1::ChangePoliciesRequest ToProto(const policy::PolicyChange& change) {
  v1::ChangePoliciesRequest request;
  std::visit(Writer{&request}, change);
  return request;
}

absl::StatusOr<policy::PolicyChange> FromProto(const v1::ChangePoliciesRequest& request) {
  switch (request.change_case()) {
    case v1::ChangePoliciesRequest::kAdd:
      return AddOf(request.add());
    case v1::ChangePoliciesRequest::kRemove: {
      TROUPE_ASSIGN_OR_RETURN(PolicyId id, IdOf(request.remove().id()));
      return policy::RemovePolicy{std::move(id)};
    }
    case v1::ChangePoliciesRequest::kFreeze:
    case v1::ChangePoliciesRequest::kThaw: {
      const bool trains = request.change_case() == v1::ChangePoliciesRequest::kThaw;
      TROUPE_ASSIGN_OR_RETURN(std::vector<PolicyId> ids, IdsOf(trains ? request.thaw() : request.freeze()));
      return policy::SetPoliciesTrain{std::move(ids), trains};
    }
    case v1::ChangePoliciesRequest::kSetTrainable: {
      TROUPE_ASSIGN_OR_RETURN(std::vector<PolicyId> ids, IdsOf(request.set_trainable()));
      return policy::SetTrainable{std::move(ids)};
    }
    case v1::ChangePoliciesRequest::kSet:
      return SetOf(request.set());
    case v1::ChangePoliciesRequest::kSetMapping:
      return MappingOf(request.set_mapping());
    case v1::ChangePoliciesRequest::CHANGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("got no change of policies, expected one");
}

}  // namespace troupe::rpc
