// What a query asks for: which policy, which weights, whose rows; and why it is refused.

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/check_rows.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/served_policy.h"

namespace troupe::serving {
namespace {

constexpr size_t kMaxPoliciesNamed = 8;  // in an error

std::string ToText(policy::WeightVersion version) {
  return absl::StrCat("version ", version.n, " of learner epoch ", version.learner_epoch);
}

}  // namespace

absl::StatusOr<const QueryEngine::Route*> QueryEngine::Find(const Routes& routes, const policy::PolicyId& id) {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(id.value()));
  const auto found = routes.by_id.find(id.value());
  if (found != routes.by_id.end()) return &found->second;
  std::vector<std::string> ids;
  for (const auto& [name, route] : routes.by_id) ids.push_back(name);
  const std::string nearest = base::NearestName(id.value(), ids);
  std::stable_partition(ids.begin(), ids.end(), [&nearest](const std::string& name) { return name == nearest; });
  return absl::NotFoundError(
      absl::StrCat("there is no policy \"", id.value(), "\" among the ", ids.size(), " here",
                   nearest.empty() ? ": " : absl::StrCat(", did you mean \"", nearest, "\"? There are: "),
                   ids.empty() ? "none" : base::FewOf(ids, kMaxPoliciesNamed)));
}

absl::StatusOr<const QueryEngine::Route*> QueryEngine::FindByAgents(const Routes& routes, const QueryRows& rows,
                                                                    Part* part) {
  const auto count = static_cast<int64_t>(rows.agent_ids.size());
  if (count != 1 && count != rows.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("agent_ids has ", count, " ids, expected one for all rows, or ", rows.rows));
  }
  if (!rows.agent_slots.empty()) {
    return absl::InvalidArgumentError("got agent_ids and agent_slots, expected one of them");
  }
  const std::vector<std::string>* players = nullptr;  // of the first agent
  for (const std::string& agent : rows.agent_ids) {
    const auto found = routes.slot_of.find(agent);
    if (found == routes.slot_of.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no agent \"", base::LogSafe(agent, 64), "\" among the ", routes.agent_ids.size(), " of the run",
          routes.agent_ids.empty() ? "" : ": ", base::FewOf(routes.agent_ids, kMaxPoliciesNamed)));
    }
    part->agent_slots.push_back(found->second);
    const std::vector<std::string>& of_agent = routes.players[static_cast<size_t>(found->second)];
    if (players == nullptr) players = &of_agent;
  }
  std::string id = rows.policy_id.value();
  if (id.empty()) {
    if (players->size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "agent \"", rows.agent_ids[0], "\" may be played by ",
          players->empty()
              ? "no policy"
              : absl::StrJoin(players->begin(), players->begin() + std::min(players->size(), kMaxPoliciesNamed), ", "),
          ", expected policy_id to say which"));
    }
    id = players->front();
  }
  TROUPE_ASSIGN_OR_RETURN(const Route* const route, Find(routes, policy::PolicyId(id)));
  for (size_t i = 0; i < part->agent_slots.size(); ++i) {
    if (std::binary_search(route->agent_slots.begin(), route->agent_slots.end(), part->agent_slots[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id, "\" does not play agent \"", rows.agent_ids[i],
                                                   "\" by the run's mapping; ask for rows of another policy apart"));
  }
  if (count == 1) part->agent_slots.resize(static_cast<size_t>(std::max<int64_t>(rows.rows, 1)), part->agent_slots[0]);
  if (route->policy->spec().agent_id_size == 0) part->agent_slots.clear();
  return route;
}

absl::Status QueryEngine::PickVersion(const Route& route, const QueryRows& rows, Part* part) {
  const std::string& asked = rows.version;
  part->policy = route.policy;
  const bool newest = asked.empty() || asked == "latest";
  if (!newest) {
    const auto label = route.labels.find(asked);
    const bool is_number = absl::SimpleAtoi(asked, &part->exact_version) && part->exact_version >= 0;
    bool found = label != route.labels.end();
    if (found) {
      part->policy = label->second;
      part->exact_version = -1;
    } else if (is_number) {
      found = route.policy->newest().version.n == part->exact_version && !route.policy->newest().empty();
      for (auto each = route.labels.begin(); !found && each != route.labels.end(); ++each) {
        found = each->second->newest().version.n == part->exact_version;
        if (found) part->policy = each->second;
      }
    }
    if (!found) {
      std::string there = absl::StrCat("latest (", route.policy->newest().version.n, ")");
      for (const auto& [name, policy] : route.labels) {
        absl::StrAppend(&there, ", ", name, " (", policy->newest().version.n, ")");
      }
      return absl::NotFoundError(absl::StrCat("policy \"", route.policy->spec().id.value(), "\" has no version \"",
                                              base::LogSafe(asked, 64), "\" here, expected one of ", there));
    }
  }
  const policy::WeightVersion there = part->policy->newest().version;
  if (!(there < rows.min_version)) return absl::OkStatus();
  return absl::Status(newest ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("policy \"", route.policy->spec().id.value(), "\" has ", ToText(there), " here",
                                   newest ? "" : absl::StrCat(" under \"", asked, "\""), ", expected at least ",
                                   ToText(rows.min_version), newest ? "; ask again later, or another server" : ""));
}

absl::StatusOr<QueryEngine::Part> QueryEngine::CheckPart(const Routes& routes, const ActionQuery& query,
                                                         const QueryRows& rows) {
  Part part;
  part.rows = rows;
  TROUPE_ASSIGN_OR_RETURN(const Route* const route,
                          rows.agent_ids.empty() ? Find(routes, rows.policy_id) : FindByAgents(routes, rows, &part));
  TROUPE_RETURN_IF_ERROR(PickVersion(*route, rows, &part));
  const ServedPolicy& policy = *part.policy;
  const policy::PolicySpec& spec = policy.spec();
  if (!rows.agent_ids.empty()) part.rows.agent_slots = part.agent_slots;
  if (rows.state_tag != 0 && !rows.state_in.empty() && rows.state_tag != policy.state_tag()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", spec.id.value(), "\": state_in is of another policy or network, its state_tag is ",
                     absl::Hex(rows.state_tag), ", expected ",
                     policy.state_tag() == 0 ? std::string("none: the policy remembers nothing")
                                             : absl::StrCat(absl::Hex(policy.state_tag()))));
  }
  TROUPE_RETURN_IF_ERROR(CheckRows(spec, policy.leaves(), part.rows, {routes.agent_ids, route->agent_slots}));
  TROUPE_ASSIGN_OR_RETURN(part.outputs, ParseOutputs(spec, policy.value_network().has_value(), query.outputs));
  if (query.seed.has_value()) {
    if (policy.runs_elsewhere()) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy \"", spec.id.value(), "\" is in Python and draws its own numbers, expected no seed"));
    }
    // A stream of its own, as the server's own seed has it.
    const base::PhiloxKey key = base::PhiloxKey::Make(*query.seed, base::RandomStream::kQuery);
    part.seed = (static_cast<uint64_t>(key.k1) << 32) | key.k0;
  }
  part.deterministic = query.deterministic;
  return part;
}

absl::StatusOr<std::vector<QueryEngine::Part>> QueryEngine::Check(const Routes& routes, const ActionQuery& query) {
  if (query.policies.empty()) return absl::InvalidArgumentError("the query asks no policy, expected at least one");
  if (query.policies.size() > static_cast<size_t>(kMaxQueryRows)) {
    return absl::ResourceExhaustedError(absl::StrCat("the query asks ", query.policies.size(),
                                                     " times, expected at most ", kMaxQueryRows, " rows in all"));
  }
  int64_t total_rows = 0;
  for (const QueryRows& rows : query.policies) total_rows += rows.rows;
  if (total_rows > kMaxQueryRows) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the query has ", total_rows, " rows, expected at most ", kMaxQueryRows));
  }
  std::vector<Part> parts;
  parts.reserve(query.policies.size());
  int64_t answer_bytes = 0;
  for (const QueryRows& rows : query.policies) {
    TROUPE_ASSIGN_OR_RETURN(Part part, CheckPart(routes, query, rows));
    const policy::PolicySpec& spec = part.policy->spec();
    int64_t words = 2 * spec.action_words() + 1 + spec.actor_state_size();
    if (part.outputs.Has(QueryOutput::kLogits)) words += LogitsSize(spec);
    if (part.outputs.Has(QueryOutput::kMean)) words += MeanSize(spec);
    if (part.outputs.Has(QueryOutput::kValue)) words += 1;
    answer_bytes += rows.rows * 4 * words;
    parts.push_back(std::move(part));
  }
  if (answer_bytes > kMaxAnswerBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer would have ", answer_bytes, " bytes, expected at most ", kMaxAnswerBytes));
  }
  const uint64_t request = NextRequest(query);
  int64_t first_row = 0;
  for (Part& part : parts) {
    part.request = request;
    part.first_row = first_row;
    first_row += part.rows.rows;
  }
  return parts;
}

}  // namespace troupe::serving
