#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/run/evaluation.h"

namespace troupe::run {

/// What an evaluation leaves behind where that is asked for.
struct EvaluationFolder {
  std::string path;               ///< made by WriteEvaluation; must not be there
  std::string config_yaml;        ///< what was played
  std::string summary_json;       ///< of the evaluation, one line
  int64_t trained_env_steps = 0;  ///< of the checkpoint: the step of the two scores
};

/// Writes config.yaml (mode 0600), summary.json, progress.jsonl with a line for each of the first kMostEpisodesTold
/// episodes, and a TensorBoard event file: Test-Results/Episode-Rewards/{Mean,Std}-Score at the checkpoint's env steps,
/// and Test-Results/Episode-Rewards, Test-Results/Episode-Length and Test-Results/<agent>/Episode-Rewards at each
/// episode's number. ALREADY_EXISTS: something of that name is there; else what the disk says.
absl::Status WriteEvaluation(const EvaluationFolder& folder, const rollout::EvaluationResult& result,
                             const EpisodeNames& names);

}  // namespace troupe::run
