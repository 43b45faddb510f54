#include "lib/run/evaluation_pool.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "lib/base/status_macros.h"

namespace troupe::run {

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

}  // namespace troupe::run
