#include "lib/cli/query_agents.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"

namespace troupe::cli {
namespace {

using serving::PolicyDescription;
using serving::PolicyDescriptions;

constexpr size_t kMaxNamed = 8;

absl::StatusOr<std::vector<int32_t>> SlotsOf(const PolicyDescriptions& run, const std::vector<std::string>& agents) {
  std::vector<int32_t> slots;
  for (const std::string& agent : agents) {
    const auto found = std::find(run.agent_ids.begin(), run.agent_ids.end(), agent);
    if (found == run.agent_ids.end()) return base::NoSuchName("agent", agent, run.agent_ids);
    slots.push_back(static_cast<int32_t>(found - run.agent_ids.begin()));
  }
  return slots;
}

bool Plays(const PolicyDescription& policy, int32_t slot) {
  return std::binary_search(policy.agent_slots.begin(), policy.agent_slots.end(), slot);
}

std::vector<std::string> Names(const std::vector<const PolicyDescription*>& policies) {
  std::vector<std::string> names;
  for (const PolicyDescription* policy : policies) names.push_back(policy->policy_id.value());
  return names;
}

/// The one that is meant where nobody said.
absl::StatusOr<const PolicyDescription*> OnlyPolicy(const PolicyDescriptions& run,
                                                    const std::vector<std::string>& agents,
                                                    const std::vector<int32_t>& slots) {
  std::vector<const PolicyDescription*> found;
  for (const PolicyDescription& policy : run.policies) {
    const bool plays = std::all_of(slots.begin(), slots.end(), [&](int32_t slot) { return Plays(policy, slot); });
    if (plays) found.push_back(&policy);
  }
  if (found.size() == 1) return found[0];
  const std::string whom = absl::StrJoin(agents, ", ");
  if (found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--agent: no policy plays ", whom, "; ask for each by itself"));
  }
  return absl::InvalidArgumentError(absl::StrCat("expected --policy with one of those that ",
                                                 agents.empty() ? "there are" : absl::StrCat("may play ", whom), ": ",
                                                 base::FewOf(Names(found), kMaxNamed)));
}

}  // namespace

absl::StatusOr<AskedPolicy> ResolveAgents(const PolicyDescriptions& run, const std::string& policy_id,
                                          const std::vector<std::string>& agents, int64_t rows) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<int32_t> slots, SlotsOf(run, agents));
  const auto count = static_cast<int64_t>(slots.size());
  if (count > 1 && count != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("--agent: ", count, " agents, expected one for all rows, or ", rows, " as in --obs"));
  }
  const PolicyDescription* policy = nullptr;
  if (policy_id.empty()) {
    TROUPE_ASSIGN_OR_RETURN(policy, OnlyPolicy(run, agents, slots));
  } else {
    std::vector<std::string> ids;
    for (const PolicyDescription& candidate : run.policies) {
      ids.push_back(candidate.policy_id.value());
      if (ids.back() == policy_id) policy = &candidate;
    }
    if (policy == nullptr) return base::NoSuchName("policy", policy_id, ids);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (Plays(*policy, slots[i])) continue;
    std::vector<std::string> players;
    for (const int32_t slot : policy->agent_slots) players.push_back(run.agent_ids[static_cast<size_t>(slot)]);
    return absl::InvalidArgumentError(
        absl::StrCat("--agent: policy \"", policy->policy_id.value(), "\" does not play ", agents[i], "; ",
                     players.empty() ? "nobody is mapped to it" : "its agents are " + base::FewOf(players, kMaxNamed)));
  }
  AskedPolicy asked{policy->policy_id, {}};
  if (!policy->needs_agent_slots) return asked;
  if (count == 1) slots.resize(static_cast<size_t>(rows), slots[0]);
  asked.agent_slots = std::move(slots);
  return asked;
}

}  // namespace troupe::cli
