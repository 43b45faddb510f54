#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/config/make_env.h"
#include "lib/env/env_spec.h"
#include "lib/envhost/episode_teller.h"
#include "lib/envhost/episode_tracks.h"
#include "lib/rollout/ports.h"

namespace troupe::run {

/// The callbacks of a worker's episodes (`callbacks` of a configuration). Those of an environment in Python are called
/// in its process, which keeps them by itself; for others an EpisodeTeller tells of the episodes that end. Made with
/// the collector's configuration; used by its thread.
class EpisodeCallbacks final : public rollout::EpisodeListener {
 public:
  /// `env.python.callbacks` name them. `functions` is for environments that are not in Python.
  EpisodeCallbacks(const config::EnvSettings& env, const env::EnvSpec& spec,
                   std::shared_ptr<envhost::PythonFunctions> functions);

  /// What they track: for the host pool of an environment in Python.
  const std::shared_ptr<envhost::EpisodeTracks>& tracks() const { return tracks_; }

  bool TellsEnvs() const override { return teller_ == nullptr; }
  void OnEnded(absl::Span<const sample::FinishedEpisode> episodes,
               const policy::BySlot<policy::PolicySpec>& policies) override;
  void AddTo(sample::EnvReport* report) const override;

 private:
  const std::vector<env::AgentSpec> agents_;
  const std::shared_ptr<envhost::EpisodeTracks> tracks_ = std::make_shared<envhost::EpisodeTracks>();
  std::unique_ptr<envhost::EpisodeTeller> teller_;  ///< null: the environment's process calls them
};

}  // namespace troupe::run
