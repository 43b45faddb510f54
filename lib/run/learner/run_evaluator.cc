#include "lib/run/learner/run_evaluator.h"

#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/run/episode_video.h"
#include "lib/run/evaluation.h"
#include "lib/run/rollout_setup.h"
#include "lib/run/run_checkpoint.h"
#include "lib/run/watched_evaluation.h"
#include "lib/sample/multi_agent_batch.h"

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

RunEvaluator::~RunEvaluator() {
  if (!is_playing()) return;
  stopped_ = true;
  player_.join();
}

absl::Status RunEvaluator::PrepareFor(policy::PolicyTablePtr now) {
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

absl::StatusOr<RunEvaluator::Order> RunEvaluator::MakeOrder(int64_t env_steps) const {
  Order order;
  order.env_steps = env_steps;
  order.table = deps_.learner->Policies();
  for (const policy::PolicySlot slot : ActiveSlots(*order.table)) {
    TROUPE_ASSIGN_OR_RETURN(order.weights.emplace_back(), deps_.trainer->Snapshot(slot));
  }
  const config::EvaluationOptions& options = deps_.run->evaluation;
  order.request.episodes = options.episodes;
  order.request.deterministic = options.deterministic;
  order.request.seed = options.seed;
  order.request.max_episode_steps = options.max_episode_steps;
  return order;
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::PlayOrder(const Order& order) {
  EvaluationWatch watch;
  watch.options = deps_.run->evaluation;
  watch.interrupted = [this] { return stopped_ || (deps_.interrupted && deps_.interrupted()); };
  watch.tell = [this](const EvaluationProgress& progress) {
    if (shown_) deps_.reporter->OnEvaluating(progress);
    if (!progress.sees_no_end() || std::exchange(told_no_end_, true)) return;
    TROUPE_WARN("{}; training episodes that have ended: {}", progress.Text(),
                deps_.learner->Status().progress.episodes);
  };
  watch.abandoned = abandoned_.get();
  // Environments and policies of the changed table may take long to make: watched, too.
  const auto play = [&](const rollout::EvaluationRequest& watched) -> absl::StatusOr<rollout::EvaluationResult> {
    TROUPE_RETURN_IF_ERROR(PrepareFor(order.table));
    return pool_->Run(watched, order.weights);
  };
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, PlayWatched(watch, order.request, play));
  for (rollout::EvaluatedEpisode& episode : result.each) {
    for (policy::PolicySlot& played : episode.policies) {
      if (played != policy::kNoPolicy) played = slots_[static_cast<size_t>(played.value())];
    }
  }
  return result;
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::Play(bool deterministic) {
  if (listener_ != nullptr) return absl::FailedPreconditionError("callbacks would be called twice");
  TROUPE_ASSIGN_OR_RETURN(Order order, MakeOrder(0));
  order.request.deterministic = deterministic;
  return PlayOrder(order);
}

absl::StatusOr<rollout::EvaluationResult> RunEvaluator::Evaluate(int64_t env_steps) {
  TROUPE_ASSIGN_OR_RETURN(Order order, MakeOrder(env_steps));
  TROUPE_ASSIGN_OR_RETURN(rollout::EvaluationResult result, PlayOrder(order));
  Tell(std::move(order), result);
  return result;
}

absl::Status RunEvaluator::Begin(int64_t env_steps) {
  TROUPE_CHECK(!is_playing());
  TROUPE_ASSIGN_OR_RETURN(begun_, MakeOrder(env_steps));
  has_played_ = false;
  shown_ = false;
  player_ = std::thread([this] {
    played_ = PlayOrder(begun_);
    has_played_ = true;
  });
  return absl::OkStatus();
}

std::optional<absl::StatusOr<rollout::EvaluationResult>> RunEvaluator::TakeEnded(bool wait) {
  if (!is_playing() || (!wait && !has_played_)) return std::nullopt;
  shown_ = true;  // until the end of a run nobody else uses the reporter
  player_.join();
  absl::StatusOr<rollout::EvaluationResult> result = *std::exchange(played_, std::nullopt);
  Order order = std::exchange(begun_, {});
  if (result.ok()) Tell(std::move(order), *result);
  return result;
}

void RunEvaluator::Tell(Order order, const rollout::EvaluationResult& result) {
  if (result.cut > 0) TROUPE_WARN("evaluation env_steps={}: {}", order.env_steps, CutTextOf(result));
  deps_.reporter->OnEvaluation(result, *evaluated_, order.env_steps, Tracked(result));
  deps_.learner->ReportEvaluation(StatsForNow(result));
  MaybeFilm(std::move(order), result);
}

learner::EpisodeStats RunEvaluator::StatsForNow(const rollout::EvaluationResult& result) const {
  learner::EpisodeStats stats = StatsOf(result, evaluated_->num_slots());
  const policy::PolicyTablePtr now = deps_.learner->Policies();
  for (const policy::PolicySlot slot : stats.policies.ids()) {
    const policy::PolicyEntry* const then = evaluated_->Find(slot);
    const policy::PolicyEntry* const entry = now->Find(slot);
    if (then == nullptr || entry == nullptr || entry->since != then->since) stats.policies[slot] = {};
  }
  return stats;
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
    told.trajectories = episode.trajectories;
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

void RunEvaluator::MaybeFilm(Order played, const rollout::EvaluationResult& result) {
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
  order.request = std::move(played.request);
  order.episode = *best;
  order.length = result.each[static_cast<size_t>(*best)].length;
  order.weights = std::move(played.weights);
  order.names.agents = order.run.agent_ids();
  for (const policy::PolicyId& id : order.run.policy_ids()) order.names.policies.push_back(id.value());
  order.env_steps = played.env_steps;
  deps_.films->Order(std::move(order));
}

}  // namespace troupe::run
