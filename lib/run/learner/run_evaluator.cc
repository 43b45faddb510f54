#include "lib/run/learner/run_evaluator.h"

#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/rollout_setup.h"
#include "lib/run/run_checkpoint.h"

namespace troupe::run {

absl::Status RunEvaluator::Prepare() {
  policy::PolicyTablePtr now = deps_.learner->Policies();
  if (evaluated_ == now) return absl::OkStatus();
  config::ResolvedRun played = *deps_.run;
  UsePolicies(*now, &played);
  TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config, MakeRolloutConfig(played, *deps_.registry));
  TROUPE_ASSIGN_OR_RETURN(pool_, EvaluationPool::Create(config, deps_.run->evaluation.num_workers));
  evaluated_ = std::move(now);
  return absl::OkStatus();
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::Evaluate(int64_t env_steps) {
  TROUPE_RETURN_IF_ERROR(Prepare());
  std::vector<policy::WeightSnapshotPtr> weights;
  for (const policy::PolicySlot slot : evaluated_->entries().ids()) {
    const policy::PolicyEntry* const entry = evaluated_->Find(slot);
    if (entry == nullptr || !entry->active()) continue;
    TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, deps_.trainer->Snapshot(slot));
    weights.push_back(std::move(snapshot));
  }
  const config::EvaluationOptions& options = deps_.run->evaluation;
  rollout::EvaluationRequest request;
  request.episodes = options.episodes;
  request.deterministic = options.deterministic;
  request.seed = options.seed;
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, pool_->Run(request, weights));
  deps_.reporter->OnEvaluation(result, *evaluated_, env_steps);
  deps_.learner->ReportEvaluation(StatsOf(result, evaluated_->num_slots()));
  MaybeFilm(request, result, std::move(weights), env_steps);
  return result;
}

void RunEvaluator::MaybeFilm(const rollout::EvaluationRequest& request, const rollout::EvaluationResult& result,
                             std::vector<policy::WeightSnapshotPtr> weights, int64_t env_steps) {
  const int64_t number = evaluations_++;
  if (deps_.films == nullptr || number % deps_.run->evaluation.video_interval != 0) return;
  const absl::StatusOr<int64_t> best = EpisodeToFilm(result, "best");
  if (!best.ok()) return;
  FilmOrder order;
  order.run = *deps_.run;
  UsePolicies(*evaluated_, &order.run);
  order.request = request;
  order.episode = *best;
  order.length = result.each[static_cast<size_t>(*best)].length;
  order.weights = std::move(weights);
  order.names.agents = order.run.agent_ids();
  for (const policy::PolicyId& id : order.run.policy_ids()) order.names.policies.push_back(id.value());
  order.env_steps = env_steps;
  deps_.films->Order(std::move(order));
}

}  // namespace troupe::run
