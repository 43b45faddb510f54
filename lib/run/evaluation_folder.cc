#include "lib/run/evaluation_folder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/storage/file_system.h"
#include "lib/telemetry/json_lines_writer.h"
#include "lib/telemetry/tensorboard_writer.h"

namespace troupe::run {
namespace {

constexpr char kResults[] = "Test-Results/";

std::string PolicyOf(const rollout::EvaluatedEpisode& episode, size_t slot, const EpisodeNames& names) {
  return names.policies[episode.policies[slot]];
}

void WriteEpisode(const rollout::EvaluationResult& result, size_t place, int64_t env_steps, const EpisodeNames& names,
                  telemetry::JsonLinesWriter* lines, telemetry::TensorBoardWriter* events) {
  const rollout::EvaluatedEpisode& episode = result.each[place];
  const auto number = static_cast<int64_t>(place);
  std::vector<telemetry::JsonField> fields = {{"env_steps", env_steps},
                                              {"episode", number},
                                              {"seed", static_cast<int64_t>(episode.seed)},
                                              {"episode_length", episode.length},
                                              {"return_sum", episode.return_sum()},
                                              {"return_mean", episode.return_mean()}};
  events->Scalar(absl::StrCat(kResults, "Episode-Rewards"), episode.return_sum(), number);
  events->Scalar(absl::StrCat(kResults, "Episode-Length"), static_cast<double>(episode.length), number);
  for (size_t slot = 0; slot < episode.returns.size(); ++slot) {
    if (episode.policies[slot] == policy::kNoPolicy) continue;
    const std::string& agent = names.agents[slot];
    fields.push_back({absl::StrCat("agent/", agent, "/return"), episode.returns[slot]});
    fields.push_back({absl::StrCat("agent/", agent, "/policy"), PolicyOf(episode, slot, names)});
    events->Scalar(absl::StrCat(kResults, agent, "/Episode-Rewards"), episode.returns[slot], number);
  }
  for (size_t column = 0; column < episode.infos.size(); ++column) {
    if (std::isnan(episode.infos[column])) continue;
    const std::string name = absl::StrCat("env/", result.info_columns[column]);
    fields.push_back({name, episode.infos[column]});
    events->Scalar(absl::StrCat(kResults, name), episode.infos[column], number);
  }
  lines->Write(fields);
}

}  // namespace

absl::Status WriteEvaluation(const EvaluationFolder& folder, const rollout::EvaluationResult& result,
                             const EpisodeNames& names) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  if (fs.Exists(folder.path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("\"", base::LogSafe(folder.path), "\" is there, expected none; choose another name"));
  }
  TROUPE_RETURN_IF_ERROR(storage::MakeDurableDirectories(fs, folder.path));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::TensorBoardWriter> events,
                          telemetry::TensorBoardWriter::Open(folder.path));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::JsonLinesWriter> lines,
                          telemetry::JsonLinesWriter::Open(absl::StrCat(folder.path, "/progress.jsonl"), 0));
  int64_t env_steps = 0;
  for (size_t i = 0; i < std::min(result.each.size(), kMostEpisodesTold); ++i) {
    env_steps += result.each[i].length;
    WriteEpisode(result, i, env_steps, names, lines.get(), events.get());
  }
  const std::string score = absl::StrCat(kResults, "Episode-Rewards/");
  events->Scalar(score + "Mean-Score", result.return_sum.mean, folder.trained_env_steps);
  events->Scalar(score + "Std-Score", result.return_sum.std, folder.trained_env_steps);
  events->Flush();
  lines->Flush();
  for (const std::string& degraded : {events->Degraded(), lines->Degraded()}) {
    if (!degraded.empty()) return absl::ResourceExhaustedError(absl::StrCat(folder.path, ": ", degraded));
  }
  TROUPE_RETURN_IF_ERROR(storage::ReplaceFile(fs, folder.path + "/summary.json", folder.summary_json + "\n"));
  return storage::ReplaceFile(fs, folder.path + "/config.yaml", folder.config_yaml);
}

}  // namespace troupe::run
