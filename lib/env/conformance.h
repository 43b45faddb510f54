#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/env/env_rule.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

struct ConformanceLine;
struct ConformanceReport;

struct ConformanceOptions {
  uint64_t seed = 0;
  int num_envs = 4;                 ///< environment ids tried
  int episodes = 8;                 ///< episodes of each
  int64_t max_env_steps = 100'000;  ///< of an episode without max_episode_steps; more breaks EnvRule::kEpisodeEnd
  bool keep_going = false;          ///< a broken rule ends its episode alone; false: it ends the check
  /// EnvRule::kDeterminism, once broken, ends nothing: one instance plays on alone.
  bool may_differ = false;
  absl::Duration max_time = absl::InfiniteDuration();  ///< then the check ends, wherever it is
  base::Clock* clock = &base::Clock::Real();
  /// Called with each rule once, when it breaks, and with `played`, what was played so far, after each episode and
  /// once a second within one.
  std::function<void(const ConformanceLine& broken)> on_broken;
  std::function<void(const ConformanceReport& played)> on_episode;
};

/// One rule of the contract and what came of it.
struct ConformanceLine {
  EnvRule rule;
  bool ok = true;
  /// Whether anything happened that could have broken the rule; of a rule that is broken: yes. One about masks is not
  /// tried by an environment without any, and one about ends not by a check that found another rule broken before.
  bool tried = false;
  std::string detail;  ///< the first error, or what was looked at
};

/// An episode that was played to its end.
struct PlayedEpisode {
  int64_t env_steps = 0;
  std::vector<double> returns;  ///< by slot of an agent
};

struct ConformanceReport {
  std::vector<ConformanceLine> lines;  ///< one per EnvRule, in order
  std::vector<PlayedEpisode> ended;
  bool complete = false;  ///< every episode was played to its end
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  bool got_reward = false;  ///< somebody got another reward than 0, in whatever was played
  bool saw_alike = false;   ///< two agents observed the same bytes in one step

  int64_t episodes() const { return static_cast<int64_t>(ended.size()); }
  bool ok() const { return first_broken() == nullptr; }
  /// The first rule in order that is broken; null when all hold.
  const ConformanceLine* first_broken() const;
  /// The same without `rule`.
  const ConformanceLine* first_broken_but(EnvRule rule) const;
  /// "ok        observation_value  observations are …" a line, for `troupe envs check`; FAIL for a broken rule, untried
  /// for one that nothing could have broken, and partly where the check ended before all was played.
  std::string ToString() const;
};

/// Plays random actions under CheckedEnv with full bounds and compares two instances, one of which starts from other
/// episodes and writes into memory filled otherwise: the same seed and actions must give the same bytes, whatever was
/// there and whatever was played before. `make` gives a new instance each time; its error is that of the report's first
/// line.
ConformanceReport CheckConformance(const std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnv>>()>& make,
                                   const ConformanceOptions& options = {});

}  // namespace troupe::env
