#pragma once

#include <memory>

#include "absl/status/status.h"
#include "lib/env/multi_agent_env.h"
#include "lib/outside/episode_book.h"

namespace troupe::outside {

/// A lane's environment: it passes on what the clients of a book report, and plays one of their episodes after the
/// other. It computes elsewhere; see rollout::OutsideWorlds for who may call what when. Not thread-safe.
class LaneEnv final : public env::MultiAgentEnv {
 public:
  /// `book` outlives it.
  explicit LaneEnv(EpisodeBook* book) : book_(book) {}

  const env::EnvSpec& spec() const override { return book_->spec(); }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;
  bool runs_elsewhere() const override { return true; }
  /// CANCELLED: no client has an episode.
  absl::Status StartReset(const env::EpisodeSeed& seed) override;
  absl::Status StartStep(env::ActionRows actions) override;
  /// CANCELLED: the world has not answered, or its client is gone: the episode is over.
  absl::Status Finish(env::StepWriter& out) override;

 private:
  EpisodeBook* const book_;
  base::EnvId env_id_{0};  ///< of the last reset
};

/// An environment that only tells its spec: what a process without a door has of a world outside. Its Reset is
/// FAILED_PRECONDITION in words.
std::unique_ptr<env::MultiAgentEnv> MakeSpecEnv(std::shared_ptr<const env::EnvSpec> spec);

}  // namespace troupe::outside
