#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/run/changed_run.h"
#include "lib/run/episode_video.h"

namespace troupe::services {

/// What `troupe evaluate` is asked for. Plain value.
struct EvaluateFlags {
  std::string run;
  std::string checkpoint = "latest";
  std::string directory = "runs";
  int64_t episodes = 0;  ///< 0: as the run's configuration says
  int64_t seed = -1;     ///< -1: as above
  bool deterministic = false;
  run::RunChanges changes;
  std::string experiment;  ///< empty: nothing is written
  std::string video;       ///< empty: none
  std::string video_episode = "best";
  run::VideoOptions video_options;
  bool overwrite = false;
  bool json = false;
  bool tables = true;  ///< without json: the result, for people
};

/// Plays episodes with a run's policies, prints what came of them and films one where that is asked for: the exit code.
absl::StatusOr<int> Evaluate(const EvaluateFlags& flags);

}  // namespace troupe::services
