#include "lib/run/learner/run_evaluator.h"

#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/rollout_setup.h"
#include "lib/run/run_checkpoint.h"
#include "lib/run/watched_evaluation.h"

namespace troupe::run {
namespace {

/// In the order in which UsePolicies has them.
std::vector<policy::PolicySlot> ActiveSlots(const policy::PolicyTable& table) {
  std::vector<policy::PolicySlot> slots;
  for (const policy::PolicySlot slot : table.entries().ids()) {
    const policy::PolicyEntry* const entry = table.Find(slot);
    if (entry != nullptr && entry->active()) slots.push_back(slot);
  }
  return slots;
}

}  // namespace

absl::Status RunEvaluator::Prepare() {
  policy::PolicyTablePtr now = deps_.learner->Policies();
  if (evaluated_ == now) return absl::OkStatus();
  config::ResolvedRun played = *deps_.run;
  UsePolicies(*now, &played);
  played.env.python.abandoned = abandoned_;
  played.env.python.evaluating = true;
  played.env.python.first_env_index = deps_.run->schema.num_envs;
  TROUPE_ASSIGN_OR_RETURN(const rollout::RolloutConfig config,
                          MakeRolloutConfig(played, *deps_.registry, deps_.callbacks));
  TROUPE_ASSIGN_OR_RETURN(pool_, EvaluationPool::Create(config, deps_.run->evaluation.num_workers));
  slots_ = ActiveSlots(*now);
  listener_ = config.listener;
  said_ = {};
  evaluated_ = std::move(now);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> RunEvaluator::Weights() const {
  std::vector<policy::WeightSnapshotPtr> weights;
  for (const policy::PolicySlot slot : ActiveSlots(*deps_.learner->Policies())) {
    TROUPE_ASSIGN_OR_RETURN(weights.emplace_back(), deps_.trainer->Snapshot(slot));
  }
  return weights;
}

rollout::EvaluationRequest RunEvaluator::Request() const {
  const config::EvaluationOptions& options = deps_.run->evaluation;
  rollout::EvaluationRequest request;
  request.episodes = options.episodes;
  request.deterministic = options.deterministic;
  request.seed = options.seed;
  request.max_episode_steps = options.max_episode_steps;
  return request;
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::PlayWith(
    const rollout::EvaluationRequest& request, const std::vector<policy::WeightSnapshotPtr>& weights) {
  EvaluationWatch watch;
  watch.options = deps_.run->evaluation;
  watch.interrupted = deps_.interrupted;
  watch.tell = [this](const EvaluationProgress& progress) {
    deps_.reporter->OnEvaluating(progress);
    if (!progress.sees_no_end() || std::exchange(told_no_end_, true)) return;
    TROUPE_WARN("{}; training episodes that have ended: {}", progress.Text(),
                deps_.learner->Status().progress.episodes);
  };
  watch.abandoned = abandoned_.get();
  // Environments and policies of the changed table may take long to make: watched, too.
  const auto play = [&](const rollout::EvaluationRequest& watched) -> absl::StatusOr<rollout::EvaluationResult> {
    TROUPE_RETURN_IF_ERROR(Prepare());
    return pool_->Run(watched, weights);
  };
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, PlayWatched(watch, request, play));
  for (rollout::EvaluatedEpisode& episode : result.each) {
    for (policy::PolicySlot& played : episode.policies) {
      if (played != policy::kNoPolicy) played = slots_[static_cast<size_t>(played.value())];
    }
  }
  return result;
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::Play(bool deterministic) {
  if (listener_ != nullptr) return absl::FailedPreconditionError("callbacks would be called twice");
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::WeightSnapshotPtr> weights, Weights());
  rollout::EvaluationRequest request = Request();
  request.deterministic = deterministic;
  return PlayWith(request, weights);
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::Evaluate(int64_t env_steps) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::WeightSnapshotPtr> weights, Weights());
  const rollout::EvaluationRequest request = Request();
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, PlayWith(request, weights));
  if (result.cut > 0) TROUPE_WARN("evaluation env_steps={}: {}", env_steps, CutTextOf(result));
  deps_.reporter->OnEvaluation(result, *evaluated_, env_steps, Tracked(result));
  deps_.learner->ReportEvaluation(StatsOf(result, evaluated_->num_slots()));
  MaybeFilm(request, result, std::move(weights), env_steps);
  return result;
}

std::vector<std::pair<std::string, double>> RunEvaluator::Tracked(const rollout::EvaluationResult& result) {
  std::vector<std::pair<std::string, double>> means;
  if (listener_ == nullptr) return means;
  std::vector<sample::FinishedEpisode> ended;
  for (const rollout::EvaluatedEpisode& episode : result.each) {
    sample::FinishedEpisode& told = ended.emplace_back();
    told.length = static_cast<int32_t>(episode.length);
    told.returns.assign(episode.returns.begin(), episode.returns.end());
    told.policies = episode.policies;
  }
  listener_->OnEnded(ended, evaluated_->Specs());
  sample::EnvReport report;
  listener_->AddTo(&report);
  tracked_.Report(report, /*before=*/false, &said_);
  for (const base::TrackedTotal& total : tracked_.Take().tracked) {
    means.emplace_back(total.name, total.sum / static_cast<double>(total.episodes));
  }
  deps_.degradations->Set("callbacks of evaluations",
                          report.callbacks_off.empty() ? "" : "callbacks of episodes are off in evaluations");
  return means;
}

std::string RunEvaluator::CutTextOf(const rollout::EvaluationResult& result) const {
  return CutText(result, deps_.run->evaluation.max_episode_steps);
}

void RunEvaluator::MaybeFilm(const rollout::EvaluationRequest& request, const rollout::EvaluationResult& result,
                             std::vector<policy::WeightSnapshotPtr> weights, int64_t env_steps) {
  const int64_t number = evaluations_++;
  if (deps_.films == nullptr || number % deps_.run->evaluation.video_interval != 0) return;
  const absl::StatusOr<int64_t> best = EpisodeToFilm(result, "best");
  if (!best.ok()) return;
  FilmOrder order;
  order.run = *deps_.run;
  // Beside those of training and of evaluations, which are open.
  order.run.env.python.first_env_index =
      static_cast<uint32_t>(deps_.run->schema.num_envs + deps_.run->evaluation.episodes);
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
