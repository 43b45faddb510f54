#include "lib/policy/policy_mapping.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/base/traceback.h"
#include "lib/policy/mapping_function.h"
#include "lib/policy/python_callable.h"

namespace troupe::policy {
namespace {

/// One T for each agent of the run, by its slot.
template <typename T>
using ByAgentSlot = base::IndexedVector<base::AgentSlot, T>;

std::string IdText(absl::Span<const PolicyId> ids) {
  return absl::StrJoin(ids, ", ", [](std::string* out, const PolicyId& id) { out->append(id.value()); });
}

/// What one is chosen from.
struct Candidates {
  std::vector<PolicySlot> policies;
  std::vector<PolicyId> ids;  ///< of `policies`, for a function
};

/// What a rule's policies are drawn from.
struct Choice {
  std::shared_ptr<const Candidates> among;    ///< of rules without policies one for all
  std::vector<double> bounds;                 ///< sums of the weights up to and with each policy
  std::string function_name;                  ///< empty: one is drawn
  const MappingFunction* function = nullptr;  ///< null where it is in another process
  int32_t rule = 0;                           ///< its place
};

absl::Status NoSuchAgent(base::AgentSlot agent_slot, size_t num_agents) {
  return absl::InvalidArgumentError(absl::StrCat("policy_mapping: got agent slot ", agent_slot.value(),
                                                 ", expected 0 to ", static_cast<int64_t>(num_agents) - 1));
}

/// Rules have no memory: which of them an agent has is known once for all.
class RuleMapping final : public PolicyMapping {
 public:
  RuleMapping(ByAgentSlot<std::shared_ptr<const Choice>> by_agent_slot, absl::Span<const std::string> agent_ids,
              BySlot<PolicyId> policies)
      : by_agent_slot_(std::move(by_agent_slot)),
        agent_ids_(std::vector<std::string>(agent_ids.begin(), agent_ids.end())),
        policies_(std::move(policies)) {}

  absl::StatusOr<PolicySlot> Map(const base::AgentId& agent_id, base::AgentSlot agent_slot,
                                 const EpisodeInfo& episode) const override {
    if (!by_agent_slot_.Contains(agent_slot)) return NoSuchAgent(agent_slot, by_agent_slot_.size());
    const Choice& choice = *by_agent_slot_[agent_slot];
    if (!choice.function_name.empty()) return Ask(choice, agent_id, agent_slot, episode);
    const std::vector<PolicySlot>& policies = choice.among->policies;
    if (policies.size() == 1) return policies[0];
    base::PhiloxSequence random(base::PhiloxKey::Make(episode.seed, base::RandomStream::kMapping),
                                {.env_id = episode.env_id.value(),
                                 .episode = episode.episode,
                                 .slot = static_cast<uint32_t>(agent_slot.value())});
    const double drawn = random.Uniform() * choice.bounds.back();
    const auto place = std::upper_bound(choice.bounds.begin(), choice.bounds.end(), drawn);
    // Rounding may put the product at the last bound.
    const auto last = static_cast<std::ptrdiff_t>(policies.size()) - 1;
    return policies[static_cast<size_t>(std::min(place - choice.bounds.begin(), last))];
  }

  bool KnownAhead(base::AgentSlot agent_slot) const override {
    if (!by_agent_slot_.Contains(agent_slot)) return false;
    const Choice& choice = *by_agent_slot_[agent_slot];
    return choice.function_name.empty() || choice.function != nullptr;
  }

 private:
  absl::StatusOr<PolicySlot> Ask(const Choice& choice, const base::AgentId& agent_id, base::AgentSlot agent_slot,
                                 const EpisodeInfo& episode) const {
    const absl::StatusOr<PolicyId> answer =
        choice.function == nullptr
            ? AskHost(choice, agent_id, episode)
            : choice.function->map({agent_id, agent_slot, episode, choice.rule, episode.worker, choice.among->ids});
    if (!answer.ok()) {
      const absl::Status failed(answer.status().code(),
                                absl::StrCat("mapping function \"", choice.function_name,
                                             "\": ", base::LogSafe(std::string(answer.status().message()), 2048)));
      return base::WithTraceback(failed, base::TracebackOf(answer.status()));
    }
    const std::vector<PolicyId>& ids = choice.among->ids;
    const auto found = std::find(ids.begin(), ids.end(), *answer);
    if (found != ids.end()) return choice.among->policies[static_cast<size_t>(found - ids.begin())];
    return absl::InvalidArgumentError(absl::StrCat("mapping function \"", choice.function_name, "\": got policy \"",
                                                   base::LogSafe(answer->value(), 64), "\", expected one of ",
                                                   IdText(ids)));
  }

  absl::StatusOr<PolicyId> AskHost(const Choice& choice, const base::AgentId& agent_id,
                                   const EpisodeInfo& episode) const {
    if (episode.host == nullptr) {
      return absl::FailedPreconditionError("there is no Python process to ask; expected a worker or an evaluation");
    }
    std::vector<std::pair<std::string_view, std::string_view>> mapped;
    for (const MappedAgent& agent : episode.agents) {
      if (!by_agent_slot_.Contains(agent.slot)) return NoSuchAgent(agent.slot, by_agent_slot_.size());
      mapped.emplace_back(agent_ids_[agent.slot], policies_[agent.policy].value());
    }
    return episode.host->Ask({choice.function_name, agent_id, episode, choice.among->ids, mapped});
  }

  /// Who maps agents may have made its list of them from something else than the rules': not every slot is here.
  const ByAgentSlot<std::shared_ptr<const Choice>> by_agent_slot_;
  const ByAgentSlot<std::string> agent_ids_;
  const BySlot<PolicyId> policies_;
};

/// What rules name policies by.
class Policies {
 public:
  explicit Policies(const BySlot<PolicyId>& ids) : ids_(ids), all_(std::make_shared<Candidates>()) {
    for (const PolicySlot slot : ids.ids()) {
      if (ids[slot].value().empty()) continue;
      by_id_.emplace(ids[slot].value(), slot);
      all_->policies.push_back(slot);
      all_->ids.push_back(ids[slot]);
    }
  }
  absl::Span<const PolicyId> ids() const { return ids_.values(); }
  const std::shared_ptr<Candidates>& all() const { return all_; }
  std::optional<PolicySlot> Find(const PolicyId& id) const {
    const auto found = by_id_.find(id.value());
    return found == by_id_.end() ? std::nullopt : std::optional<PolicySlot>(found->second);
  }

 private:
  const BySlot<PolicyId>& ids_;
  const std::shared_ptr<Candidates> all_;
  std::unordered_map<std::string_view, PolicySlot> by_id_;
};

absl::Status CheckRuleSizes(const MappingRule& rule) {
  const auto too_long = [](const char* what, size_t size, size_t most, const char* unit) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_mapping: ", what, " with ", size, " ", unit, ", expected at most ", most));
  };
  if (rule.agent_glob.size() > kMaxAgentGlobBytes) {
    return too_long("got agents", rule.agent_glob.size(), kMaxAgentGlobBytes, "characters");
  }
  if (rule.policies.size() > kMaxPoliciesOfRule) {
    return too_long("got a rule", rule.policies.size(), kMaxPoliciesOfRule, "policies");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Choice>> Resolve(const MappingRule& rule, int32_t place,
                                                      const Policies& policies) {
  TROUPE_RETURN_IF_ERROR(CheckRuleSizes(rule));
  auto choice = std::make_shared<Choice>();
  auto among = std::make_shared<Candidates>();
  choice->rule = place;
  double sum = 0;
  for (const WeightedPolicy& weighted : rule.policies) {
    const std::optional<PolicySlot> found = policies.Find(weighted.policy);
    if (!found.has_value()) {
      return absl::NotFoundError(absl::StrCat("policy_mapping: \"", rule.agent_glob, "\" maps to policy \"",
                                              weighted.policy.value(), "\"; the policies are ",
                                              IdText(policies.ids())));
    }
    if (!(weighted.weight > 0) || !std::isfinite(weighted.weight)) {
      return absl::InvalidArgumentError(absl::StrCat("policy_mapping: \"", rule.agent_glob, "\" gives policy \"",
                                                     weighted.policy.value(), "\" the weight ", weighted.weight,
                                                     ", expected a finite number above 0"));
    }
    among->policies.push_back(*found);
    among->ids.push_back(weighted.policy);
    choice->bounds.push_back(sum += weighted.weight);
  }
  if (!rule.function.empty()) {
    if (const absl::Status known = CheckMappingFunction(rule.function); !known.ok()) {
      return absl::Status(known.code(),
                          absl::StrCat("policy_mapping: \"", rule.agent_glob, "\": ", std::string(known.message())));
    }
    choice->function_name = rule.function;
    if (!IsPythonName(rule.function)) choice->function = *FindMappingFunction(rule.function);
    if (rule.policies.empty()) among = policies.all();
  }
  if (among->policies.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_mapping: \"", rule.agent_glob, "\" has no policy, expected at least one"));
  }
  choice->among = std::move(among);
  return choice;
}

}  // namespace

bool GlobMatches(std::string_view glob, std::string_view text) {
  // The last `*` seen is the only place worth going back to.
  size_t g = 0, t = 0;
  size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_text = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

const MappingRule* FirstMatch(absl::Span<const MappingRule> rules, std::string_view agent_id) {
  for (const MappingRule& rule : rules) {
    if (GlobMatches(rule.agent_glob, agent_id)) return &rule;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PolicyMapping>> MakeRuleMapping(absl::Span<const MappingRule> rules,
                                                               absl::Span<const std::string> agent_ids,
                                                               const BySlot<PolicyId>& policies) {
  if (rules.size() > kMaxMappingRules) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_mapping: got ", rules.size(), " rules, expected at most ", kMaxMappingRules));
  }
  const Policies known(policies);
  std::vector<std::shared_ptr<const Choice>> choices;
  for (size_t place = 0; place < rules.size(); ++place) {
    TROUPE_ASSIGN_OR_RETURN(choices.emplace_back(), Resolve(rules[place], static_cast<int32_t>(place), known));
  }
  ByAgentSlot<std::shared_ptr<const Choice>> by_agent_slot;
  for (const std::string& agent : agent_ids) {
    const MappingRule* const rule = FirstMatch(rules, agent);
    if (rule == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("got no rule for agent \"", agent,
                                                     "\", expected one for every agent; add it, or a last rule \"*\""));
    }
    by_agent_slot.push_back(choices[static_cast<size_t>(rule - rules.data())]);
  }
  return std::make_unique<RuleMapping>(std::move(by_agent_slot), agent_ids, policies);
}

}  // namespace troupe::policy
