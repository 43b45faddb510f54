#include "lib/learner/score.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::learner {
namespace {

constexpr std::string_view kPolicyPrefix = "policy:";
constexpr std::string_view kAgentPrefix = "agent:";

}  // namespace

std::string Score::Text() const {
  switch (kind) {
    case Kind::kSum:
      return "sum";
    case Kind::kMean:
      return "mean";
    case Kind::kPolicy:
      return absl::StrCat(std::string(kPolicyPrefix), name);
    case Kind::kAgents:
      return absl::StrCat(std::string(kAgentPrefix), name);
  }
  return "";
}

std::optional<Score> ParseScore(std::string_view text) {
  if (text == "sum") return Score{Score::Kind::kSum, ""};
  if (text == "mean") return Score{Score::Kind::kMean, ""};
  const auto named = [text](std::string_view prefix, Score::Kind kind) -> std::optional<Score> {
    if (text.substr(0, prefix.size()) != prefix || text.size() == prefix.size()) return std::nullopt;
    return Score{kind, std::string(text.substr(prefix.size()))};
  };
  if (std::optional<Score> policy = named(kPolicyPrefix, Score::Kind::kPolicy)) return policy;
  return named(kAgentPrefix, Score::Kind::kAgents);
}

std::optional<double> ScoreOf(const Score& score, const EpisodeStats& stats, const policy::PolicyTable& table) {
  switch (score.kind) {
    case Score::Kind::kSum:
      return stats.return_sum.mean();
    case Score::Kind::kMean:
      return stats.return_mean.mean();
    case Score::Kind::kPolicy: {
      const std::optional<policy::PolicySlot> slot = table.FindSlot(policy::PolicyId(score.name));
      if (!slot.has_value() || !stats.policies.Contains(*slot)) return std::nullopt;
      return stats.policies[*slot].mean();
    }
    case Score::Kind::kAgents: {
      double sum = 0;
      int64_t count = 0;
      for (size_t slot = 0; slot < stats.agents.size() && slot < table.agent_ids().size(); ++slot) {
        if (!policy::GlobMatches(score.name, table.agent_ids()[slot])) continue;
        sum += stats.agents[slot].sum;
        count += stats.agents[slot].count;
      }
      return count == 0 ? std::nullopt : std::optional<double>(sum / static_cast<double>(count));
    }
  }
  return std::nullopt;
}

}  // namespace troupe::learner
