#include "lib/policy/policy_mapping.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::policy {
namespace {

/// Rules have no memory and no randomness: what an agent gets is known once for all.
class FixedMapping final : public PolicyMapping {
 public:
  explicit FixedMapping(std::vector<PolicySlot> by_agent_slot) : by_agent_slot_(std::move(by_agent_slot)) {}

  PolicySlot Map(std::string_view /*agent_id*/, int32_t agent_slot, const EpisodeInfo& /*episode*/) const override {
    return by_agent_slot_[static_cast<size_t>(agent_slot)];
  }

 private:
  const std::vector<PolicySlot> by_agent_slot_;
};

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

absl::StatusOr<std::unique_ptr<PolicyMapping>> MakeRuleMapping(absl::Span<const MappingRule> rules,
                                                               absl::Span<const std::string> agent_ids,
                                                               absl::Span<const PolicyId> policies) {
  std::vector<PolicySlot> rule_slots;
  for (const MappingRule& rule : rules) {
    const auto found = std::find(policies.begin(), policies.end(), rule.policy);
    if (found == policies.end()) {
      return absl::NotFoundError(absl::StrCat(
          "policy_mapping: \"", rule.agent_glob, "\" maps to policy \"", rule.policy.value(), "\"; the policies are ",
          absl::StrJoin(policies, ", ", [](std::string* out, const PolicyId& id) { out->append(id.value()); })));
    }
    rule_slots.push_back(PolicySlot(static_cast<int32_t>(found - policies.begin())));
  }
  std::vector<PolicySlot> by_agent_slot;
  for (const std::string& agent : agent_ids) {
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const MappingRule& r) { return GlobMatches(r.agent_glob, agent); });
    if (rule == rules.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy_mapping: agent \"", agent, "\" matches no rule; add one or a last rule \"*\""));
    }
    by_agent_slot.push_back(rule_slots[static_cast<size_t>(rule - rules.begin())]);
  }
  return std::make_unique<FixedMapping>(std::move(by_agent_slot));
}

}  // namespace troupe::policy
