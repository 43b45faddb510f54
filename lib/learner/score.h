#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/episode_stats.h"
#include "lib/policy/policy_table.h"

namespace troupe::learner {

/// The return by which a run is judged (experiment.best_by, stop.episode_return). Plain value.
struct Score {
  enum class Kind : uint8_t {
    kSum,     ///< of all agents of an episode together
    kMean,    ///< over the agents that took part
    kPolicy,  ///< of the agents that a policy played
    kAgents,  ///< of the agents whose ids a glob matches
  };
  Kind kind = Kind::kSum;
  std::string name;  ///< the policy's id, or the glob

  /// "sum", "mean", "policy:ID" or "agent:GLOB".
  std::string Text() const;
  friend bool operator==(const Score& a, const Score& b) { return a.kind == b.kind && a.name == b.name; }
};

/// nullopt for a text that is none of the four, or names nothing.
std::optional<Score> ParseScore(std::string_view text);

/// The score's mean over the episodes of `stats`; nullopt where no episode has one, and for a policy that is not in the
/// run now.
std::optional<double> ScoreOf(const Score& score, const EpisodeStats& stats, const policy::PolicyTable& table);

/// A score, and what it has to reach.
struct ReturnTarget {
  Score score;
  double at_least = 0;
};

}  // namespace troupe::learner
