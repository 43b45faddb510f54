#include "services/common/evaluation.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "lib/base/status_macros.h"
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json MeanStd(const rollout::MeanStd& value) { return Json{{"mean", Number(value.mean)}, {"std", Number(value.std)}}; }

Json ToJson(const rollout::EvaluationResult& result) {
  Json agents = Json::object();
  for (const rollout::EvaluatedAgent& agent : result.agents) agents[agent.id] = MeanStd(agent.episode_return);
  return {{"episodes", result.episodes},
          {"return_sum", MeanStd(result.return_sum)},
          {"return_mean", MeanStd(result.return_mean)},
          {"agents", agents},
          {"episode_length", Json{{"mean", Number(result.episode_length_mean)}}}};
}

Json EpisodeJson(const rollout::EvaluatedEpisode& episode, size_t number, const EpisodeNames& names) {
  Json agents = Json::object();
  for (size_t slot = 0; slot < episode.returns.size(); ++slot) {
    if (episode.policies[slot] < 0) continue;
    agents[names.agents[slot]] = {{"return", Number(episode.returns[slot])},
                                  {"policy", names.policies[static_cast<size_t>(episode.policies[slot])]}};
  }
  return {{"episode", number},
          {"seed", episode.seed},
          {"length", episode.length},
          {"return_sum", Number(episode.return_sum())},
          {"return_mean", Number(episode.return_mean())},
          {"agents", agents}};
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
    episodes.push_back(EpisodeJson(result.each[i], i, names));
  }
  json["per_episode"] = std::move(episodes);
  return Dump(json);
}

learner::EpisodeStats StatsOf(const rollout::EvaluationResult& result, size_t num_policies) {
  learner::EpisodeStats stats(result.agents.size(), num_policies);
  for (const rollout::EvaluatedEpisode& episode : result.each) {
    stats.Add(static_cast<double>(episode.length), episode.returns, episode.policies);
  }
  return stats;
}

absl::StatusOr<std::unique_ptr<EvaluationPool>> EvaluationPool::Create(const rollout::RolloutConfig& config,
                                                                       int num_threads, int num_envs) {
  auto pool = std::unique_ptr<EvaluationPool>(new EvaluationPool(config.env_spec));
  for (int i = 0; i < std::max(1, num_threads); ++i) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<rollout::Evaluator> evaluator,
                            rollout::Evaluator::Create(config, num_envs));
    pool->evaluators_.push_back(std::move(evaluator));
  }
  return pool;
}

absl::StatusOr<rollout::EvaluationResult> EvaluationPool::Run(const rollout::EvaluationRequest& request,
                                                              absl::Span<const policy::WeightSnapshotPtr> weights) {
  // Consecutive shares: joined in order they are the episodes in order.
  const int64_t threads = std::clamp<int64_t>(request.episodes, 1, static_cast<int64_t>(evaluators_.size()));
  std::vector<absl::StatusOr<rollout::EvaluationResult>> parts(static_cast<size_t>(threads), absl::UnknownError(""));
  const auto play = [&](int64_t part) {
    rollout::EvaluationRequest share = request;
    const int64_t begin = request.episodes * part / threads;
    share.first_episode = request.first_episode + begin;
    share.episodes = request.episodes * (part + 1) / threads - begin;
    parts[static_cast<size_t>(part)] = evaluators_[static_cast<size_t>(part)]->Run(share, weights);
  };
  std::vector<std::thread> others;
  for (int64_t part = 1; part < threads; ++part) others.emplace_back(play, part);
  play(0);
  for (std::thread& thread : others) thread.join();

  std::vector<rollout::EvaluatedEpisode> episodes;
  for (absl::StatusOr<rollout::EvaluationResult>& part : parts) {
    TROUPE_RETURN_IF_ERROR(part.status());
    std::move(part->each.begin(), part->each.end(), std::back_inserter(episodes));
  }
  return rollout::Aggregate(env_spec_, std::move(episodes));
}

}  // namespace troupe::services
