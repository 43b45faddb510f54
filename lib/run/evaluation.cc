#include "lib/run/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json MeanStd(const rollout::MeanStd& value) { return Json{{"mean", Number(value.mean)}, {"std", Number(value.std)}}; }

Json ToJson(const rollout::EvaluationResult& result) {
  Json agents = Json::object();
  for (const rollout::EvaluatedAgent& agent : result.agents) agents[agent.id] = MeanStd(agent.episode_return);
  Json infos = Json::object();
  for (const rollout::EvaluatedInfo& info : result.infos) infos[info.column] = MeanStd(info.value);
  return {{"episodes", result.episodes},
          {"episodes_cut", result.cut},
          {"return_sum", MeanStd(result.return_sum)},
          {"return_mean", MeanStd(result.return_mean)},
          {"agents", agents},
          {"infos", infos},
          {"episode_length", Json{{"mean", Number(result.episode_length_mean)}}}};
}

Json EpisodeJson(const rollout::EvaluatedEpisode& episode, size_t number, const EpisodeNames& names,
                 const std::vector<std::string>& info_columns) {
  Json agents = Json::object();
  for (size_t slot = 0; slot < episode.returns.size(); ++slot) {
    if (episode.policies[slot] == policy::kNoPolicy) continue;
    agents[names.agents[slot]] = {{"return", Number(episode.returns[slot])},
                                  {"policy", names.policies[episode.policies[slot]]}};
  }
  Json infos = Json::object();
  for (size_t column = 0; column < episode.infos.size(); ++column) {
    if (!std::isnan(episode.infos[column])) infos[info_columns[column]] = Number(episode.infos[column]);
  }
  return {{"episode", number},
          {"seed", episode.seed},
          {"length", episode.length},
          {"cut", episode.cut},
          {"return_sum", Number(episode.return_sum())},
          {"return_mean", Number(episode.return_mean())},
          {"agents", agents},
          {"infos", infos}};
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string EvaluationJson(const rollout::EvaluationResult& result) { return Dump(ToJson(result)); }

std::string EvaluationWithEpisodesJson(const rollout::EvaluationResult& result, uint64_t seed,
                                       const EpisodeNames& names) {
  Json json = ToJson(result);
  json["seed"] = seed;
  Json episodes = Json::array();
  for (size_t i = 0; i < std::min(result.each.size(), kMostEpisodesTold); ++i) {
    episodes.push_back(EpisodeJson(result.each[i], i, names, result.info_columns));
  }
  json["per_episode"] = std::move(episodes);
  return Dump(json);
}

std::string CutText(const rollout::EvaluationResult& result, int64_t max_episode_steps) {
  if (result.cut == 0) return "";
  const std::string bound = absl::StrCat(max_episode_steps, " env steps (evaluation.max_episode_steps)");
  if (result.cut < result.episodes) {
    return absl::StrCat(result.cut, " of ", result.episodes, " episodes were cut after ", bound);
  }
  return absl::StrCat("NO EPISODE ENDED: all were cut after ", bound,
                      "; env.max_episode_steps ends the episodes of a task without an end, in training, too");
}

learner::EpisodeStats StatsOf(const rollout::EvaluationResult& result, size_t num_policies) {
  learner::EpisodeStats stats(result.agents.size(), num_policies);
  for (const rollout::EvaluatedEpisode& episode : result.each) {
    stats.Add(episode.return_sum(), static_cast<double>(episode.length), episode.returns, episode.policies);
  }
  for (const rollout::EvaluatedInfo& info : result.infos) stats.infos.emplace_back(info.column, info.value.mean);
  return stats;
}

}  // namespace troupe::run
