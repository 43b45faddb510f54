// What there is to ask a QueryEngine.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/served_policy.h"

namespace troupe::serving {
namespace {

/// "mlp [64, 64] tanh", and of a core its numbers.
std::string NetworkText(const policy::PolicySpec& spec) {
  if (!spec.policy_class.has_weights()) return "";
  const policy::NetworkSpec& actor = spec.actor;
  return absl::StrCat(policy::KindName(actor), " [", absl::StrJoin(actor.hidden_sizes, ", "), "] ",
                      std::string(policy::ActivationName(actor.activation)),
                      actor.core.remembers() ? absl::StrCat(", ", policy::CoreText(actor)) : "");
}

PolicyDescription Describe(const ServedPolicy& policy, const std::vector<int32_t>& agent_slots,
                           const std::map<std::string, std::shared_ptr<ServedPolicy>>& labels) {
  const policy::PolicySpec& spec = policy.spec();
  PolicyDescription description;
  description.policy_id = spec.id;
  description.version = policy.newest().version;
  description.observation_space = spec.observation_space.ToString();
  description.action_space = spec.action_space.ToString();
  description.obs_dtype = spec.observation_space.flat_dtype();
  description.observation_size = spec.observation_size();
  description.mask_size = spec.mask_size();
  description.state_size = spec.actor_state_size();
  description.word_dtypes = policy.word_dtypes();
  description.needs_agent_slots = spec.agent_id_size > 0;
  description.agent_slots = agent_slots;
  description.network = NetworkText(spec);
  description.outputs = OutputNamesOf(spec, policy.value_network().has_value());
  description.logits_size = LogitsSize(spec);
  description.mean_size = MeanSize(spec);
  for (const auto& [label, labelled] : labels) description.versions.push_back({label, labelled->newest().version});
  return description;
}

/// Above what the description takes in an answer.
int64_t BytesOf(const PolicyDescription& description) {
  constexpr size_t kRest = 176;  // numbers, tags and lengths, names of outputs
  size_t labels = 0;
  for (const LabelledVersion& each : description.versions) labels += 28 + each.label.size();
  return static_cast<int64_t>(kRest + labels + description.network.size() + description.policy_id.value().size() +
                              description.observation_space.size() + description.action_space.size() +
                              description.word_dtypes.size() + 5 * description.agent_slots.size());
}

absl::Status TooMany(absl::string_view got, int64_t most) {
  return absl::ResourceExhaustedError(
      absl::StrCat(got, ", expected at most ", most, "; ask for fewer policies, by id"));
}

}  // namespace

absl::StatusOr<PolicyDescriptions> QueryEngine::DescribePolicies(const std::vector<policy::PolicyId>& ids) {
  if (ids.size() > static_cast<size_t>(kMaxQueryRows)) {
    return TooMany(absl::StrCat("the query names ", ids.size(), " policies"), kMaxQueryRows);
  }
  PolicyDescriptions answer;
  int64_t bytes = 0;
  absl::Status status;
  {
    const std::shared_ptr<const Routes> routes = CurrentRoutes();
    std::vector<const Route*> asked;
    for (const policy::PolicyId& id : ids) {
      TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(*routes, id));
      asked.push_back(route);
    }
    for (auto each = routes->by_id.begin(); ids.empty() && each != routes->by_id.end(); ++each) {
      asked.push_back(&each->second);
    }
    answer.agent_ids = routes->agent_ids;
    for (const std::string& agent : answer.agent_ids) bytes += static_cast<int64_t>(agent.size()) + 6;
    for (const Route* const route : asked) {
      answer.policies.push_back(Describe(*route->policy, route->agent_slots, route->labels));
      bytes += BytesOf(answer.policies.back());
      if (bytes > kMaxDescriptionBytes) {
        status = TooMany(absl::StrCat("the answer would have more than ", kMaxDescriptionBytes, " bytes"),
                         kMaxDescriptionBytes);
        break;
      }
    }
  }
  FreeRetired();
  if (!status.ok()) return status;
  return answer;
}

PolicyDescriptions QueryEngine::ListPolicies() {
  PolicyDescriptions answer;
  const std::shared_ptr<const Routes> routes = CurrentRoutes();
  for (const auto& [id, route] : routes->by_id) {
    PolicyDescription& policy = answer.policies.emplace_back();
    policy.policy_id = policy::PolicyId(id);
    policy.version = route.policy->newest().version;
    for (const auto& [label, labelled] : route.labels) policy.versions.push_back({label, labelled->newest().version});
  }
  return answer;
}

}  // namespace troupe::serving
